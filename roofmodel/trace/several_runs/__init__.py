"""Several runs: which files are which run, a comparison before and after a change, and runs side by side."""
