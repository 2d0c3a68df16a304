"""Rows of tables as operators."""

from __future__ import annotations

import numpy as np
import pytest

from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.measure.operations import attention_core


@pytest.mark.parametrize("window", [0, 128, 4097])
def test_attention_states_whether_it_has_a_sliding_window(window: int) -> None:
    sizes = {"batch": 1, "heads": 8, "kv_heads": 2, "head_dim": 64, "seq": 1, "kv_len": 4096, "window": window}
    columns = {name: np.array([size]) for name, size in sizes.items()}
    operator = attention_core(columns, Widths(*3 * (FORMATS["bf16"],)))
    assert operator.sizes["windowed"].tolist() == [window > 0]
