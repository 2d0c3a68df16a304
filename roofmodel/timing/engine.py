"""Expected times of operators as serving engines run them: captured in a graph, with neighboring operators fused.

Engines and compilers (TensorRT-LLM, vLLM, torch.compile) launch fewer kernels than a model has operators. Only the
fusions that all of them apply are counted:

- GEMMs with the same input, such as queries, keys and values, or gate and up, run as one GEMM with all their columns.
- Where GEMMs compute in a narrower format than `--activations`, the previous kernel writes their input in that format.
- Residual adds and rotary embedding run inside a neighboring kernel: they cost their bytes and no launch.

`trtllm-0.9` is TensorRT-LLM 0.9 (2024), whose kernels differ in three ways (`_decode_by_head`, `_two_shot`,
`uses_older_gemms`).

Every other operator is a kernel of its own. Collectives are NCCL's: with the parameters of engines' own all-reduces,
which are a few microseconds faster, expected times of models on several GPUs are not closer to the measurements
(`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.devices.transfer import transferred
from roofmodel.numbers.algebra import Number, either, minimum
from roofmodel.timing import attention
from roofmodel.timing.formula import PORT, chip
from roofmodel.timing.layer_kernels import is_decode
from roofmodel.timing.links import route
from roofmodel.timing.roofline import Placement
from roofmodel.timing.stream import stream_kind
from roofmodel.timing.timing import (
    Expected,
    Formula,
    clamp_to_bound,
    expect,
    merged_gemms,
)


class Fused(NamedTuple):
    """How an engine runs an operator: the expected time of one occurrence, and the formula of its kernel.

    `merged` names the operators of a merged GEMM; this operator has `columns` = (own, all) of it. An `absorbed`
    operator runs inside a neighboring kernel. `formula` is None where the operator's own formula applies.
    """

    expected: Expected | None
    formula: Formula | None = None
    merged: tuple[str, ...] = ()
    columns: tuple[Number, Number] = (1, 1)
    absorbed: bool = False


SHARED_GROUP = 8
"""The number of query heads per key-value head for which TensorRT-LLM 0.9 has a kernel that shares the reads: its XQA
kernels support no other groups without beams (decoderXQARunner.h: nbQHeadsPerKV is 8 or 1)."""
BYTES_PER_CLOCK, ELEMENTS_PER_CLOCK = 34, 38
"""Bytes that its other decode kernel reads, and elements that it converts and multiplies, per clock and SM. From the
decode steps of Falcon-180B (29 query heads per key-value head) on A100, H100 and H200, in fp16 and fp8."""
BY_HEAD_INTERVAL = 0.92, 1.13
"""10th and 90th percentile of measured / expected time of this kernel in the decode steps that its constants come from
and of which it takes more than 30 %."""
OLDER_GEMMS = "a100-sxm-80gb"
"""The device whose GEMM parameters, at the datasheet's rates of the Hopper GPU, describe 16-bit GEMMs of TensorRT-LLM
0.9 on one Hopper GPU: kernels with the instructions of Ampere. Not from its sources. Published rows of GPT-J 6B and
Mistral 7B on an H100 show it: with these parameters, the decode steps of both have a bias of +5 % (-13 % with the
H100's), and Mistral's prefill of +6 % (-22 %). Falcon-180B on 8 H100s, in the same release, matches the H100's own
parameters."""
HALF = ("fp16", "bf16")
"""The formats whose GEMMs in TensorRT-LLM 0.9 use the parameters of OLDER_GEMMS."""
TWO_SHOT_PASS_BYTES = 24 * 1024 * 16
"""Bytes of one GPU's part in a pass of its two-shot all-reduce: 24 blocks (customAllReduceKernels.h) of 1024 threads
with 16 bytes each. Versions differ in the threads (512 or 1024); Falcon's steps become slow between 237 and 475 kB."""
MAX_CUSTOM_BYTES = 8_000_000
"""Largest message of its own all-reduces on more than two GPUs; NCCL reduces larger ones (customAllReduceUtils.h)."""
TWO_SHOT_SECONDS = 36.5e-6
"""Seconds per GPU that a two-shot all-reduce of several passes takes longer than NCCL's, from steps of Falcon-180B. The
maintainers disabled it later because of performance issues (allreducePlugin.cpp). The cause is not known."""
TWO_SHOT_INTERVAL = 0.97, 1.27
"""As BY_HEAD_INTERVAL, of the all-reduces in these decode steps."""


def fused(
    operators: Iterable[Operator], placed: Iterable[Placement], device: Device, dtype: str, engine: str = "current"
) -> Iterator[Fused]:
    """How an engine runs each operator, in order.

    Merged GEMMs share their time by columns. An absorbed operator takes its bound, at most its time as a kernel of its
    own.
    """
    operators = tuple(operators)
    older = _gemm_device(device) if uses_older_gemms(operators, device, dtype, engine) else device
    for _, run in groupby(zip(operators, placed, strict=True), key=lambda pair: _input(pair[0])):
        several, bounds = zip(*run, strict=True)
        gemm_device = older if several[0].compute_dtype(dtype) in HALF else device
        if several[0].kind == "gemm" and (one := merged_gemms(several, gemm_device, dtype)):
            yield from _shares(several, bounds, *one)
            continue
        for operator, bound in zip(several, bounds, strict=True):
            time, absorbed = expect(operator, device, dtype, placed=bound), _is_absorbed(operator)
            if time and engine == "trtllm-0.9":
                time = _two_shot(operator, device, _decode_by_head(operator, device, dtype, time))
            if time and absorbed:
                least = minimum(time.value, bound.bound_seconds)  # the bound, where an expected time is known
                time = Expected(least, least, time.high)
            yield Fused(time, absorbed=absorbed)


def uses_older_gemms(operators: Iterable[Operator], device: Device, dtype: str, engine: str) -> bool:
    """Whether GEMMs use the parameters of OLDER_GEMMS: those of TensorRT-LLM 0.9 on one Hopper GPU in 16 bits.

    `dtype` is the format of the GEMMs to which no other format applies (`Operator.compute_dtype`).
    """
    if engine != "trtllm-0.9" or device.calibration is None or not is_hopper(device):
        return False
    operators = tuple(operators)
    gemms = (operator for operator in operators if operator.kind == "gemm")
    on_one_gpu = not any(operator.kind == "communication" for operator in operators)
    return on_one_gpu and any(operator.compute_dtype(dtype) in HALF for operator in gemms)


def is_hopper(device: Device) -> bool:
    """Whether the device has NVIDIA's Hopper architecture: compute capability 9.0."""
    return (device.compute_capability or "").startswith("9.")


def _gemm_device(device: Device) -> Device:
    """The calibrated device with the GEMM parameters of OLDER_GEMMS."""
    assert device.calibration is not None
    gemms = transferred(device, Device.load(OLDER_GEMMS), ("gemm",)).gemm
    others = {
        name: tuple(kind for kind in kinds if kind != "gemm") for name, kinds in device.calibration.transferred.items()
    }
    sources = {**others, OLDER_GEMMS: (*others.get(OLDER_GEMMS, ()), "gemm")}
    return replace(device, calibration=device.calibration._replace(transferred=sources, gemm=gemms))


def _decode_by_head(operator: Operator, device: Device, dtype: str, time: Expected) -> Expected:
    """The time of a decode attention with a block per query head, where no kernel shares the reads of a group.

    Each block reads its keys and values from L2 and multiplies them on the CUDA cores.
    """
    ceilings = chip(device, dtype)
    if operator.kind != "attention" or "t:s" not in operator.sizes or ceilings is None:
        return time
    if not is_decode(operator):
        return time
    work = attention.work(operator)
    width = operator.widths.kv.bits / 8
    per_element = width / BYTES_PER_CLOCK + work.queries / ELEMENTS_PER_CLOCK
    clocks = work.heads / work.kv_heads * work.kv_bytes / width * per_element
    shares = (work.heads == SHARED_GROUP * work.kv_heads) | (work.heads == work.kv_heads)
    by_head = either(shares, 0.0, clocks * PORT / ceilings.port)
    return _at_least(time, by_head, BY_HEAD_INTERVAL)


def _two_shot(operator: Operator, device: Device, time: Expected) -> Expected:
    """The time of an all-reduce over NVLink, with the two-shot kernel for messages of several passes."""
    collective = operator.collective
    path = route(collective, device) if collective and collective.name == "all_reduce" else None
    if collective is None or path is None or any(link.parameters != "any" for link in path.links(device)):
        return time
    size = operator.writes[0].elements(operator.sizes) * operator.widths.dtype.bits / 8
    own = (collective.gpus > 2) * (size <= MAX_CUSTOM_BYTES) * (size > TWO_SHOT_PASS_BYTES * collective.gpus)
    extra = own * TWO_SHOT_SECONDS * collective.gpus
    low, high = TWO_SHOT_INTERVAL
    return time + Expected(extra, low * extra, high * extra)


def _at_least(time: Expected, seconds: Number, interval: tuple[float, float]) -> Expected:
    """The time, or `seconds` with this relative interval where that is longer."""
    low, high = interval
    longer = seconds > time.value
    return Expected(*map(partial(either, longer), (seconds, low * seconds, high * seconds), time))


def _shares(
    operators: Sequence[Operator], bounds: Sequence[Placement], one: Formula, columns: Sequence[Number]
) -> Iterator[Fused]:
    """The share of each operator in a merged GEMM; a single GEMM has all of it."""
    names, every = tuple(operator.name for operator in operators), sum(columns)
    for bound, own in zip(bounds, columns, strict=True):
        if len(operators) == 1:
            yield Fused(clamp_to_bound(one.seconds, one.fit, bound.bound_seconds), one)
        else:
            share = clamp_to_bound(one.seconds * own / every, one.fit, bound.bound_seconds)
            yield Fused(share, one, names, (own, every))


def _input(operator: Operator) -> object:
    """A key that is equal for GEMMs that are merged: same input, layers and stage; unique for any other operator."""
    if operator.kind != "gemm" or operator.gemm is None:
        return id(operator)
    return operator.lines[0].factors[0], operator.layers, operator.stage, operator.multiplies_unconverted_weights


def _is_absorbed(operator: Operator) -> bool:
    return operator.kind == "elementwise" and stream_kind(operator) in ("add", "rotary")
