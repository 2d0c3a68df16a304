"""Reading of Nsight Compute CSV files of a gigabyte: roofmodel compared with pyarrow.

    python benchmarks/big_ncu.py                            all three layouts, a gigabyte each
    python benchmarks/big_ncu.py raw --gigabytes 0.1        a row per launch, 225 columns, a row of units
    python benchmarks/big_ncu.py details                    a row per metric and per rule, 48 per launch
    python benchmarks/big_ncu.py metrics                    a row per metric of `ncu --metrics`, 12 per launch
    python benchmarks/big_ncu.py raw --write big.csv        only write the file

The files have the structure of real exports (ResNet-18 on an A100, a language model on an RTX 5090, BERT on a V100):
columns and their order, quoted cells, metric rows shorter than rule rows, thousands separators on the details page,
kernel names of 71 to 1404 characters with the same distribution of launches. Kernels and numbers are synthetic. "Bare"
is a pass of `pyarrow.csv.open_csv` over all columns without storing them. Exit status 1 if reading takes more than 3
times as long, or a gigabyte of memory. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Launches and name lengths of the 46 kernels of a ResNet-18.
LAUNCHES = [1] * 26 + [2] * 6 + [3] * 4 + [4, 7, 9, 11, 15, 15, 17, 19, 20, 68]
LENGTHS = [71, 90, 104, 118, 130, 141, 152, 170, 196, 233, 280, 350, 520, 1404]
LEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name",'
PLACE = '"Context","Stream","Block Size","Grid Size","Device","CC",'
LONG = '"Section Name","Metric Name","Metric Unit","Metric Value"'
RULE = ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'

THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
METRICS = [  # name, unit, largest value
    ("dram__bytes.sum", "byte", 10**8),
    ("gpu__time_duration.sum", "nsecond", 10**6),
    ("l1tex__t_bytes.sum", "byte", 10**9),
    ("lts__t_bytes.sum", "byte", 10**9),
    ("sm__cycles_elapsed.avg", "cycle", 10**6),
    ("sm__inst_executed_pipe_tensor.sum", "inst", 10**6),
    *((THREADS.format(op), "inst", 10**9) for op in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma")),
]
SHAPE, RATIO = -1, -2  # SHAPE: metrics of the kernel rather than of the launch; RATIO: numbers with decimals
RAW_METRICS = [
    ("dram__bytes_read.sum", "byte", 10**8),
    ("dram__bytes_write.sum", "byte", 10**8),
    ("gpu__time_duration.sum", "nsecond", 10**6),
    *((f"launch__{which}_dim_{axis}", "block", SHAPE) for which in ("block", "grid") for axis in "xyz"),
    ("launch__registers_per_thread", "register/thread", SHAPE),
    *((f"launch__occupancy_limit_{i}", "block", 64) for i in range(22)),
    ("launch__waves_per_multiprocessor", "", RATIO),
    *((f"nvlink__link_{i}", "", 0) for i in range(18)),
    *((f"profiler__replayer_bytes_{i}.sum", "byte", 10**9) for i in range(11)),
    ("sm__maximum_warps_avg_per_active_cycle", "warp", 64),
    ("sm__maximum_warps_per_active_cycle_pct", "%", RATIO),
    *((THREADS.format(op), "inst", 10**9) for op in ("fadd", "ffma", "fmul")),
]
ATTRIBUTES = {
    "device__attribute_display_name": "NVIDIA A100-SXM4-40GB",
    "device__attribute_compute_capability_major": "8",
    "device__attribute_compute_capability_minor": "0",
    "device__attribute_multiprocessor_count": "108",
    "device__attribute_l2_cache_size": "41943040",
    "device__attribute_total_memory": "42409000960",
    "device__attribute_global_memory_bus_width": "5120",
    "device__attribute_max_mem_frequency_khz": "1215000",
    "device__attribute_max_gpu_frequency_khz": "1410000",
    **{f"device__attribute_other_{i}": str(i * 977) for i in range(141)},
}
ADVICE = [("SpeedOfLight", 170), ("Memory", 340), ("SchedulerStats", 800), ("Occupancy", 220)]  # and its length
COUNTED = ("byte", "inst", "nsecond", "cycle", "register/thread")
DETAILS = [  # section, label, unit; the sections of a details page
    *(("Command line profiler metrics", name, unit) for name, unit, _ in METRICS[:5] + METRICS[6:9]),
    ("Command line profiler metrics", "flop_count_sp.sum", ""),
    ("GPU Speed Of Light Throughput", "DRAM Frequency", "Ghz"),
    ("GPU Speed Of Light Throughput", "SM Frequency", "Ghz"),
    ("GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle"),
    ("GPU Speed Of Light Throughput", "Memory Throughput", "%"),
    *(("GPU Speed Of Light Throughput", f"Throughput {i}", "%") for i in range(6)),
    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s"),
    *(("Memory Workload Analysis", f"Hit Rate {i}", "%") for i in range(6)),
    *(("Scheduler Statistics", f"Warps Per Scheduler {i}", "warp") for i in range(5)),
    *(("Occupancy", f"Block Limit {i}", "block") for i in range(11)),
    ("Occupancy", "Achieved Occupancy", "%"),
    ("Launch Statistics", "Registers Per Thread", "register/thread"),
]


def names(draw: random.Random) -> list[str]:
    """46 synthetic kernel names with nested templates, as long as real ones."""
    kernel_names = []
    for i in range(len(LAUNCHES)):
        name = f"void library{i}::implicit_gemm_kernel<"
        length = LENGTHS[i % len(LENGTHS)]
        while len(name) < length - 30:
            name += f"library{i}::Tile<float, {draw.choice((16, 32, 64, 128))}, (bool){draw.randrange(2)}>, "
        kernel_names.append((name + f"{i}>(T1 *, const T2 *, int)").ljust(length, "_"))
    return kernel_names


def rows(layout: str, seed: int = 0) -> Iterator[str]:
    """The header (and the units), then the rows of launches, without end."""
    draw = random.Random(seed)
    kernels = names(draw)
    shapes = [[[str(2 ** draw.randrange(11)) for _ in range(7)] for _ in range(draw.randint(1, 4))] for _ in kernels]
    share, launch = draw.random, 0

    def value(most: int) -> str:
        return f"{share() * 100:.2f}" if most == RATIO else str(int(share() ** 3 * most))

    def printed(unit: str) -> str:  # as on the details page
        return f"{int(share() ** 3 * 10**7):,}" if unit in COUNTED else f"{share() * 1000:.2f}"

    columns = [*ATTRIBUTES, *(name for name, _, _ in RAW_METRICS)]
    device = "".join(f'"{value}",' for value in ATTRIBUTES.values())
    if layout == "raw":
        yield LEAD + '"Kernel Time","Context","Stream",' + ",".join(f'"{name}"' for name in columns) + "\n"
        units = ["" for _ in range(8 + len(ATTRIBUTES))] + [unit for _, unit, _ in RAW_METRICS]
        yield ",".join(f'"{unit}"' for unit in units) + "\n"
    else:
        yield LEAD + PLACE + LONG + (RULE if layout == "details" else "") + "\n"
    while True:
        which = draw.choices(range(len(kernels)), LAUNCHES)[0]
        name, shape = kernels[which], draw.choice(shapes[which])
        lead = f'"{launch}","3549","python3.9","127.0.0.1","{name}",'
        place = f'"1","7","({", ".join(shape[:3])})","({", ".join(shape[3:6])})","0","8.0",'
        if layout == "raw":
            size = iter(shape)
            values = (next(size) if most == SHAPE else value(most) for _, _, most in RAW_METRICS)
            yield f'{lead}"2024-Nov-17 16:37:52","1","7",{device}"' + '","'.join(values) + '"\n'
        elif layout == "metrics":
            start = f'{lead}{place}"Command line profiler metrics","'
            yield "".join(f'{start}{metric}","{unit}","{value(most)}"\n' for metric, unit, most in METRICS)
        else:
            start = lead + place
            yield "".join(
                f'{start}"{section}","{label}","{unit}","{"n/a" if label.startswith("flop") else printed(unit)}",\n'
                for section, label, unit in DETAILS
            )
            for section, length in ADVICE:
                text = "This kernel " + ('""waits"" ' if share() < 0.05 else "") + "for its operands. " * (length // 18)
                yield f'{start}"{section}","","","","Bottleneck","OPT","{text}","global","{share() * 90:.2f}"\n'
        launch += 1


def write(path: Path, layout: str, size: float) -> None:
    """Write a file of about `size` bytes: output of the program and of ncu, then the table."""
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("==PROF== Connected to process 3549 (/usr/bin/python3.9)\nloss 2.31\n")
        for part in rows(layout):
            written += file.write(part)
            if written > size:
                break
        file.write("==PROF== Disconnected from process 3549\n")


# --- Timing ----------------------------------------------------------------------------------------------------

BARE = """
import pyarrow.csv as csv
with open(FILE) as file:
    names = next(line for line in file if line.startswith('"ID"')).strip().strip('"').split('","')
