"""Fit the kernels of sparse attention to whole modules: `python -m benchmarks.sparse_fit FOLDER [DEVICE…]`.

No table has these kernels alone. The time of a module (`sparse_modules.py`) without its other kernels, which have
parameters of their own, is that of its sparse attention, and of MiniMax-M3's scores of blocks. The errors are those of
whole modules, each model with parameters that are fitted to the other models of the module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.sparse_modules import DEVICES, PHASES, Array, Rows, kernel_name, operators, read, seconds_of
from roofmodel.devices import library
from roofmodel.devices.calibration import TIMINGS, Calibration, Fit, Fitted
from roofmodel.devices.calibration_writer import fitted_file
from roofmodel.devices.device import Device
from roofmodel.measure.fitting import MAX_FIT_ROWS, MAX_SEARCH_ROWS, FitRows, fit
from roofmodel.timing import parameter_sets
from roofmodel.timing.parameter_sets import operator_format_key
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import formula

SOURCE = "whole modules of aiconfigurator@095f58a5"
MODULES = {"sparse": ("dsa",), "compressed": ("csa", "hca"), "block": ("msa",)}
"""Keys of the kinds of parameters -> the modules that they are fitted to."""


class Kernels(NamedTuple):
    """Rows of modules with the kernels that are fitted together: formulas by kind, and the seconds of the others."""

    rows: Rows
    formulas: Mapping[str, Callable[[Any], Array]]
    rest: Array

    def select(self, chosen: Array, device: Device) -> Kernels:
        return kernels(self.rows.select(chosen), device, tuple(self.formulas))


def kernels(rows: Rows, device: Device, kinds: Sequence[str]) -> Kernels:
    """The rows with the formulas of the kernels of these kinds; equal kinds in one module add."""
    parts, formulas = operators(rows), dict[str, Callable[[Any], Array]]()
    own = [place_of for place_of, part in enumerate(parts) if parameter_sets.kind(part) in kinds]
    for number in own:
        part, kind = parts[number], parameter_sets.kind(parts[number])
        model = TIMINGS[kind]
        start = model._make(hint.__metadata__[0].start for hint in model.__annotations__.values())
        only: dict[str, Any] = {kind: {"any": {"any": Fitted(start, Fit(0, 0, 0, 1, 1, "", ""))}}}
        alone = replace(device, calibration=Calibration(device.id, **only))
        dtype = part.widths.compute
        by = formula(part, place(part.cost, device, part.compute_dtype(dtype)), alone, dtype)
        assert by is not None
        formulas[kind] = partial(_applied, by.function, by.arguments)
    rest = sum(seconds for number, (_, seconds) in enumerate(seconds_of(rows, parts, device)) if number not in own)
    return Kernels(rows, formulas, np.asarray(rest))


def _applied(function: Callable[..., Array], arguments: tuple[Any, ...], timing: Any) -> Array:
    return function(*arguments, timing)


def joint_model(kinds: Sequence[str]) -> Any:
    """The parameters of several kinds as one kernel model; each name has the number of its kind before it."""
    fields = [
        (f"k{n}_{name}", hint) for n, kind in enumerate(kinds) for name, hint in TIMINGS[kind].__annotations__.items()
    ]
    return NamedTuple("Joint", fields)  # type: ignore[misc]


def part_of(timing: Any, number: int, kind: str) -> Any:
    """The parameters of one kind among joint ones."""
    return TIMINGS[kind](*(getattr(timing, f"k{number}_{name}") for name in TIMINGS[kind]._fields))


def fit_rows(several: Sequence[Kernels], kinds: Sequence[str]) -> list[FitRows]:
    """The modules as functions of the joint parameters."""

    def seconds(each: Kernels, timing: Any) -> Array:
        return each.rest + sum(
            each.formulas[k](part_of(timing, n, k)) for n, k in enumerate(kinds) if k in each.formulas
        )

    return [FitRows(partial(seconds, each), None, [], each.rows.measured, each.rest) for each in several]


def fitted(several: Sequence[Kernels], device: Device, kinds: Sequence[str]) -> Any:
    """Joint parameters that are fitted to some of the rows, in even steps."""
    count = sum(len(each.rest) for each in several)

    def some(limit: int) -> list[FitRows]:
        step = max(1, -(-count // limit))
        return fit_rows([each.select(np.arange(len(each.rest))[::step], device) for each in several], kinds)

    return fit(some(MAX_FIT_ROWS), some(MAX_SEARCH_ROWS), joint_model(kinds))


def folds(several: Sequence[Kernels], device: Device) -> dict[str, list[Kernels]]:
    """The rows by model; those of one model by its heads."""
    by_model: dict[str, list[Kernels]] = {}
    for each in several:
        by_model.setdefault(family(each.rows.texts["model"]), []).append(each)
    if len(by_model) > 1:
        return by_model
    by_heads: dict[str, list[Kernels]] = {}
    for each in several:
        odd = np.round(np.log2(each.rows.columns["heads"])).astype(int) % 2
        for number in np.unique(odd):
            by_heads.setdefault(str(number), []).append(each.select(np.flatnonzero(odd == number), device))
    return by_heads


def family(model: str) -> str:
    """A model without its formats: DeepSeek-V4-Flash-FP8 has the sizes of DeepSeek-V4-Flash."""
    name = model.rpartition("/")[2].removesuffix("-FP8").removesuffix("-NVFP4")
    return "GLM-5" if name.startswith("GLM-5") else name


class ModuleErrors(NamedTuple):
    """A fitted set by kind, and expected / measured of its modules, each model with parameters of the others."""

    timings: dict[str, Any]
    ratios: Array

    @property
    def fit(self) -> Fit:
        """The summary of the fit."""
        low, high = np.quantile(1 / self.ratios, (0.1, 0.9))
        numbers = np.abs(self.ratios - 1).mean(), min(low, 1), max(high, 1)
        error, low, high = (float(f"{number:.3g}") for number in numbers)
        return Fit(len(self.ratios), len(self.ratios), error, low, high, SOURCE, date.today().isoformat())


def cross_validated(several: Sequence[Kernels], device: Device, kinds: Sequence[str]) -> ModuleErrors:
    """The parameters fitted to all rows; the errors of each fold with those of the other folds."""
    timing, by_fold, ratios = fitted(several, device, kinds), folds(several, device), list[Array]()
    for fold, unseen in by_fold.items():
        others = [each for other, some in by_fold.items() if other != fold for each in some]
        by = fitted(others, device, kinds) if others else timing
        ratios += [each.ratios(by) for each in fit_rows(unseen, kinds)]
    return ModuleErrors({kind: part_of(timing, n, kind) for n, kind in enumerate(kinds)}, np.concatenate(ratios))


def by_set(folder: Path, stem: str, keys: str, phase: str, device: Device) -> dict[tuple[str, str], list[Kernels]]:
    """The rows of modules by kernel and format key of their sparse attention."""
    kinds, found = kinds_of(keys, phase), dict[tuple[str, str], list[Kernels]]()
    for module in MODULES[keys]:
        for rows in read(folder, module, phase, stem):
            if name := kernel_name(rows):
                for each, some in by_variant(rows, name, kinds[0]):
                    found.setdefault(each, []).append(kernels(some, device, kinds))
    return found


def by_variant(rows: Rows, name: str, kind: str) -> Iterator[tuple[tuple[str, str], Rows]]:
    """The rows by kernel and format key of their sparse attention; those of another kernel apart."""
    own = next(part for part in operators(rows) if parameter_sets.kind(part) == kind)
    key = operator_format_key(own, own.widths.compute)
    variant = parameter_sets.sparse_variant(own, name, key) if kind == "sparse_prefill" else None
    applies = np.broadcast_to(variant.applies if variant else False, rows.measured.shape)
    for other, mask in (((name, key), ~applies), (variant and (variant.implementation, variant.format_key), applies)):
        if other and mask.any():
            yield other, rows.select(np.flatnonzero(mask))


def kinds_of(keys: str, phase: str) -> list[str]:
    """The kinds of parameters that are fitted together."""
    ending = "decode" if phase == "generation" else "prefill"
    return [f"{keys}_{ending}", *([f"index_{ending}"] if keys == "block" else [])]


def refit(folder: Path, name: str) -> Iterator[str]:
    """Fit the sets of a device, and write its file; the errors, one line a set."""
    stem = next(stem for stem, device_name in DEVICES.items() if device_name == name)
    device = Device.load(name)
    sets: dict[str, dict[str, dict[str, Any]]] = {}
    for keys in MODULES:
        for phase in PHASES:
            for (kernel, key), several in by_set(folder, stem, keys, phase, device).items():
                found = cross_validated(several, device, kinds_of(keys, phase))
                for kind, timing in found.timings.items():
                    sets.setdefault(kind, {}).setdefault(kernel, {})[key] = Fitted(timing, found.fit)
                fit = found.fit
                yield (
                    f"  {keys} {phase} {kernel} {key}: {fit.error:.1%} of {fit.rows} rows of unseen models, "
                    f"interval {fit.low:.2f} to {fit.high:.2f}"
                )
    assert device.calibration
    for kind, kernel, key, before in device.calibration.sets():
        if not kind.startswith(tuple(MODULES)):
            sets.setdefault(kind, {}).setdefault(kernel, {}).setdefault(key, before)
    merged = {kind: sets[kind] for kind in TIMINGS if kind in sets}
    path = library.shipped_folder() / "fitted" / f"{name}.yaml"
    path.write_text(fitted_file(name, Calibration(name, **merged)), encoding="utf-8")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("devices", nargs="*", metavar="DEVICE", default=[*DEVICES.values()])
    arguments = parser.parse_args()
    for name in arguments.devices:
        for line in refit(arguments.folder, name):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
