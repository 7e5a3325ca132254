"""The one error that a person may cause."""


class ExperimentError(Exception):
    """What went wrong, in one line; the command line prints it and ends with a non-zero exit."""
