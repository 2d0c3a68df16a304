"""Models: a name or a Hugging Face config is read into an Architecture."""
