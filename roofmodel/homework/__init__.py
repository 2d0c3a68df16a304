"""Problem sheets and their check."""
