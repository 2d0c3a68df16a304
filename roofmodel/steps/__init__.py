"""A model, a workload and a device -> operators with times, memory, totals."""
