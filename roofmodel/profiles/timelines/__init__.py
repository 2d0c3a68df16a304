"""Readers of complete runs: kernels, memory copies, CPU calls, framework operators and ranges, each with its times."""
