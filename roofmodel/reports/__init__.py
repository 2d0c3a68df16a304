"""Results of the functions in `api`, with their tables, files and notebook displays."""
