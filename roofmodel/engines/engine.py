"""An engine: the software that runs a model, such as vLLM. It changes expected times only, no counts and no bounds.

Its YAML file names the kernels that it runs, what it fuses, its launches, its collectives, and what the host adds to a
step.
"""

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.engines.engine_file import (
    ANY,
    CHOICES,
    FOLDER,
    GENERATIONS,
    PACKAGED,
    AllReduce,
    Benchmark,
    BenchmarkRule,
    Halves,
    Host,
    Kernels,
    LaunchTime,
    Serve,
    ServingMemory,
    Training,
    levels,
    numbers_of,
    read,
)
from roofmodel.errors import SWEEP, EngineError, Option, choices, shorten
from roofmodel.files.text_files import YamlValue, read_yaml
from roofmodel.numbers import units

AUTOCAST_FORMATS = ("bf16", "fp16")
"""Compute formats of torch.autocast: 2 bytes, so that an fp32 tensor takes twice the counted bytes, and a cast 3
times."""
STEP_SPREAD_P90 = 1.17
"""90th percentile of measured step time / sum of launches, with a known launch time.

From 15 passes of BERT in eager PyTorch, with the launch time of batch 1 (AITemplate's README,
`benchmarks/published.py`).
"""


class Engine(NamedTuple):
    """An engine. `launch` is None where CUDA graphs launch all kernels of a step together.

    `extra_kernels` are kernels that it runs besides those of the operators. `pads_vocabulary`: it adds rows to the
    embedding up to a multiple of 64 or more. `prompts_first`: it computes prompts in steps of their own, before any
    decode. `halves`: it divides a step into halves that overlap. `autocast` is the format of torch.autocast. `training`
    is None where it only serves, `memory` where the file does not say how it divides a GPU's memory, `serve` where it
    does not say how a server is started. `since`: the file is for versions from this one, up to that of the next file.
    `options` are those of `launch` and `autocast` that a user may set, `variants` further ones (option -> value ->
    fields that it changes), `settings` those that are set.
    `kernel_names` are in the names of its kernels and NVTX ranges, and of the engines that run its kernels; `backends`
    are its names in clients of serving benchmarks.
    """

    id: str = ""
    name: str = ""
    version: str = ""
    since: tuple[int, ...] | None = None
    file: str = ""
    kernels: Kernels = {}  # noqa: RUF012
    launch: LaunchTime | None = None
    host_runtime: str = "eager"
    extra_kernels: frozenset[str] = frozenset()
    autocast: str = ""
    fuses: frozenset[str] = frozenset()
    pads_vocabulary: bool = False
    collectives: str = ""
    all_reduce: AllReduce | None = None
    prompts_first: bool = False
    host: Host = Host()
    halves: Halves | None = None
    memory: ServingMemory | None = None
    serve: Serve | None = None
    training: Training | None = None
    options: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    default_for: frozenset[str] = frozenset()
    kernel_names: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    runs_kernels_of: frozenset[str] = frozenset()
    benchmarks: tuple[BenchmarkRule, ...] = ()
    variants: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def load(cls, name: "str | os.PathLike[str] | Engine", settings: tuple[tuple[str, str], ...] = ()) -> "Engine":
        """An engine by name (`vllm`, `trtllm@0.9`) or YAML file, with options such as `(("launch", "graph"),)`.

        Raises EngineError.
        """
        engine = name if isinstance(name, Engine) else _read(find(name))
        return engine.with_settings(settings) if settings else engine

    def __hash__(self) -> int:
        return hash((self.id, self.version, self.file, self.settings))

    @property
    def runtime(self) -> str:
        """How kernels are launched and fused: `eager`, `autocast`, `megatron` or `graph`, as documents state it."""
        if self.launch is None:
            return "graph"
        if self.autocast:
            return "autocast"
        return self.host_runtime

    @property
    def launch_seconds(self) -> float | None:
        """Seconds of the host per operator; None with CUDA graphs."""
        return None if self.launch is None else self.launch.seconds

    @property
    def label(self) -> str:
        """`vLLM 0.24`, `PyTorch 2.9 (launch=graph)`."""
        settings = ", ".join(f"{key}={value}" for key, value in self.settings)
        return " ".join(filter(None, (self.name, self.version, settings and f"({settings})")))

    def benchmark(self, version: str) -> Benchmark:
        """What the benchmarks of a version of the engine run; the later entries of its file replace earlier ones."""
        return Benchmark(**ChainMap(*(rule.fields for rule in reversed(self.benchmarks) if rule.applies(version))))

    def implementations(self, kind: str, formats: str, generation: str | None) -> tuple[str, ...]:
        """The kernels of a kind on GPUs of a generation, the preferred one first.

        Those for formats such as `fp16/fp8` are preferred to those for other formats.
        """
        generations = (generation or ANY, ANY)
        where = [(kind, g, f) for g in generations for f in (formats, ANY)]
        where += [rule for rule in self.kernels if rule[0] == kind and rule[1] in generations]
        names = dict.fromkeys(name for rule in where for name in self.kernels.get(rule, ()))
        for key, value in self.settings:
            if kind in CHOICES.get(key, ()):
                return tuple(sorted(names, key=lambda name: not is_chosen(name, value)))
        return tuple(names)

    def expert_parallel(self, formats: str, generation: str | None) -> tuple[str, ...]:
        """The kernels that compute experts in these formats where GPUs shard them; none if these are the usual ones, or
        an option chooses one."""
        if any("experts" in CHOICES.get(key, ()) for key, _ in self.settings):
            return ()
        return self.kernels.get(("expert_parallel", generation or ANY, formats), ())

    def names(self, *kinds: str) -> list[str]:
        """The kernels of some kinds, for all generations and formats."""
        return list(dict.fromkeys(name for rule, listed in self.kernels.items() if rule[0] in kinds for name in listed))

    def with_settings(self, settings: tuple[tuple[str, str], ...]) -> "Engine":
        """The engine with options set. Raises EngineError for an option or a value that it does not have."""
        engine = self._replace(settings=tuple(dict((*self.settings, *settings)).items()))
        for key, value in settings:
            if known_names := self.names(*CHOICES.get(key, ())):
                if not any(is_chosen(name, value) for name in known_names):
                    raise EngineError(
                        Option("engine_option"),
                        f": {self.name} has no {key} kernel {value!r}{choices(value, known_names)}",
                    )
            elif key in self.options:
                engine = _with_launch(engine, value) if key == "launch" else _with_autocast(engine, value)
            elif key in self.variants:
                engine = _with_variant(engine, key, value)
            else:
                known_names = [
                    *self.options,
                    *self.variants,
                    *(name for name, kinds in CHOICES.items() if self.names(*kinds)),
                ]
                raise EngineError(
                    Option("engine_option"), f": {self.name} has no option {key!r}{choices(key, known_names)}"
                )
        return engine


