"""Generation: sequences that read the truth, their own outputs, or a mixture of both."""
