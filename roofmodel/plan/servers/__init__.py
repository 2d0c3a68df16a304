"""The servers of a plan: the commands that start them, and a script."""
