"""Devices: reading and writing their YAML files, ceilings and calibration. Imports no models."""
