"""`roof compare` for results of serving benchmarks: predicted and measured latencies and rates of each run."""
