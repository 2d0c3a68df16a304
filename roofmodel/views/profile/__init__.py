"""Views of kernels and roofline points: tables, data, charts and pictures."""
