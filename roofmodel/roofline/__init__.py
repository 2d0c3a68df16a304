"""Kernels on a roofline: their device, their category, FLOPs from recorded shapes, points under ceilings."""
