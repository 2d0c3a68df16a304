"""Fuzz the profile readers, guided by their coverage (atheris: libFuzzer for Python), starting from the seeds.

    python -m tests.profiles.fuzz                        until something fails
    python -m tests.profiles.fuzz -max_total_time=30     for half a minute
    python -m tests.profiles.fuzz crash-1b2c3            once more, one file that failed
    python -m tests.profiles.fuzz CORPUS                 start from, and keep in a folder, inputs that reach new code

An input must, within ten seconds and two gigabytes, be rejected by a message that names the file, or give a table of
kernels whose values make sense and can be printed. `check` tests one input. `tests.fuzz` also fuzzes configs and
device files.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path

from roofmodel.errors import RoofError

_LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", "-verbosity=1")
# What a mutation of bytes alone would hardly find.
_TOKENS = (
    *("n/a", "<OVERFLOW>", "1e308", "-1", "1,234", "0.5", "NaN", "null", "99999999999999999999", '""', '","'),
    *("Kbyte", "usecond", "Gbyte/s", "==PROF== ", "==7== ", "Metric result:", "traceEvents", "correlation", r"\x00"),
)


def check(data: bytes, path: Path) -> None:
    """Read `data`, written to `path`; fail unless it is refused properly or gives plausible figures."""
    from roofmodel.plot.data import kernels_document
    from roofmodel.plot.measured import DeviceProfile, MeasuredKernels
    from roofmodel.profiles import reading  # not before atheris watches what is imported

    path.write_bytes(data)
    try:
        profile = reading.read([path])
    except RoofError as error:
        message = str(error)
        assert path.name in message, message
        assert len(message) < 2000, message
        assert message.isprintable(), message
        return
    document = kernels_document(MeasuredKernels((DeviceProfile(profile, None),), profile.warnings))
    json.dumps(document, allow_nan=False)
    assert document["kernels"] or document["warnings"]
    for kernel in document["kernels"]:
        assert kernel["name"], kernel
        assert kernel["name"].encode(), kernel
        assert kernel["invocations"] >= 1, kernel
        figures = (kernel["seconds"], kernel["occupancy"], *kernel["flops"].values(), *kernel["bytes"].values())
        assert all(figure is None or (figure >= 0 and math.isfinite(figure)) for figure in figures), kernel


def main(options: list[str]) -> None:
    """Fuzz, with the options of libFuzzer."""
    import atheris

    with atheris.instrument_imports(include=["roofmodel"]):
        from tests.profiles.seeds import SEEDS

    with tempfile.TemporaryDirectory() as folder:
        seeds, tokens, path = Path(folder, "seeds"), Path(folder, "tokens"), Path(folder, "input")
        seeds.mkdir()
        for name, content in SEEDS.items():
            (seeds / name).write_bytes(content)
        tokens.write_text("".join('"{}"\n'.format(token.replace('"', r"\x22")) for token in _TOKENS))
        again = any(Path(option).is_file() for option in options)
        atheris.Setup(
            [__file__, *_LIMITS, f"-dict={tokens}", *options, *([] if again else [str(seeds)])],
            lambda d: check(d, path),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
