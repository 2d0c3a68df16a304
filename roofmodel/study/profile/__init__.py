"""Profiler files placed on a device's roofline."""
