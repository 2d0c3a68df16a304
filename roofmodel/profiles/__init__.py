"""Profiler files -> one table of measured kernels. Knows no models and no predictions."""
