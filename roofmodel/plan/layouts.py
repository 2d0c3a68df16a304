"""Parallel layouts and number formats that a plan searches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from roofmodel.counting.tensors import FORMATS, number_format
from roofmodel.counting.workload import Parallel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import Option, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.options.workload import DEFAULTS
from roofmodel.steps.options import auto_dtype, half_with_pipe, has_pipe, runs
from roofmodel.steps.parallelism import has_experts, parallel

QUANTIZED_COMPUTE = "fp8"
"""The compute format below 16 bits that is searched without being asked for, where the device has it."""
KV_CACHE_FORMATS = ("fp8",)
"""Formats of the KV cache that are searched in addition to that of the activations."""


class Layout(NamedTuple):
    """The GPUs of a service or a training run: `tp` × `pp` GPUs in each of `dp` replicas; `ep` GPUs share the experts.

    Experts are sharded within a tensor-parallel group, or over the replicas of a group of `ep` / `tp`.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.tp * self.pp * self.dp

    @property
    def joint_replicas(self) -> int:
        """The replicas that share one set of experts, and therefore compute in step."""
        return max(1, self.ep // self.tp)

    @property
    def engines(self) -> int:
        """The groups of GPUs that compute independently of each other."""
        return self.dp // self.joint_replicas

    @property
    def engine(self) -> Layout:
        """The layout of one of these groups."""
        return self._replace(dp=self.joint_replicas)


class Formats(NamedTuple):
    """Number formats: compute format of GEMMs, weights, KV cache, activations (None: the default of an estimate)."""

    dtype: str
    weights: str | None = None
    kv: str | None = None
    activations: str | None = None


def divisors(n: int, most: int | None = None) -> list[int]:
    """The divisors of a number, ascending; those up to `most`."""
    return [d for d in range(1, min(n, most or n) + 1) if n % d == 0]


def service_layouts(arch: Architecture, gpus: int, restrictions: Mapping[str, Collection[int]]) -> list[Layout]:
    """The layouts that use at most this number of GPUs and divide the model evenly, each with as many engines as fit.

    `restrictions` by option, such as {"tp": [4, 8]}. The experts are on every GPU of a tensor-parallel group (ep 1),
    one shard per GPU of it (ep = tp), or over any number of replicas (ep a multiple of tp), unless `ep` is given.
    Engines whose number of GPUs is a power of two come first. With more GPUs, the same engines are searched and more.
    """
    possible = dict[Layout, None]()
    widths = [tp for tp in restrictions.get("tp", range(1, gpus + 1)) if is_possible(arch, Layout(tp))]
    depths = [pp for pp in restrictions.get("pp", range(1, gpus + 1)) if is_possible(arch, Layout(pp=pp))]
    for tp, pp in product(widths, depths):
        replicas = gpus // (tp * pp)
        shared = (1, *range(tp, tp * replicas + 1, tp)) if has_experts(arch) else (1,)
        for ep in restrictions.get("ep", dict.fromkeys(shared)):
            engine = Layout(tp, pp, ep, max(1, ep // tp))
            for dp in restrictions.get("dp", [replicas // engine.dp * engine.dp]):
                if 0 < dp <= replicas and dp % engine.dp == 0 and (tp * dp) % ep == 0 and is_possible(arch, engine):
                    possible[engine._replace(dp=dp)] = None
    return sorted(possible, key=lambda layout: (not is_power_of_two(layout.engine.gpus), layout.engine.gpus))


def is_power_of_two(n: int) -> bool:
    """Whether a positive number is a power of two."""
    return n & (n - 1) == 0


def training_layouts(
    arch: Architecture, gpus: int, batch: int, restrictions: Mapping[str, Collection[int]]
) -> list[Layout]:
    """The layouts that use at most this number of GPUs and divide the model and the batch; most GPUs first.

    `restrictions` by option, such as {"tp": [4, 8]}. Pipelines have a number of stages that divides the layers or is a
    power of two, unless `pp` is given. The experts are on every GPU of a tensor-parallel group (ep 1), one shard per
    GPU of it (ep = tp), or over all replicas (ep = tp × dp), unless `ep` is given. With more GPUs, the same layouts are
    searched and more.
    """
    layouts, layers = [], len(arch.stack.layers)
    replicas = [dp for dp in divisors(batch, gpus) if dp in restrictions.get("dp", (dp,))]
    stages = [pp for pp in range(1, gpus + 1) if layers % pp == 0 or is_power_of_two(pp)]
    widths = [tp for tp in restrictions.get("tp", range(1, gpus + 1)) if is_possible(arch, Layout(tp))]
    for tp, pp in product(widths, restrictions.get("pp", stages)):
        if tp * pp > gpus or not is_possible(arch, Layout(tp, pp), is_training=True):
            continue
        for dp in (dp for dp in replicas if tp * pp * dp <= gpus):
            sizes = dict.fromkeys((1, tp, tp * dp)) if has_experts(arch) else (1,)
            for ep in restrictions.get("ep", sizes):
                layout = Layout(tp, pp, ep, dp)
                if (tp * dp) % ep == 0 and is_possible(arch, layout, is_training=True):
                    layouts.append(layout)
    return sorted(layouts, key=lambda layout: -layout.gpus)


def is_possible(arch: Architecture, layout: Layout, *, is_training: bool = False) -> bool:
    """Whether the model can be sharded in this way."""
    sizes = Parallel(layout.tp, layout.dp, layout.pp, layout.ep)
    try:
        parallel(arch, is_training, layout.dp * layout.pp, 1, sizes)
    except WorkloadError:
        return False
    return True


def formats(
    arch: Architecture, device: Device, engine: Engine, restrictions: Mapping[str, Sequence[str]]
) -> list[Formats]:
    """The formats that are searched on a device: those given, else 16 bits and fp8, each also with a KV cache in fp8,
    where the engine has kernels for them on GPUs of this generation.

    A quantized checkpoint keeps its weight format; if its config states a KV cache format, this format replaces 16
    bits. Formats without a pipe on the device are left out. Raises WorkloadError for a checkpoint in an unknown format.
    """
    if arch.quantization and not (arch.quantization.is_known or restrictions.get("weights")):
        raise WorkloadError(f"{arch.name}: unknown weight format; give ", Option("weights", "int4"), " or another one")
    half = half_with_pipe(arch, [device], str(DEFAULTS["dtype"]))
    quantized, cache = (arch.quantization.weights, arch.quantization.kv) if arch.quantization else (None, None)
    narrow = quantized is None or number_format(quantized).bits >= FORMATS[QUANTIZED_COMPUTE].bits
    computes = restrictions.get("dtype") or _computed(
        device, engine, (half, *([QUANTIZED_COMPUTE] * narrow)), quantized
    )
    caches = [form for form in KV_CACHE_FORMATS if runs(engine, device, "attention", form)]
    choices: dict[Formats, None] = {}
    for dtype in dict.fromkeys(auto_dtype(arch) if name == "auto" else name for name in computes):
        if not has_pipe(device, dtype):
            continue
        working = half if FORMATS[dtype].bits < 16 else dtype
        for weights, kv, activations in product(
            restrictions.get("weights") or (quantized,),
            restrictions.get("kv") or dict.fromkeys((cache or working, *caches)),
            restrictions.get("activations") or (working,),
        ):
            is_default = activations == dtype and FORMATS[dtype].bits >= 16
            choices[Formats(dtype, weights, kv, None if is_default else activations)] = None
    return list(choices)


def _computed(device: Device, engine: Engine, candidates: Sequence[str], weights: str | None) -> list[str]:
    """The compute formats in which the engine multiplies these weights; 16 bits where none of its kernels is known."""
    return [form for form in candidates if runs(engine, device, "gemm", weights or form, form)] or [candidates[0]]


def options_of(layout: Layout, form: Formats) -> dict[str, Any]:
    """The layout and the formats as options of an estimate."""
    return {**layout._asdict(), **form._asdict()}
