"""What an engine runs besides an operator's own kernel: fused operators, extra kernels, and which kernel it chooses."""
