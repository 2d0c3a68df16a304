"""How `study.compare` finds out which kernel is which operator, and what follows from it."""
