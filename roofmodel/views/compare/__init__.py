"""Predicted and measured operators as a table, as data and as a picture."""
