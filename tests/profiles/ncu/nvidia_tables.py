"""NVIDIA's own metric tables, by chip: `libnvperf_host`, which CUPTI and Nsight Compute share. Needs no GPU.

The library comes with a CUDA toolkit and with two wheels of the development environment: nvidia-cuda-cupti-cu12,
which knows the V100, and ncu-report, which knows newer chips. ROOF_NVPERF lists further files, separated by colons.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint8, c_uint16, c_void_p
from functools import cache
from pathlib import Path


class _Structure(ctypes.Structure):
    """A parameter block: its size, a private pointer, and the fields of the header file."""

    @classmethod
    def of(cls, **fields: object) -> _Structure:
        return cls(structSize=ctypes.sizeof(cls), **fields)


def _block(*fields: tuple[str, object]) -> type[_Structure]:
    return type("Block", (_Structure,), {"_fields_": [("structSize", c_size_t), ("pPriv", c_void_p), *fields]})


_Chips = _block(("names", POINTER(c_char_p)), ("count", c_size_t))
_Scratch = _block(("chip", c_char_p), ("image", c_void_p), ("size", c_size_t))
_Initialize = _block(
    ("scratch", c_void_p), ("scratchSize", c_size_t), ("chip", c_char_p), ("image", c_void_p), ("data", c_void_p),
    ("dataSize", c_size_t), ("evaluator", c_void_p),
)  # fmt: skip
_Request = _block(("evaluator", c_void_p), ("name", c_char_p), ("request", c_void_p), ("size", c_size_t))


class _Evaluated(ctypes.Structure):
    _fields_ = (("index", c_size_t), ("type", c_uint8), ("rollup", c_uint8), ("submetric", c_uint16))


class Tables:
    """The metric tables of one library."""

    def __init__(self, path: Path) -> None:
        self.path, self._library, self._evaluators = path, ctypes.CDLL(str(path)), {}
        self._call("NVPW_InitializeHost", _block().of())
        found = _Chips.of()
        self._call("NVPW_GetSupportedChipNames", found)
        self.chips = frozenset(found.names[i].decode() for i in range(found.count))

    def has(self, chip: str, metric: str) -> bool:
        """Whether the chip has a metric of this full name, roll-up and sub-metric included."""
        evaluated = _Evaluated()
        block = _Request.of(
            evaluator=self._evaluator(chip)[0],
            name=metric.encode(),
            request=ctypes.addressof(evaluated),
            size=_Evaluated.submetric.offset + 2,
        )
        return self._library.NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(byref(block)) == 0

    def _evaluator(self, chip: str) -> tuple[int, object]:
        if chip not in self._evaluators:
            size = _Scratch.of(chip=chip.encode())
            self._call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", size)
            scratch = ctypes.create_string_buffer(size.size)
            made = _Initialize.of(scratch=ctypes.addressof(scratch), scratchSize=size.size, chip=chip.encode())
            self._call("NVPW_CUDA_MetricsEvaluator_Initialize", made)
            self._evaluators[chip] = made.evaluator, scratch
        return self._evaluators[chip]

    def _call(self, name: str, block: _Structure) -> None:
        status = getattr(self._library, name)(byref(block))
        if status != 0:
            raise OSError(f"{self.path}: {name} failed with status {status}")


@cache
def libraries() -> tuple[Tables, ...]:
    """Every copy of the library on this machine."""
    given = [Path(path) for path in os.environ.get("ROOF_NVPERF", "").split(":") if path]
    places = [*sys.path, "/usr/local"]
    patterns = [f"{folder}/libnvperf_host.so" for folder in ("ncu_report", "nvidia/*/lib", "cuda*/lib*")]
    found = [path.resolve() for place in places for pattern in patterns for path in sorted(Path(place).glob(pattern))]
    return tuple(Tables(path) for path in dict.fromkeys([*given, *found]))
