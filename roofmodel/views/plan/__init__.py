"""Tables, pictures and data of a plan."""
