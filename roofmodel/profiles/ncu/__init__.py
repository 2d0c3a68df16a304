"""Nsight Compute: its CSV tables, printed text and reports -> kernels with FLOPs and bytes."""