if "Rule Name" in names:
    names = names[:15] + [""]  # rows of metrics; those of rules, which are longer, are skipped
where = csv.ReadOptions(column_names=names, skip_rows=3)
START()
for batch in csv.open_csv(FILE, where, csv.ParseOptions(invalid_row_handler=lambda row: "skip")):
    pass
"""
READ = """
from roofmodel.profiles import reading
from roofmodel.roofline.points import group
START()
assert group(reading.read([FILE]).kernels, "name")
"""
ROOF = """
from roofmodel.cli import app
START()
app(["{}", FILE, "--hw", "a100-sxm-40gb", *{}], standalone_mode=False)
"""
MEASURE = """
import resource, sys, time
FILE, start_times = sys.argv[1], []
START = lambda: start_times.append(time.perf_counter())
{}
print(time.perf_counter() - start_times[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
PASSES = {
    "bare": BARE,
    "read": READ,
    "roof kernels": ROOF.format("kernels", []),
    "roof plot": ROOF.format("plot", ["-o", "points.json"]),
}
MAX_TIME_RATIO, MAX_MEGABYTES = 3.0, 1000  # limits: times the bare pass; MB


def measured(program: str, file: Path) -> tuple[float, float]:
    """Seconds and peak MB of a pass over a file, in a separate process."""
    command = [sys.executable, "-c", MEASURE.format(program), str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=file.parent)
    seconds, megabytes = done.stdout.splitlines()[-1].split()
    return float(seconds), float(megabytes)


def compare(layout: str, file: Path, runs: int) -> bool:
    """Print a line per pass, with medians of interleaved runs; returns whether reading is within the limits."""
    measurements: dict[str, list[tuple[float, float]]] = {name: [] for name in PASSES}
    for _ in range(runs):
        for name, program in PASSES.items():
            measurements[name].append(measured(program, file))
    seconds = {name: statistics.median(time for time, _ in each) for name, each in measurements.items()}
    memory = {name: max(size for _, size in each) for name, each in measurements.items()}
    for name in PASSES:
        ratio = seconds[name] / seconds["bare"]
        print(f"{layout:<8} {name:<13} {seconds[name]:6.2f} s  {ratio:5.2f} x bare  {memory[name]:5.0f} MB")
    return seconds["read"] <= MAX_TIME_RATIO * seconds["bare"] and memory["read"] <= MAX_MEGABYTES


def main() -> int:
    """Write and measure; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", nargs="*", default=["raw", "details", "metrics"], help="raw, details or metrics")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", type=Path, help="write the file there, and measure nothing")
    arguments = parser.parse_args()
    size = arguments.gigabytes * 1e9
    if arguments.write:
        write(arguments.write, arguments.layout[0], size)
        return 0
    results = []
    for layout in arguments.layout:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{layout}.csv")
            write(file, layout, size)
            results.append(compare(layout, file, arguments.runs))
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
