"""A device without a file, from the attributes that a profile records, and its YAML file.

The peaks are SMs x clock x operations per clock and SM of the compute capability. A profile does not tell the bandwidth
of L2, the links and what the power limit allows: these are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level, Pipe
from roofmodel.numbers import units

SOURCE = "file"
SOURCES = {
    "guide": "rates of the compute capability: CUDA C++ Programming Guide, and NVIDIA's architecture whitepapers",
    SOURCE: "attributes in the profile",
}
_VOLTA = {"fp32": 128, "fp64": 64, "fp16": 256, "tensor_fp16": 1024}
_AMPERE = {
    "fp32": 128, "fp64": 64, "fp16": 512, "bf16": 256, "tensor_fp16": 2048, "tensor_bf16": 2048, "tensor_tf32": 1024,
    "tensor_int8": 4096, "tensor_fp64": 128,
}  # fmt: skip
_SMALL_AMPERE = {
    "fp32": 256, "fp64": 4, "fp16": 256, "tensor_fp16": 1024, "tensor_bf16": 1024, "tensor_tf32": 512,
    "tensor_int8": 2048,
}  # fmt: skip
_ADA = _SMALL_AMPERE | {"tensor_fp8": 2048}
_HOPPER = {
    "fp32": 256, "fp64": 128, "fp16": 512, "bf16": 512, "tensor_fp16": 4096, "tensor_bf16": 4096, "tensor_tf32": 2048,
    "tensor_fp8": 8192, "tensor_int8": 8192, "tensor_fp64": 256,
}  # fmt: skip
_BLACKWELL = {
    "fp32": 256, "fp64": 128, "tensor_fp16": 8192, "tensor_bf16": 8192, "tensor_tf32": 4096, "tensor_fp8": 16384,
    "tensor_fp4": 32768, "tensor_int8": 16384,
}  # fmt: skip
PER_CLOCK: Mapping[str, Mapping[str, int]] = {
    "5.0": {"fp32": 256, "fp64": 8},
    "5.2": {"fp32": 256, "fp64": 8},
    "5.3": {"fp32": 256, "fp64": 8, "fp16": 512},
    "6.0": {"fp32": 128, "fp64": 64, "fp16": 256},
    "6.1": {"fp32": 256, "fp64": 8, "fp16": 4},
    "6.2": {"fp32": 256, "fp64": 8, "fp16": 512},
    "7.0": _VOLTA,
    "7.2": _VOLTA | {"tensor_int8": 2048},
    "7.5": {"fp32": 128, "fp64": 4, "fp16": 256, "tensor_fp16": 1024, "tensor_int8": 2048},
    "8.0": _AMPERE,
    "8.6": _SMALL_AMPERE,
    "8.7": _AMPERE | {"fp32": 256, "fp64": 4, "fp16": 256, "tensor_fp64": 0},
    "8.9": _ADA,
    "9.0": _HOPPER,
    "10.0": _BLACKWELL,
    "10.3": _BLACKWELL | {"fp64": 4, "tensor_fp4": 49152, "tensor_int8": 512},
    "11.0": _BLACKWELL | {"fp64": 0, "tensor_int8": 0},
    "12.0": _ADA | {"tensor_fp4": 4096},
    "12.1": _ADA | {"tensor_fp4": 4096},
}
"""Dense FLOP per clock and SM by compute capability and pipe, two for each multiply-add: CUDA C++ Programming Guide,
"Throughput of Native Arithmetic Instructions"; for tensor cores NVIDIA's architecture whitepapers."""
GENERATIONS = {
    "5": "Maxwell", "6": "Pascal", "7": "Volta", "7.5": "Turing", "8": "Ampere", "8.9": "Ada", "9": "Hopper",
    "10": "Blackwell", "11": "Blackwell", "12": "Blackwell",
}  # fmt: skip
HALF_RATE = ("tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_fp8")
"""Pipes of GeForce cards that run at half the rate, since frameworks accumulate in fp32."""
_GEFORCE = re.compile(r"geforce", re.IGNORECASE)
_A10G = re.compile(r"\bA10G\b")
_WITHOUT_TENSOR_CORES = re.compile(r"\bGTX\b|\bMX\d", re.IGNORECASE)


