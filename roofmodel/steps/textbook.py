"""Textbook kernels by name, where a model is expected: the format in which they compute, and errors."""

from __future__ import annotations

import os

from roofmodel.counting import textbook_kernels
from roofmodel.counting.tensors import COMPUTE_FORMATS
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError, choices
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.options.values import MAX_VALUE, check_one_of, check_whole_number


def load_model(model: str | os.PathLike[str], family: str | None) -> Architecture:
    """The architecture of a model. The ModelError for an unknown name also lists the textbook kernels."""
    try:
        return hub.load(model, family)
    except hub.UnknownModel as error:
        known_kernels = choices(str(model), textbook_kernels.KERNELS, 0.7).replace(" known: ", " known kernels: ")
        raise ModelError(f"{error}; and no kernel of that name{known_kernels}") from None


def default_dtype(kernel: str, device: Device | None) -> str:
    """The format of a textbook kernel without `dtype`: fp16 of GEMMs; of others fp64, as in the literature on stencils
    and STREAM, where the device has a pipe for it."""
    is_double = textbook_kernels.KERNELS[kernel].kind != "gemm" and (device is None or "fp64" in device.types)
    return "fp64" if is_double else "fp16"


def check_kernel(size: object, dtype: str) -> None:
    """Raises WorkloadError for an invalid size or format of a textbook kernel."""
    check_whole_number("n", size, 1, MAX_VALUE)
    check_one_of("dtype", dtype, COMPUTE_FORMATS)
