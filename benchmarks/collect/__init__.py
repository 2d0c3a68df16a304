"""The GPU kit: what `benchmarks/collect_gpu.sh` runs. `__main__` runs the parts, each a process of its own, so that one
that fails, or a GPU that one has brought down, takes nothing else along."""
