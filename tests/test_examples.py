"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roofmodel.devices.device import Device
from roofmodel.devices.schema import findings

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_block_counted_by_hand_is_right() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "block_by_hand.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "wrong" not in done.stdout
    assert done.stdout.count("right") == 7
    assert "3,506,703,564,800" in done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_device_is_valid_without_warnings(path: Path) -> None:
    assert findings(Device.load(str(path))) == []
