"""Tables in Nsight Compute's layouts, written by hand."""

import io
from typing import BinaryIO

from roofmodel.profiles import signatures
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.profiles.ncu import reader as ncu
from roofmodel.profiles.timelines.kernels import profile

LEAD = '"ID","Process ID","Process Name","Host Name",'
NEW = '"Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
HEADER = LEAD + NEW + ',"Section Name","Metric Name","Metric Unit","Metric Value"\n'
RULES = ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'


def launch(number=0, name="gemm", process=11, cc="8.0") -> str:
    return f'"{number}","{process}","python3","secret-host","{name}","1","7","(256, 1, 1)","(64, 2, 1)","0","{cc}"'


def row(metric: str, unit: str, value: str, number=0, section="Command line profiler metrics", **who) -> str:
    return f'{launch(number, **who)},"{section}","{metric}","{unit}","{value}"\n'


def read(text: str | bytes, generation: str | None = None) -> Profile:
    data = text if isinstance(text, bytes) else text.encode()
    assert signatures.ncu(data[: 1 << 20])
    return read_file(io.BytesIO(data), "file.csv", generation)


def read_file(stream: BinaryIO, name: str, generation: str | None = None) -> Profile:
    return profile(ncu.read_all([(stream, name)], generation))


def only(text: str | bytes, generation: str | None = None) -> Kernel:
    (kernel,) = read(text, generation).kernels
    return kernel


# What ncu prints for people.

PRINT = (
    "==PROF== Connected to process 11 (/home/someone/bin/python3)\n"
    "step 1, loss 2.29\n"
    '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 1 pass\n'
    "==PROF== Disconnected from process 11\n"
    "[11] python3@secret-host\n"
)
PRINT_RULE = "    ------------------------------ ----------- ------------\n"
PRINT_TABLE = f"{PRINT_RULE}    Metric Name                    Metric Unit Metric Value\n{PRINT_RULE}"
_WHERE = " (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 7.0"


def printed(name: str, *rows: str, where: str = _WHERE, table: str = PRINT_TABLE) -> str:
    lines = "".join(f"    {row}\n" for row in rows)
    return f"  {name}{where}\n    Section: Command line profiler metrics\n{table}{lines}{PRINT_RULE}\n"
