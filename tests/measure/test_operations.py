"""Rows of tables as operators."""

from __future__ import annotations

import numpy as np
import pytest

from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.measure.operations import attention_core


@pytest.mark.parametrize(("window", "hides"), [(0, 0), (128, 1), (4096, 0), (4097, 0)])
def test_a_window_hides_keys_only_where_it_is_shorter_than_the_cache(window: int, hides: int) -> None:
    sizes = {"batch": 1, "heads": 8, "kv_heads": 2, "head_dim": 64, "seq": 1, "kv_len": 4096, "window": window}
    columns = {name: np.array([size]) for name, size in sizes.items()}
    operator = attention_core(columns | {"head_dim": 64}, Widths(*3 * (FORMATS["bf16"],)))
    assert operator.sizes["windowed"].tolist() == [window > 0]
    assert operator.sizes["hides"].tolist() == [hides]
