"""Benchmarks of operations: measurement, validation of predictions, calibration of devices."""
