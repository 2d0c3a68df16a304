"""Options: the types of their values, the checks of the Python functions' arguments, and their command line."""
