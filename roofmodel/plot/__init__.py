"""Kernels of profiler files on a device's roofline."""
