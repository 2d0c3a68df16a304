"""Tables in Nsight Compute's layouts, written by hand."""

import io

from roofmodel.profiles import ncu
from roofmodel.profiles.kernel import Kernel, Profile

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
    assert ncu.recognise(data[: 1 << 20])
    return ncu.read(io.BytesIO(data), "file.csv", generation)


def only(text: str | bytes, generation: str | None = None) -> Kernel:
    (kernel,) = read(text, generation).kernels
    return kernel
