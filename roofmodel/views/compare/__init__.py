"""A comparison as a table, data and a picture."""
