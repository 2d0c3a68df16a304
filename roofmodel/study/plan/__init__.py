"""The best layout, formats and batch for targets of a service or of a training run: `roof plan`."""
