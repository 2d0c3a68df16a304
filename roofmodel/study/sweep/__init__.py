"""Grids of workloads, models and devices."""
