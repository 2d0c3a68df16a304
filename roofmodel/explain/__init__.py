"""Derivations of counts and times, crossovers, counting conventions, and the counts of other tools."""
