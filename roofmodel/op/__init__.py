"""The command `roof op`: one operation."""
