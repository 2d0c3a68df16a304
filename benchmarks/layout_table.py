"""What layout and padding are worth on an H100 and an H200, as the Markdown of docs/layout-and-padding.md.

    python -m benchmarks.layout_table

Times are those of `benchmarks/collect/layouts.py` in tests/data/gpu: GEMMs with operands in DRAM, medians; convolutions
and training steps with cudnn.benchmark.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "gpu"
DEVICES = {"H100": "h100", "H200": "h200"}
SIZES = (4096, 4097, 4098, 4100, 4104, 4112)
BATCH = 128  # of the training steps


def gemms(device: str) -> dict[tuple[str, int, int, int], float]:
    """(format, m, n, k) -> µs."""
    with (FOLDER / device / "unaligned.csv").open(encoding="utf-8") as file:
        return {
            (row["dtype"], int(row["m"]), int(row["n"]), int(row["k"])): float(row["latency_us"])
            for row in csv.DictReader(file)
        }


def layouts(device: str) -> dict[tuple[str, str, str], float]:
    """(shape, format, layout) -> seconds, with cudnn.benchmark."""
    with (FOLDER / device / "layouts.csv").open(encoding="utf-8") as file:
        return {
            (row["shape"], row["dtype"], row["layout"]): float(row["seconds"])
            for row in csv.DictReader(file)
            if row["cudnn_benchmark"] != "False"
        }


def factor(value: float) -> str:
    """A ratio of times, such as 8.0 ×."""
    return f"{value:.1f} ×" if value < 9.95 else f"{value:.0f} ×"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table; all columns but the first are numbers."""
    yield "| " + " | ".join(titles) + " |"
    yield "|---" + "|---:" * (len(titles) - 1) + "|"
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""


def padding() -> Iterator[str]:
    """Times of GEMMs of 4096 rows and columns, and of others, relative to 4096."""
    measured = {name: gemms(folder) for name, folder in DEVICES.items()}

    def cells(m: int, n: int, k: int) -> list[str]:
        return [
            factor(of[dtype, m, n, k] / of[dtype, 4096, 4096, 4096])
            for dtype in ("bf16", "tf32")
            for of in measured.values()
        ]

    titles = [f"{dtype}, {name}" for dtype in ("bf16", "tf32") for name in DEVICES]
    yield "**Columns of the result**, 4096 × N with K = 4096. Time relative to N = 4096:\n"
    rows = [(f"N = {n}: {'odd' if n % 2 else f'a multiple of {n & -n}'}", *cells(4096, n, 4096)) for n in SIZES]
    yield from table(["", *titles], rows)
    yield "**The dimension that is summed over**, 4096 × 4096. Time relative to K = 4096:\n"
    rows = [(f"K = {k}", *cells(4096, 4096, k)) for k in SIZES]
    yield from table(["", *titles], rows)
    yield "**Rows of the result** (tokens, or batch), M × 4096 with K = 4096. Time relative to M = 4096:\n"
    rows = [(f"M = {m}", *cells(m, 4096, 4096)) for m in SIZES]
    yield from table(["", *titles], rows)


def vocabulary() -> Iterator[str]:
    """The head of GPT-2 and GPT-2 XL, with 50257 and with 50304 columns."""
    yield "**A vocabulary of 50257 words, padded to 50304** (GPT-2: K = 768, GPT-2 XL: K = 1600), in bf16:\n"
    measured = {name: gemms(folder) for name, folder in DEVICES.items()}
    rows = []
    for k in (768, 1600):
        for m in (16, 512, 4096):
            cells = []
            for of in measured.values():
                odd, even = of["bf16", m, 50257, k], of["bf16", m, 50304, k]
                cells += [f"{odd:,.0f} µs", f"{even:,.0f} µs", factor(odd / even)]
            rows.append((f"{m} rows, K = {k}", *cells))
    titles = [title for name in DEVICES for title in (f"{name}: 50257", "50304", "gain")]
    yield from table(["", *titles], rows)


def channels_last() -> Iterator[str]:
    """Training steps of ResNet-50, and its convolutions, in both layouts."""
    measured = {name: layouts(folder) for name, folder in DEVICES.items()}
    formats = {"fp32": "fp32", "tf32": "tf32", "fp16": "AMP in fp16"}
    yield f"**Training ResNet-50** at batch {BATCH}, images/s:\n"
    rows = []
    for dtype, name in formats.items():
        cells = []
        for of in measured.values():
            nchw, nhwc = (of[f"{BATCH} x 3x224x224", dtype, layout] for layout in ("NCHW", "NHWC"))
            cells += [f"{BATCH / nchw:,.0f}", f"{BATCH / nhwc:,.0f}", factor(nchw / nhwc)]
        rows.append((name, *cells))
    yield from table(
        ["", *(title for name in DEVICES for title in (f"{name}: NCHW", "NHWC", "gain"))],
        rows,
    )
    yield "**Its convolutions**, forward. Time in NCHW divided by time in NHWC:\n"
    shapes = [shape for shape, *_ in measured["H100"] if "->" in shape]
    rows = [
        (
            shape.replace("x", " × ").replace("->", "→"),
            *(
                factor(of[shape, dtype, "NCHW"] / of[shape, dtype, "NHWC"])
                for dtype in formats
                for of in measured.values()
            ),
        )
        for shape in dict.fromkeys(shapes)
    ]
    titles = [f"{dtype}, {name}" for dtype in formats for name in DEVICES]
    yield from table(["channels and pixels → channels, filter", *titles], rows)


def main() -> None:
    """Print all tables."""
    for heading, part in (
        ("Pad to multiples of 16 bytes", padding),
        ("Pad the vocabulary", vocabulary),
        ("Channels last", channels_last),
    ):
        print(f"## {heading}\n")
        print("\n".join(part()))


if __name__ == "__main__":
    main()
