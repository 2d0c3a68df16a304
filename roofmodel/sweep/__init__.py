"""Grids of estimates, scaling over numbers of GPUs; worker processes and Dask."""