def is_chosen(kernel: str, value: str) -> bool:
    """Whether the value of an option that chooses a kernel is a part of this kernel's name."""
    return value.lower() in kernel.lower()


def _with_launch(engine: Engine, value: str) -> Engine:
    if value == "graph":
        return engine._replace(launch=None)
    try:
        seconds = float(units.parse(value, "s"))
    except ValueError as error:
        raise EngineError(Option("engine_option"), f": launch: {error}; try launch=8us or launch=graph") from None
    if not 0 <= seconds <= 1:
        raise EngineError(
            Option("engine_option"),
            f": launch is {shorten(value)}; it must be a time of at most 1 s, such as launch=8us",
        )
    return engine._replace(launch=LaunchTime(seconds, seconds, STEP_SPREAD_P90 * seconds))


def _with_variant(engine: Engine, key: str, value: str) -> Engine:
    values = engine.variants[key]
    if value not in values:
        raise EngineError(
            Option("engine_option"), f": {key} of {engine.name} has no value {value!r}{choices(value, values)}"
        )
    changed = dict(values[value])
    if "training" in changed:
        if engine.training is None:
            raise EngineError(
                Option("engine_option"), f": {key}={value} is for training, and {engine.name} only serves"
            )
        changed["training"] = engine.training._replace(**changed["training"])
    if flags := changed.pop("server", ""):
        changed["serve"] = engine.serve and engine.serve._replace(command=f"{engine.serve.command} {flags}")
    return engine._replace(**changed)


def _with_autocast(engine: Engine, value: str) -> Engine:
    if value not in AUTOCAST_FORMATS:
        raise EngineError(
            Option("engine_option"), f": autocast has no format {value!r}; known: {', '.join(AUTOCAST_FORMATS)}"
        )
    return engine._replace(autocast=value)


def folders() -> tuple[Path, ...]:
    """The user's folder, then the folder of roofmodel."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return config / "roofmodel" / "engines", FOLDER


def names() -> list[str]:
    """The names of all engines, including the user's."""
    return sorted({path.stem for folder in folders() for path in folder.glob("*.yaml")})


def packaged() -> list[Engine]:
    """The packaged engines, without those of other versions."""
    return [_packaged(FOLDER / f"{name}.yaml") for name in PACKAGED]


def default_for(case: str) -> str:
    """The name of the packaged engine that is the default for one of DEFAULT_CASES."""
    return next(engine.id for engine in packaged() if case in engine.default_for)


def engine_of_backend(backend: str) -> str | None:
    """The packaged engine of a benchmark client's backend such as `sglang-oai-chat`; None for an API that several
    engines serve."""
    names = {name: engine.id for engine in packaged() for name in engine.backends}
    return next((engine for name, engine in names.items() if f"{backend}-".startswith(f"{name}-")), None)


