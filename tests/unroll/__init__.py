"""The engine's door, by worked numbers and by what users of other libraries stumbled over.

"Thread n" is the n-th thread of the list of peers' issues that the library was designed against.
"""
