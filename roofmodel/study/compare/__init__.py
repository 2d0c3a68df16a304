"""Predicted operators matched to measured kernels."""
