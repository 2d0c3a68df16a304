"""The printed tables of the profiling lecture on BERT and GPT-2 (milliseconds), and nvprof files made from them.

The files contain only the values of the tables. A test that reproduces the tables from them is a regression test; it
does not show that the tool measures a real run correctly.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

GROUPS = ("custom_ops", "matrix-mul", "memory_mgmt", "other")
# (model, GPUs): for each device the four groups, as printed
TABLES = {
    ("bert", 1): ("335339.4 1263133 28986.88 715.8498",),
    ("bert", 2): (
        "146772.368932 555868.486497 42851.086556 361.785871",
        "117979.945403 530388.067268 40529.852734 348.634761",
    ),
    ("bert", 4): (
        "120595.109126 393645.783055 286238.803875 328.071178",
        "105301.398673 446267.405010 285155.661257 322.199943",
        "53997.735935 227996.473690 286778.075561 308.196831",
        "103844.068444 433988.950913 288843.178904 312.215658",
    ),
    ("gpt2", 1): ("4325.839326 6293.153052 413.665189 7.788116",),
    ("gpt2", 2): (
        "19167.726555 27676.138367 8468.581223 34.956760",
        "16166.040273 26773.880864 9594.198584 33.684987",
    ),
    ("gpt2", 4): (
        "10293.078968 14621.977590 13381.122406 18.584924",
        "9246.981013 14896.915461 10554.359265 17.572509",
        "8509.420120 14424.244212 11845.565177 18.354816",
        "8643.745200 13967.491454 11878.848118 17.727993",
    ),
}
REDUCE, BROADCAST = "ncclReduceRingLLKernel_sum_f32(ncclColl)", "ncclBroadcastRingLLKernel_copy_i8(ncclColl)"
_VECTORIZED = "void at::native::vectorized_elementwise_kernel"  # the slide cuts the names here
_UNROLLED = "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_12_cpp1_ii_"
# device, kernel, milliseconds; longest first
TOP = {
    ("bert", 1): """
        0 volta_sgemm_32x128_tn 135795.181913
        0 volta_sgemm_128x64_nt 131064.973333
        0 volta_sgemm_128x32_nn 129060.355232
        0 volta_sgemm_64x32_sliced1x4_nt 123588.278827
        0 volta_sgemm_128x32_sliced1x4_nt 122065.763288
        0 volta_sgemm_128x64_tn 118811.667719
        0 volta_sgemm_128x64_nn 118645.150663
        0 volta_sgemm_128x128_tn 118569.752818
        0 volta_sgemm_128x128_nn 117486.346398
        0 volta_sgemm_64x64_tn 57767.068455""",
    ("bert", 2): """
        0 volta_sgemm_128x64_nt 58427.206751
        0 volta_sgemm_32x128_tn 58029.424337
        0 volta_sgemm_128x32_nn 55980.616852
        1 volta_sgemm_32x128_tn 55815.426552
        0 volta_sgemm_64x32_sliced1x4_nt 55182.212475
        0 volta_sgemm_128x32_sliced1x4_nt 54869.676568
        1 volta_sgemm_128x64_nt 54861.393058
        1 volta_sgemm_128x32_nn 53836.994915
        0 volta_sgemm_128x128_nn 52516.189965
        1 volta_sgemm_64x32_sliced1x4_nt 52288.061033""",
    ("bert", 4): f"""
        0 {REDUCE} 157060.957132
        2 {REDUCE} 156335.110976
        3 {REDUCE} 155233.676953
        1 {REDUCE} 152393.073526
        1 volta_sgemm_128x64_tn 127909.728367
        2 {BROADCAST} 124997.802063
        3 {BROADCAST} 124178.124962
        1 {BROADCAST} 123168.228965
        3 volta_sgemm_128x64_tn 122592.641869
        0 {BROADCAST} 119301.788980""",
    ("gpt2", 1): f"""
        0 volta_sgemm_128x64_tn 1698.524756
        0 volta_sgemm_128x64_nn 1410.022210
        0 {_VECTORIZED}<1> 748.877009
        0 volta_sgemm_64x32_sliced1x4_nt 718.032153
        0 volta_sgemm_128x128_nt 570.040032
        0 {_VECTORIZED}<2> 502.679115
        0 volta_sgemm_32x128_tn 464.408549
        0 {_UNROLLED} 459.705535
        0 {_VECTORIZED}<3> 456.498958
        0 volta_sgemm_32x128_nn 443.851096""",
    ("gpt2", 2): f"""
        0 volta_sgemm_128x64_tn 7380.638151
        1 volta_sgemm_128x64_tn 7209.306293
        0 volta_sgemm_128x64_nn 6313.397334
        1 volta_sgemm_128x64_nn 6144.265826
        1 {BROADCAST} 3700.675143
        1 {REDUCE} 3646.061010
        0 {REDUCE} 3635.091898
        0 {BROADCAST} 3521.914578
        0 {_VECTORIZED}<1> 3223.492764
        0 volta_sgemm_64x32_sliced1x4_nt 3120.157816""",
    ("gpt2", 4): f"""
        0 {REDUCE} 5482.552254
        3 {REDUCE} 5411.964607
        2 {REDUCE} 5384.446903
        1 {REDUCE} 5303.460930
        3 {BROADCAST} 4465.193033
        2 {BROADCAST} 4452.417370
        1 {BROADCAST} 4372.958164
        0 {BROADCAST} 4208.870268
        1 volta_sgemm_128x64_tn 3991.212500
        0 volta_sgemm_128x64_tn 3975.629278""",
}
# Names of the other kernels of each group: so many that none is among the ten longest.
_REST = {
    "custom_ops": "void at::native::reduce_kernel<{}>",
    "matrix-mul": "volta_sgemm_32x32_sliced{}x4_tn",
    "memory_mgmt": "[CUDA memcpy HtoD]",
    "other": "void softmax_warp_forward<{}>",
}
_COLUMNS = (
    "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread,Static SMem,Dynamic SMem,Size,"
    "Throughput,SrcMemType,DstMemType,Device,Context,Stream,Name"
)


def groups(run: tuple[str, int]) -> list[dict[str, Decimal]]:
    """The printed groups of each device, in milliseconds."""
    return [dict(zip(GROUPS, map(Decimal, line.split()), strict=True)) for line in TABLES[run]]


def top(run: tuple[str, int]) -> list[tuple[str, str, Decimal]]:
    """The printed ten longest kernels: device, name, milliseconds."""
    found = []
    for line in TOP[run].strip().splitlines():
        device, rest = line.strip().split(" ", 1)
        name, time = rest.rsplit(" ", 1)
        found.append((device, name, Decimal(time)))
    return found


def _group(name: str) -> str:
    return "matrix-mul" if "gemm" in name else "memory_mgmt" if name.startswith("nccl") else "custom_ops"


def written(folder: Path, run: tuple[str, int]) -> str:
    """Write an nvprof GPU trace with the printed times and no gaps between kernels of a device; return its path."""
    longest = top(run)
    limit = longest[-1][2] / 2
    lines = ["==7== Profiling result:", ",".join(f'"{column}"' for column in _COLUMNS.split(","))]
    lines.append("ms,ms,,,,,,,,KB,B,MB,GB/s,,,,,,")
    for device, totals in enumerate(groups(run)):
        start = Decimal(0)
        rows = [(name, time) for owner, name, time in longest if owner == str(device)]
        for group, total in totals.items():
            rest = total - sum((time for name, time in rows if _group(name) == group), Decimal(0))
            assert rest >= 0
            copies = group == "memory_mgmt"
            parts = 1 if copies else int(rest / limit) + 1
            share = (rest / parts).quantize(Decimal("0.000001"))
            sizes = [share] * (parts - 1) + [rest - share * (parts - 1)]
            rows += [(_REST[group].format(number), size) for number, size in enumerate(sizes)]
        for name, time in rows:
            memory = ',1.0,,"Pageable","Device"' if "memcpy" in name else ",,,,"
            lines.append(f'{start},{time},,,,,,,,,{memory},"Tesla V100-SXM2-32GB-LS ({device})","1","7","{name}"')
            start += time
    path = folder / f"{run[0]}{run[1]}.csv"
    path.write_text("\n".join([*lines, ""]))
    return str(path)
