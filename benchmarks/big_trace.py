"""Reading of a PyTorch trace of a gigabyte with `roof trace`: memory, and time compared with ijson alone.

    python benchmarks/big_trace.py                     one gigabyte
    python benchmarks/big_trace.py --gigabytes 0.1
    python benchmarks/big_trace.py --write big.json    only write the file

The trace has the structure of real ones: per kernel an operator with its shapes, a launch and the kernel with its
arguments; a step mark, a data loader and a copy per step. "Bare" is a pass of ijson that builds every event and drops
it. Exit status 1 if `roof trace` needs one gigabyte of memory, or more than 2.5 times the time. Needs ijson.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KERNELS = 900  # per step, as in a step of ResNet-50
NAMES = [
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>",
    "volta_scudnn_128x128_stridedB_splitK_small_nn_v1",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*)",
    "ampere_sgemm_128x64_nt",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
]
MAX_BYTES, MAX_RATIO = 1 << 30, 2.5
BARE = "import ijson, sys; [None for _ in ijson.items(open(sys.argv[1], 'rb'), 'traceEvents.item')]"


def events() -> Iterator[dict[str, object]]:
    """The events of endless training steps; times in microseconds with three decimals."""
    random.seed(7)
    now, number = 1.7e15, 0
    for step in range(1 << 30):
        start = now
        yield event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, 4000, 42, 42)
        now += 4000
        for _ in range(KERNELS):
            number += 1
            duration = random.uniform(5, 300)
            shapes = [[32, 256, 56, 56], [256, 256, 3, 3], [], []]
            yield event("cpu_op", "aten::convolution", now, 20, 42, 42, **{"External id": number, "Input Dims": shapes})
            yield event("cuda_runtime", "cudaLaunchKernel", now + 5, 6, 42, 42, correlation=number, cbid=211)
            yield event(
                "kernel", random.choice(NAMES), now + 30, duration, 0, 7, device=0, context=1, stream=7,
                correlation=number, grid=[512, 2, 1], block=[256, 1, 1], **{
                    "External id": number, "registers per thread": 64, "shared memory": 16384, "blocks per SM": 6.4,
                    "warps per SM": 51.2, "est. achieved occupancy %": 62, "queued": 0,
                },
            )  # fmt: skip
            now += duration + random.uniform(31, 40)
        yield event("user_annotation", f"ProfilerStep#{step}", start, now - start, 42, 42)


def event(category: str, name: str, start: float, duration: float, process: int, thread: int, **args: object):
    """A complete event."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": round(start, 3),
        "dur": round(duration, 3), "args": args,
    }  # fmt: skip


def write(path: Path, size: int) -> int:
    """Write a trace of at least `size` bytes; the number of events."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n')
        count = 0
        for item in events():
            count += 1
            file.write(json.dumps(item))
            if file.tell() > size and item["cat"] == "user_annotation":
                break
            file.write(",\n")
        file.write("\n]}\n")
    return count


def measured(*command: str) -> tuple[float, int]:
    """Seconds and peak memory in bytes of a process."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, "
        "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    return time.monotonic() - begin, int(done.stdout) * 1024


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="Memory and time of `roof trace` on a large PyTorch trace.")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--write", type=Path, help="write the trace to this file, and do nothing else")
    arguments = parser.parse_args()
    size = int(arguments.gigabytes * 1e9)
    if arguments.write:
        print(f"{write(arguments.write, size)} events in {arguments.write}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        count = write(path, size)
        bare, _ = measured(sys.executable, "-c", BARE, str(path))
        seconds, memory = measured(sys.executable, "-m", "roofmodel", "trace", str(path))
    print(f"{size / 1e9:g} GB, {count} events: {memory / 2**30:.2f} GiB, {seconds / bare:.1f} times ijson alone")
    return int(memory > MAX_BYTES or seconds > MAX_RATIO * bare)


if __name__ == "__main__":
    sys.exit(main())
