"""What experiments share: the command line, options, training, runs on disk and reports."""
