"""A model's name -> an Architecture."""
