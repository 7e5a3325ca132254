"""The class of every character of Python source: forwards or both ways, packed or padded."""
