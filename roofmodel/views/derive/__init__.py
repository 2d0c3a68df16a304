"""Derivations and crossovers as documents and data."""
