"""The best layouts of a service or of a training run."""