def benchmark_of(framework: str) -> Benchmark:
    """What the benchmark of a framework and version runs, such as `vllm 0.24.0`; the default for other frameworks."""
    name, _, version = framework.partition(" ")
    return Engine.load(name).benchmark(version) if name.lower() in names() else Benchmark()


REPLACED = {"current": "vllm", "trtllm-0.9": "trtllm@0.9"}
"""Former names of engines."""


def find(name: str | os.PathLike[str], before: tuple[Path, ...] = ()) -> Path:
    """The file of an engine, by name or path. Raises EngineError for a name that is none.

    `before` are the files whose `like` led here; the last one has the name in it. A path is relative to that file. A
    name that both a user's and a packaged engine have means the packaged one where the user's would refer back.
    """
    if isinstance(name, list | tuple) or (isinstance(name, str) and "," in name and not Path(name).exists()):
        raise EngineError(
            Option("engine"), f" is {shorten(name)}; one engine is expected; ", SWEEP, " compares several"
        )
    if not isinstance(name, str | os.PathLike):
        raise EngineError(
            Option("engine"), f": {shorten(name)} is no engine; give a name such as 'vllm' or a YAML file"
        )
    text = os.fspath(name)
    if text in REPLACED:
        raise EngineError(Option("engine", text), " has another name now; write ", Option("engine", REPLACED[text]))
    if text.lower().endswith((".yaml", ".yml")) or os.sep in text:
        path = Path(text).expanduser()
        return before[-1].parent / path if before else path
    searched = (FOLDER,) if before and before[-1].parent == FOLDER else folders()
    files = [path for folder in searched if os.path.isfile(path := folder / f"{text.lower()}.yaml")]
    if not files and before and text == before[-1].stem:
        files = [before[-1]]
    if files:
        return next((path for path in files if not _is_among(path, before)), files[0])
    base, at, version = text.lower().partition("@")
    if at and base in names():
        path = find(base, before)
        engine = _read(path, before)
        if version and f"{engine.version}.".startswith(f"{version}."):
            return path
        others = [other for other in names() if other.startswith(f"{base}@")]
        since = {(_read(each, before).since or (), each) for each in (path, *map(find, others))}
        earlier = [each for each in since if each[0] and each[0] <= numbers_of(version)]
        if numbers_of(version) and earlier:
            return max(earlier)[1]
        raise EngineError(
            Option("engine", text), f": there is no file for this version of {engine.name}; ",
            f"known: {', '.join([f'{base} ({engine.version})', *others])}",
        )  # fmt: skip
    raise EngineError(
        Option("engine"), f": unknown engine {shorten(text)}{choices(text, names())}; or give a YAML file of your own"
    )


def stated_kernels(engine: Engine) -> Iterator[tuple[str, YamlValue]]:
    """The kind and the name of each kernel in a user's file and in the user's files that it is like."""
    packaged, files = FOLDER / Path(engine.file).name, [Path(engine.file)]
    if not engine.file or (packaged.is_file() and _packaged(packaged).kernels == engine.kernels):
        return
    while True:
        like, kernels = _kernels_of_file(files[-1])
        yield from kernels
        if not like or (base := find(like, tuple(files))).parent == FOLDER:
            return
        files.append(base)


def _kernels_of_file(path: Path) -> tuple[str, list[tuple[str, YamlValue]]]:
    """The engine that a valid file is `like`, or "", and the kind and the name of each kernel that the file states."""
    entries = read_yaml(path, EngineError, "an engine's YAML file").mapping()
    kernels = [
        ("experts" if kind == "expert_parallel" else kind, item)
        for kind, of_kind in (entries["kernels"].mapping() if "kernels" in entries else {}).items()
        for of_generation in levels(of_kind, GENERATIONS).values()
        for listed in levels(of_generation, None).values()
        for item in listed.items()
    ]
    if "collectives" in entries:
        collectives = entries["collectives"].mapping()
        own = [collectives["all_reduce"].mapping()["own"]] if "all_reduce" in collectives else []
        kernels += [("collectives", item) for item in (*own, *filter(None, [collectives.get("else")]))]
    return entries["like"].text() if "like" in entries else "", kernels


def _is_among(path: Path, files: tuple[Path, ...]) -> bool:
    return path.exists() and any(path.samefile(each) for each in files)


def _read(path: Path, before: tuple[Path, ...] = ()) -> Engine:
    """The engine of a file. Raises EngineError, also where the file is one of those whose `like` led to it."""
    if _is_among(path, before):
        raise EngineError(f"like refers back to {'this file' if path.samefile(before[-1]) else path}")
    if path.parent == FOLDER:
        return _packaged(path)
    return Engine(**{"id": path.stem, "file": str(path)} | _fields(path, before))


@cache
def _packaged(path: Path) -> Engine:
    return Engine(**{"id": path.stem, "file": path.name} | _fields(path, ()))


def _fields(path: Path, before: tuple[Path, ...]) -> dict[str, Any]:
    files = (*before, path)
    return read(path, lambda name: _read(find(name, files), files)._asdict())
