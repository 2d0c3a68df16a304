"""An Architecture and a workload -> operators with costs. Knows no hardware."""
