"""Helpers of the profile tests: paths of measured files, and damaged samples."""

from __future__ import annotations

import gzip
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Profile
from roofmodel.profiles.timelines.kernels import profile
from roofmodel.profiles.timelines.timeline import Timeline

MEASURED = Path(os.environ.get("ROOF_MEASURED") or Path(__file__).parents[2].parent / "shared" / "measured")
needs_measured = pytest.mark.skipif(
    not MEASURED.is_dir(), reason=f"the measured data are not in {MEASURED}: set ROOF_MEASURED"
)

Reader = Callable[[BinaryIO, str], Profile]


def measured(path: str) -> Path:
    """A file or folder of the measured data; the test is skipped if it is absent."""
    found = MEASURED / path
    if not found.exists():
        pytest.skip(f"no measured data: set ROOF_MEASURED to the folder that contains {path}")
    return found


def content(path: Path) -> bytes:
    """The decompressed bytes of a file."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def profile_of(read: Callable[[BinaryIO, str], Timeline]) -> Reader:
    """The reader of a format as a reader of profiles."""
    return lambda file, name: profile(read(file, name))


def read_text(read: Reader, text: str) -> Profile:
    return read(io.BytesIO(text.encode()), "sample")


def mutilations(sample: bytes) -> st.SearchStrategy[bytes]:
    """The sample truncated, with bytes changed, removed or doubled, or only random bytes."""

    def damage(seed: int) -> bytes:
        dice, data = random.Random(seed), bytearray(sample)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data) + 1)
            length = dice.choice((1, 1, 2, 7, 40))
            how = dice.randrange(4)
            if how == 0:
                data[at : at + length] = bytes(dice.randrange(256) for _ in range(length))
            elif how == 1:
                del data[at : at + length]
            elif how == 2:
                data[at:at] = data[at : at + length]
            else:
                data[at : at + 1] = dice.choice((b'"', b",", b"\0", b"-1", b"1e9", b"\n", b"{", b"null", b"\xff"))
        return bytes(data)

    cut = st.integers(0, len(sample)).map(lambda at: sample[:at])
    return st.one_of(cut, st.integers(0, 2**32).map(damage), st.binary(max_size=200))


def assert_error_or_table(read: Reader, data: bytes) -> None:
    """A damaged file is refused with a message, or gives a table with plausible rows."""
    try:
        profile = read(io.BytesIO(data), "sample")
    except ProfileError as error:
        if not str(error).startswith("sample"):
            raise
        return
    assert profile.kernels or profile.warnings
    for kernel in profile.kernels:
        assert kernel.name
        assert kernel.invocations >= 1
        assert kernel.seconds is None or kernel.seconds >= 0
