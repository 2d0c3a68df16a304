"""Operators and memory of any torch module."""
