"""What a plan searches: parallel layouts, number formats, devices; the notes on what it does not search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from roofmodel.counting.tensors import FORMATS, number_format
from roofmodel.counting.workload import Parallel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import AnswerNote, Option, Text, WarningNote, WorkloadError, joined
from roofmodel.models.architecture import Architecture, has_experts
from roofmodel.models.layers import MoE
from roofmodel.numbers import units
from roofmodel.options.workload import DECLARED, DEFAULTS
from roofmodel.steps.options import auto_dtype, half_with_pipe, has_pipe, runs
from roofmodel.steps.parallelism import GPUS, parallel

QUANTIZED_COMPUTE = "fp8"
"""The compute format below 16 bits that is searched without being asked for, where the device has it."""
KV_CACHE_FORMATS = ("fp8",)
"""Formats of the KV cache that are searched in addition to that of the activations."""


MAX_TENSOR_PARALLEL = 512
"""The most GPUs that share each layer of a training run, if their number is not given."""
EVEN_ABOVE = 8
"""GPUs of an engine from which on only pipelines with equal stages are searched, or with a power of two of them."""


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


class TrainingLayout(NamedTuple):
    """The GPUs of a training run: `tp` × `cp` × `pp` GPUs in each of `dp` replicas; `ep` GPUs share the experts,
    and `cp` the tokens of a sequence."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.tp * self.cp * self.pp * self.dp


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
    Engines of more than 8 GPUs have a number of pipeline stages that divides the layers or is a power of two, unless
    `pp` is given. Small engines come first, and of similar ones those whose number of GPUs is a power of two. With more
    GPUs, the same engines are searched and more.
    """
    possible = dict[Layout, None]()
    layers = len(arch.stack.layers)
    widths = [tp for tp in restrictions.get("tp", range(1, gpus + 1)) if is_possible(arch, Layout(tp))]
    depths = [pp for pp in restrictions.get("pp", range(1, gpus + 1)) if is_possible(arch, Layout(pp=pp))]
    experts = [part.experts for part in arch.parts if isinstance(part, MoE)]
    for tp, pp in product(widths, depths):
        replicas = gpus // (tp * pp)
        shared = (1, *(ep for ep in range(tp, tp * replicas + 1, tp) if experts and not any(n % ep for n in experts)))
        for ep in restrictions.get("ep", dict.fromkeys(shared)):
            engine = Layout(tp, pp, ep, max(1, ep // tp))
            is_even = layers % pp == 0 or is_power_of_two(pp) or "pp" in restrictions
            if engine.gpus > EVEN_ABOVE and not is_even:
                continue
            for dp in restrictions.get("dp", [replicas // engine.dp * engine.dp]):
                if 0 < dp <= replicas and dp % engine.dp == 0 and (tp * dp) % ep == 0 and is_possible(arch, engine):
                    possible[engine._replace(dp=dp)] = None

    def place(layout: Layout) -> tuple[int, bool, int]:
        size = layout.engine.gpus
        return search_round(layout), not is_power_of_two(size), size

    return sorted(possible, key=place)


def search_round(layout: Layout) -> int:
    """The round of a search in which a layout is evaluated: 0 for engines of up to 8 GPUs, 1 for up to 16 …"""
    return max(0, (layout.engine.gpus - 1).bit_length() - 3)


def is_power_of_two(n: int) -> bool:
    """Whether a positive number is a power of two."""
    return n & (n - 1) == 0


def training_layouts(
    arch: Architecture, gpus: int, batch: int, cps: Sequence[int], restrictions: Mapping[str, Collection[int]]
) -> list[TrainingLayout]:
    """The layouts that use at most this number of GPUs and divide the model and the batch; most GPUs first.

    `cps` are the numbers of GPUs that may share a sequence, and `restrictions` the values of other sizes, such as
    {"tp": [4, 8]}. Pipelines have a number of stages that divides the layers or is a power of two, unless `pp` is
    given. The experts are on every GPU of a tensor-parallel group (ep 1), one shard per GPU of it (ep = tp), or over
    all replicas (ep = tp × cp × dp), unless `ep` is given. With more GPUs, the same layouts are searched and more.
    """
    layouts, layers = [], len(arch.stack.layers)
    replicas = [dp for dp in divisors(batch, gpus) if dp in restrictions.get("dp", (dp,))]
    depths = restrictions.get("pp", [pp for pp in range(1, layers + 1) if layers % pp == 0 or is_power_of_two(pp)])
    stages = [pp for pp in depths if pp <= gpus and is_possible(arch, TrainingLayout(pp=pp))]
    sizes = restrictions.get("tp", range(1, min(gpus, MAX_TENSOR_PARALLEL) + 1))
    for tp in (tp for tp in sizes if is_possible(arch, TrainingLayout(tp))):
        for pp, cp, dp in product(stages, cps, replicas):
            if tp * pp * cp * dp > gpus:
                continue
            shared = dict.fromkeys((1, tp, tp * cp * dp)) if has_experts(arch) else (1,)
            for ep in restrictions.get("ep", shared):
                layout = TrainingLayout(tp, pp, ep, dp, cp)
                if (tp * cp * dp) % ep == 0 and (ep == 1 or is_possible(arch, layout)):
                    layouts.append(layout)
    return sorted(layouts, key=lambda layout: -layout.gpus)


def is_possible(arch: Architecture, layout: Layout | TrainingLayout) -> bool:
    """Whether the model can be sharded in this way."""
    cp = layout.cp if isinstance(layout, TrainingLayout) else 1
    sizes = Parallel(layout.tp, layout.dp, layout.pp, layout.ep, cp=cp)
    try:
        parallel(arch, isinstance(layout, TrainingLayout), layout.dp * layout.pp, 1, sizes)
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
            restrictions.get("weights") or (None,),  # those of the checkpoint, which can differ by module
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


# --- The search ------------------------------------------------------------------------------------

Result = TypeVar("Result")


def within(results: Iterable[Result], seconds: float) -> Iterator[Result]:
    """The results that a search yields up to a time limit; at least one."""
    end = monotonic() + seconds
    for result in results:
        yield result
        if monotonic() > end:
            return


def incomplete(done: int, total: int, seconds: float) -> Text:
    """The warning that the time limit ended the search."""
    return WarningNote(
        f"the search ended after {units.seconds(seconds)} with {done} of {total} layouts; raise ", Option("time_limit"),
        ", or search fewer with ", Option("tp"), " or ", Option("pp"),
    )  # fmt: skip


def no_layout(
    arch: Architecture, gpus: int, restrictions: Mapping[str, Sequence[Any]], training: bool = False
) -> Iterator[Text]:
    """Why there is no layout to search."""
    yield from (Option("gpus", gpus), f": no layout of {arch.name} uses at most {gpus} GPUs")
    if chosen := list(restrictions.keys() & {*GPUS, "micro_batch", "schedule"}):
        yield " with these values of "
        yield joined(", ", [Option(option) for option in sorted(chosen)])
    if chosen or training:
        yield f"; tp × {'cp × ' * training}pp × dp must be at most {gpus}"
    if training:
        yield ", dp × micro-batch must divide the batch of a training step"
        yield ", and vpp must divide the layers of a pipeline stage; vpp above 1 also needs pp above 1, and a "
        yield "number of microbatches that is a multiple of pp"


def no_format(devices: Sequence[Device], restrictions: Mapping[str, Sequence[Any]]) -> Iterator[Text]:
    """Why there are no formats to search."""
    dtypes = ",".join(map(str, restrictions.get("dtype", ["fp16"])))
    yield from (Option("dtype", dtypes), f": no device has a pipe for it; they have {_formats_of(devices)}")


def device_notes(devices: Sequence[Device], searched: Sequence[Device]) -> Iterator[Text]:
    """The devices that are not searched, and what the times of the others are if some are not calibrated."""
    ids = {device.id for device in searched}
    for device in devices:
        if device.id not in ids:
            formats = _formats_of([device])
            yield f"{device.id} is left out: it has no pipe for the formats of the search; it has {formats}"
    yield from _calibration_notes(searched)


def _calibration_notes(devices: Sequence[Device]) -> Iterator[Text]:
    uncalibrated = list(dict.fromkeys(device.id for device in devices if device.calibration is None))
    if not uncalibrated:
        return
    others = len(uncalibrated) < len({device.id for device in devices})
    after = "; they are ranked after the expected times of the other devices" if others else ""
    yield AnswerNote(f"{', '.join(uncalibrated)}: not calibrated, so times are lower bounds{after}")


def _formats_of(devices: Sequence[Device]) -> str:
    """The compute formats of which some device has a pipe."""
    return ", ".join(sorted({kind for device in devices for kind in device.types if kind in DECLARED["dtype"].choices}))


def price_notes(prices: Mapping[str, float], devices: Sequence[Device]) -> Iterator[Text]:
    """The devices without a price, if others have one."""
    if prices and (missing := sorted({device.id for device in devices} - prices.keys())):
        yield AnswerNote(
            Option("price"), f" is missing for {', '.join(missing)}: candidates are ranked by rate per GPU"
        )
