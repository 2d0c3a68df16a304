"""Where the wall time of a run goes."""
