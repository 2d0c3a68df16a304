"""The GPU kit behind `benchmarks/collect_gpu.sh`.

`__main__` runs each part in a separate process, so that a failure or a crashed GPU in one part does not affect others.
"""
