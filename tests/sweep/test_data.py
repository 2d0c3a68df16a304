"""The columns of a sweep as arrays."""

from __future__ import annotations

import numpy

from roofmodel.sweep.data import concatenated


def test_counts_beyond_float_precision_stay_exact_with_fractions() -> None:
    large = 2**53 + 1
    joined = concatenated([numpy.array([large]), numpy.array([0.5])])
    assert joined.tolist() == [large, 0.5]
    assert concatenated([numpy.array([2]), numpy.array([0.5])]).dtype == float
    assert concatenated([numpy.array([True]), numpy.array([float("nan")])]).tolist() == [True, None]
