"""Measuring, validation and calibration as tables, data and pictures."""
