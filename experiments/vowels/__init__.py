"""Who is speaking? Recurrent classifiers on JapaneseVowels, and what padding does to them."""
