"""Kernels and roofline points as tables, data, charts and pictures."""
