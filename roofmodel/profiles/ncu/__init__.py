"""Read Nsight Compute files (CSV tables, printed text, .ncu-rep reports) into kernels with FLOPs and bytes."""
