"""How a serving engine divides the memory of a GPU when it starts: the section `memory` of an engine's file.

The engine loads the weights, measures or estimates what a step needs besides them, and gives the rest to the KV cache:

    device   utilization x device - weights - outside torch - activations (- CUDA graphs)          vLLM
    free     utilization x (device - outside torch) - weights                                      SGLang
    rest     utilization x (device - weights - outside torch - activations)                        TensorRT-LLM

`device` is what the driver states. Activations are the peak of a pass over as many prompt tokens as a step has at most
(the token budget), or the sampler's, which sorts the logits of as many sequences as a step has at most.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from roofmodel.files.text_files import YamlValue
from roofmodel.numbers.algebra import Number

SHARES = ("device", "free", "rest")
"""What the utilization is a share of."""


class StartDefaults(NamedTuple):
    """Limits of a step on GPUs from a memory size and with a tensor-parallel size from `tp`; None: no limit.

    `graph_sequences`: the largest batch with a CUDA graph, for SGLang's default of the utilization.
    """

    memory: float = 0.0
    tp: int = 1
    besides: tuple[str, ...] = ()  # generations to which it does not apply
    token_budget: int | None = None
    max_seqs: int | None = None
    graph_sequences: int = 0

    def applies(self, device: float, generation: str | None, tp: int) -> bool:
        """Whether it is for a GPU with so much memory, and for so many of them."""
        return device >= self.memory and tp >= self.tp and generation not in self.besides


class Reserve(NamedTuple):
    """The default of the utilization as 1 - reserve / device: bytes for each engine, for each token of the budget, each
    sequence of the largest CUDA graph and each GPU; at least `minimum` on GPUs of more than 60 GiB."""

    fixed: float = 0.0
    token: float = 0.0
    sequence: float = 0.0
    gpu: float = 0.0
    minimum: float = 0.0


LARGE = 60 * 2**30
"""Bytes of a GPU from which Reserve has a minimum (SGLang)."""


class ServingMemory(NamedTuple):
    """The rule of an engine, and its constants in bytes of one GPU.

    `outside_torch`: context, libraries and buffers of one GPU, and of one of several with tensor or expert parallelism.
    `hidden_buffers`: hidden states of all tokens of a step that are alive besides the operators' tensors.
    `sampler`: bytes for each logit besides the logits themselves; None where none is measured. `experts_kept`: the
    outputs of the experts stay allocated while the sampler runs. `graphs`: CUDA graphs, for each layer.
    `whole_prompts`: without chunked prefill, a step has at least the tokens of the longest sequence.
    `starts_without`: it starts even if the cache is too small for one request.
    """

    share_of: str
    utilization: float = 0.9
    reserve: Reserve | None = None
    outside_torch: tuple[float, float] = (0.0, 0.0)
    hidden_buffers: int | None = None
    sampler: float | None = None
    experts_kept: bool = False
    graphs: float | None = None
    subtracts_graphs: bool = False
    block: int = 1
    whole_prompts: bool = False
    starts_without: bool = False
    defaults: tuple[StartDefaults, ...] = ()

    def limits(self, device: float, generation: str | None, tp: int) -> StartDefaults:
        """The limits of a step on such GPUs."""
        applicable = (each for each in self.defaults if each.applies(device, generation, tp))
        return next(applicable, StartDefaults())

    def default_utilization(self, device: float, token_budget: Number, sequences: int, gpus: int) -> Number:
        """The share that the engine uses unless its flag is given."""
        if (each := self.reserve) is None:
            return self.utilization
        reserved = each.fixed + each.token * token_budget + each.sequence * sequences + each.gpu * gpus
        return 1 - max(reserved, each.minimum if device > LARGE else 0.0) / device

    def for_cache(self, device: float, utilization: Number, weights: Number, outside: float, step: Number) -> Number:
        """The bytes of a GPU for the KV cache; negative where nothing is left. `step`: activations, and graphs if
        they count."""
        if self.share_of == "free":
            return utilization * (device - outside) - weights
        if self.share_of == "rest":
            return utilization * (device - weights - outside - step)
        return utilization * device - weights - outside - step


def read_memory(value: YamlValue, base: ServingMemory | None, generations: Sequence[str]) -> ServingMemory:
    """The section `memory`, with the constants of the engine that the file is like where it has none of its own."""
    entries = value.mapping(ServingMemory._fields, required=() if base else ("share_of",))
    fields: dict[str, Any] = {}
    for key, entry in entries.items():
        if key == "share_of":
            fields[key] = entry.one_of(SHARES)
        elif key == "utilization":
            fields[key] = entry.number()
            if not 0 < fields[key] <= 1:
                raise entry.error(f"{entry.path} is {entry.text()!r}; it must be above 0 and at most 1, such as 0.9")
        elif key == "reserve":
            fields[key] = Reserve(**{name: each.quantity("B") for name, each in entry.mapping(Reserve._fields).items()})
        elif key == "outside_torch":
            of_each = entry.mapping(("one", "several"), required=("one", "several"))
            fields[key] = of_each["one"].quantity("B"), of_each["several"].quantity("B")
        elif key in ("hidden_buffers", "block"):
            fields[key] = entry.integer()
        elif key in ("sampler", "graphs"):
            fields[key] = entry.quantity("B")
        elif key == "defaults":
            fields[key] = tuple(_defaults(each, generations) for each in entry.items())
        else:
            fields[key] = entry.flag()
    return base._replace(**fields) if base else ServingMemory(**fields)


def _defaults(value: YamlValue, generations: Sequence[str]) -> StartDefaults:
    fields: dict[str, Any] = {}
    for key, entry in value.mapping(StartDefaults._fields).items():
        if key == "memory":
            fields[key] = entry.quantity("B")
        elif key == "besides":
            fields[key] = tuple(item.one_of(generations) for item in entry.items())
        else:
            fields[key] = entry.integer()
    return StartDefaults(**fields)
