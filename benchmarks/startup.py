"""Measure start-up time and speed as ratios within one run, because absolute times depend on the machine.

    python benchmarks/startup.py            prints the table, exits with 1 if a ratio exceeds its limit
    python benchmarks/startup.py --runs 30

Runs are interleaved, so that a slow phase of the machine affects both sides. The shortest runs are compared,
because other load only adds time. PYTHONDONTWRITEBYTECODE is cleared, because an installation has compiled modules.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PYTHON = sys.executable
# What the installed command `roof` executes; `python -m` also loads runpy, which its users never wait for.
COMMAND = [PYTHON, "-c", "import sys; from roofmodel.__main__ import main; sys.exit(main())"]
ROOF = [*COMMAND, "estimate", "gpt2-xl", "--hw", "a100"]
KERNELS = [*COMMAND, "kernels", str(EXAMPLES / "ncu_by_hand.csv")]
PLOT = [*COMMAND, "plot", str(EXAMPLES / "ncu_by_hand.csv")]
TRACE = [*COMMAND, "trace", str(EXAMPLES / "training_by_hand.json")]
PICTURE = """
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
figure = Figure()
FigureCanvasAgg(figure)
figure.add_subplot().loglog([1, 10], [1, 10])
figure.savefig("picture.png")
"""
FLOP_COUNTER = """
import torch, transformers
from torch.utils.flop_counter import FlopCounterMode
config = transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25)
config._attn_implementation = "eager"
with torch.device("meta"):
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.zeros(1, 1024, dtype=torch.long)
    inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=torch.arange(1024)[None])
counter = FlopCounterMode(display=False)
with counter, torch.no_grad():
    model(**inputs)
assert counter.get_total_flops() == 3506703564800
"""


def seconds(command: Sequence[str]) -> float:
    """Wall time in seconds of one run of a command in an empty folder; its output is discarded."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment, cwd=folder)
        return time.perf_counter() - start


def shortest(commands: Sequence[Sequence[str]], runs: int) -> list[float]:
    """The shortest of each command's interleaved runs, in seconds; the first run compiles the modules."""
    times = [[seconds(command) for command in commands] for _ in range(runs)]
    return [min(column) for column in zip(*times, strict=True)]


def main() -> int:
    """Measure and print; return 1 if a ratio exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25)
    runs = parser.parse_args().runs

    libraries = [PYTHON, "-c", "import typer, rich.console, rich.table"]
    roof, imports, package, bare, kernels, trace = shortest(
        [ROOF, libraries, [PYTHON, "-c", "import roofmodel"], [PYTHON, "-c", "pass"], KERNELS, TRACE], runs
    )
    checks = [
        # Runs on the same state of the code give 1.84 to 2.06 on one machine, and 0.15 more on another.
        ("roof estimate gpt2-xl / importing typer and rich", roof / imports, 2.3),
        # 1.9 to 2.2, and 2.3 to 3.9, on a machine with other work.
        ("roof kernels FILE / importing typer and rich", kernels / imports, 2.4),
        ("roof trace FILE / importing typer and rich", trace / imports, 4.2),
        ("import roofmodel / (1.5 x bare python + 30 ms)", package / (1.5 * bare + 0.030), 1.0),
    ]
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("comparison with matplotlib left out: it needs pip install 'roofmodel[dev]'")
    else:
        # Two thirds of the time of `roof plot` are matplotlib's: its import and the drawing of an empty picture.
        plot, picture = shortest([PLOT, [PYTHON, "-c", PICTURE]], 7)
        checks.append(("roof plot FILE / a picture of matplotlib with one line", plot / picture, 1.7))
    try:
        import transformers  # noqa: F401
    except ImportError:
        print("meta-device comparison left out: it needs pip install 'roofmodel[dev]'")
    else:
        counted, roof = shortest([[PYTHON, "-c", FLOP_COUNTER], ROOF], 7)
        checks.append(("20 x roof estimate gpt2-xl / meta-device FlopCounterMode", 20 * roof / counted, 1.0))

    for name, ratio, limit in checks:
        print(f"{name:<62} {ratio:6.2f}  (limit {limit}){'' if ratio <= limit else '  OVER THE LIMIT'}")
    return int(any(ratio > limit for _, ratio, limit in checks))


if __name__ == "__main__":
    sys.exit(main())
