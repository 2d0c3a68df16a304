"""Lists of models, families and devices."""