def per_clock(compute_capability: str, name: str) -> dict[str, int]:
    """Dense FLOP per clock and SM of each pipe; empty for a compute capability that is not in the table."""
    rates = {pipe: rate for pipe, rate in PER_CLOCK.get(compute_capability, {}).items() if rate}
    if _WITHOUT_TENSOR_CORES.search(name):
        return {pipe: rate for pipe, rate in rates.items() if not pipe.startswith("tensor_")}
    if _A10G.search(name):  # all tensor pipes at half the rate of an A10
        return {pipe: rate // 2 if pipe.startswith("tensor_") else rate for pipe, rate in rates.items()}
    if _GEFORCE.search(name):
        return {pipe: rate // 2 if pipe in HALF_RATE else rate for pipe, rate in rates.items()}
    return rates


def derived(
    name: str,
    compute_capability: str,
    multiprocessors: int,
    clock: float,
    dram_bandwidth: float,
    dram_bytes: int | None = None,
    l2_bytes: int | None = None,
) -> Device | None:
    """The device with these attributes, in base units; None for a compute capability that is not in the table."""
    rates = per_clock(compute_capability, name)
    if not rates:
        return None
    major = compute_capability.partition(".")[0]
    pipes = {
        pipe: Pipe(pipe, multiprocessors * clock * rate, rate, clock, _accumulator(pipe), "guide")
        for pipe, rate in rates.items()
    }
    levels = {"dram": Level("dram", dram_bandwidth, dram_bytes, source=SOURCE)}
    if l2_bytes:
        levels["l2"] = Level("l2", None, l2_bytes, source=SOURCE)
    return Device(
        id=re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-"),
        name=name,
        pipes=pipes,
        levels=levels,
        vendor="NVIDIA",
        generation=GENERATIONS.get(compute_capability, GENERATIONS[major]),
        compute_capability=compute_capability,
        multiprocessors=multiprocessors,
        clocks={"boost": clock},
        sources=SOURCES,
    )


def _accumulator(pipe: str) -> str:
    name = pipe.removeprefix("tensor_")
    if not pipe.startswith("tensor_") or name == "fp64":
        return name
    return "int32" if name == "int8" else "fp32"


def device_yaml(device: Device) -> str:
    """The YAML file of a derived device."""
    return "\n".join(_lines(device))


def _lines(device: Device) -> Iterator[str]:
    yield f"# {device.name}, from the attributes in a profile. Compare the numbers with the datasheet."
    from roofmodel.devices.calibration_writer import quoted

    yield f"name: {quoted(device.name)}"
    yield f"vendor: {device.vendor}"
    yield f"generation: {device.generation}"
    yield f'compute_capability: "{device.compute_capability}"'
    yield f"multiprocessors: {device.multiprocessors}"
    yield f"clocks: {{boost: {device.clocks['boost'] / 1e6:.10g} MHz}}"
    yield "pipes:"
    for name, pipe in device.pipes.items():
        yield (
            f"  {name}: {{peak: {units.si(pipe.peak, 'FLOP/s', 6)}, per_multiprocessor: {pipe.per_multiprocessor} "
            f"FLOP/clock, clock: boost, accumulator: {pipe.accumulator}}}"
        )
    yield "memory:"
    dram = device.levels["dram"]
    capacity = f"capacity: {dram.capacity} B, " if dram.capacity else ""
    yield f"  dram: {{{capacity}bandwidth: {device.bandwidth / 1e9:.10g} GB/s, source: {SOURCE}}}"
    if "l2" in device.levels:
        yield f"  l2: {{capacity: {device.levels['l2'].capacity} B, source: {SOURCE}}}"
    yield "source: guide  # of every number that does not name another one"
    yield "sources:"
    for name, text in device.sources.items():
        yield f"  {name}: {quoted(text)}"
