"""FLOPs, bytes, times and memory of a model on a device."""
