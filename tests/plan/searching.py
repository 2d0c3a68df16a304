"""The searches of a plan, with the options of a request as keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.options.values import MTP
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.plan import plan as search
from roofmodel.plan.request import ServiceRequest, TrainingRequest, request_of
from roofmodel.plan.training import TrainingPlan
from roofmodel.plan.training import plan_training as search_training


def plan(
    arch: Architecture, devices: Sequence[Device], draft: Architecture | str | None = None, **options: Any
) -> ServingPlan:
    """The plan of a service; `draft` is a model or "mtp"."""
    drafter = draft if isinstance(draft, Architecture) else None
    assert draft in (None, MTP) or drafter
    options["draft"] = drafter.name if drafter else draft
    return search(arch, devices, request_of(ServiceRequest, options, "service"), drafter)


def plan_training(arch: Architecture, devices: Sequence[Device], **options: Any) -> TrainingPlan:
    """The plan of a training run."""
    return search_training(arch, devices, request_of(TrainingRequest, options, "training"))
