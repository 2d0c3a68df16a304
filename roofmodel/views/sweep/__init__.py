"""A sweep as a table, data and pictures."""
