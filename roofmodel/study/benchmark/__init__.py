"""Measured operations: take them, validate predictions against them, calibrate devices."""
