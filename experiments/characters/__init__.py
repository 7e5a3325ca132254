"""Five mixers predict the next character of Python's own reference texts."""
