"""An Architecture and a workload -> operators with costs, independent of the hardware."""
