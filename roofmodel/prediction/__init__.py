"""A cost and a device -> time."""
