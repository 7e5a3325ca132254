"""Speed and memory beside other packages, as ratios of runs in one process."""
