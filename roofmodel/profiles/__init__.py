"""Read profiler files into one list of measured kernels. Independent of models and predictions."""
