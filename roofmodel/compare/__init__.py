"""Operators with the kernels that ran them, predicted and measured."""
