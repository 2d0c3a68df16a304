"""A small handwritten file of every layout: the seeds of the fuzzer."""

from __future__ import annotations

import gzip

from roofmodel.profiles.signatures import NCU_REPORT
from tests.profiles import test_nsys, test_nvprof, test_rocprof, test_rocprof_database, test_torch_trace
from tests.profiles.ncu import samples as ncu
from tests.profiles.ncu import test_reader as test_ncu

_BYTES, _TIME = "dram__bytes.sum", "gpu__time_duration.sum"
_FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def _long(number: str = "1,012,583.25") -> str:
    """Three launches of two kernels."""
    rows = "".join(
        ncu.row(metric, unit, value.replace("7", str(i)), i, name=f"void gemm<{i % 2}, float>(float *)")
        for i in range(3)
        for metric, unit, value in ((_BYTES, "Kbyte", number), (_TIME, "us", "41"), (_FMA, "inst", "1000"))
    )
    return f"==PROF== Connected to process 11\n{ncu.HEADER}{rows}"


def _wide() -> str:
    """A launch inside a range, and an attribute of its device."""
    head = f"{ncu.LEAD}{test_ncu.PUSH},{test_ncu.START},{ncu.NEW}"
    name = '"gemm"'
    ranges = f'"11  ""<default domain>:step{test_ncu.TAIL}"" ","",'
    header = f'{head},"{_BYTES}","{_TIME}","device__attribute_multiprocessor_count"\n'
    units = '"",' * (header.count(",") - 2) + '"Mbyte","us",""\n'
    return header + units + ncu.launch().replace(name, ranges + name) + ',"1,012.58","41.60","108"\n'


_BARE = (
    "ID,Process ID,Process Name,Host Name,Kernel Name,Metric Name,Metric Unit,Metric Value\n"
    '0,11,app,host,"gemm<a, b>",dram__bytes.sum,byte,"12,582,912"\n'
    '1,11,app,host,"gemm<a, b>",dram__bytes.sum,byte,"12,582,913"\n'
    "2,11,app,host,copy,gpu__time_duration.sum,ns,4160\n"
)
_SUMMARY = (
    test_ncu.SUMMARY + test_ncu.mean(_TIME, "us", "41.60") + test_ncu.mean(_BYTES, "byte", "1,024.50", name="copy")
)
_METRICS = test_nvprof.METRICS + (
    '"Tesla K20c (0)","sum<int=4>(float*)",2,"flop_count_sp","Floating Point Operations(Single Precision)",7,9,8\n'
    '"Tesla K20c (0)","sum<int=4>(float*)",2,"dram_read_bytes","Total bytes read from DRAM to L2 cache",1KB,3KB,2KB\n'
    '"Tesla K20c (0)","sum<int=4>(float*)",2,"dram_write_bytes","Total bytes written from L2 cache to DRAM",0B,8B,4B\n'
)
_DETAILS = """==PROF== Connected to process 11
  saxpy (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Duration                         us        41.60
"""

TEXTS: dict[str, str] = {
    "ncu-long": _long(),
    "ncu-long-european": _long("1.012.583,25"),
    "ncu-bare": _BARE,
    "ncu-wide": _wide(),
    "ncu-summary": _SUMMARY,
    "ncu-merged": _long() + _SUMMARY,
    "ncu-details": _DETAILS,
    "nvprof-trace": test_nvprof.TRACE,
    "nvprof-summary": test_nvprof.SUMMARY,
    "nvprof-metrics": _METRICS,
    "nvprof-text-trace": test_nvprof.TEXT_TRACE,
    "nvprof-text-summary": test_nvprof.TEXT_SUMMARY,
    "nvprof-text-metrics": test_nvprof.TEXT_METRICS,
    "nsys-summary": test_nsys.SUM,
    "nsys-trace": test_nsys.GPU_TRACE,
    "nsys-launches": test_nsys.EXEC,
    "rocprof-trace": test_rocprof.TRACE,
    "rocprof-copies": test_rocprof.COPIES,
    "rocprof-counters": test_rocprof.counters((1, "FETCH_SIZE", 10), (1, "SQ_INSTS_VALU_MFMA_MOPS_F16", 20)),
    "rocprof-compute": test_rocprof.workload()["pmc_perf.csv"],
    "rocprof-compute-system": test_rocprof.workload()["sysinfo.csv"],
    "torch": test_torch_trace.SAMPLE.decode(),
}
SEEDS: dict[str, bytes] = {name: text.encode() for name, text in TEXTS.items()} | {
    "ncu-long-utf16": _long().encode("utf-16"),
    "ncu-rep": NCU_REPORT + b"\2\0\0\0\x08\x01",
    "nsys-sqlite": test_nsys.SQLITE,
    "rocpd": test_rocprof_database.SQLITE,
    "rpd": test_rocprof_database.RPD_SQLITE,
    "torch-gzip": gzip.compress(test_torch_trace.SAMPLE, mtime=0),
}
