"""From written numbers in five languages to digits: a fixed vector, or attention."""
