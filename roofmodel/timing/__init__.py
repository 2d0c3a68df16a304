"""Time of a cost on a device: the roofline bound, and the expected time by kind of kernel and engine."""
