"""Sweeps and plans on a local Dask cluster equal those of one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.sweep import dask_cluster
from roofmodel.sweep.dask_cluster import _result, evaluate_on_cluster

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not errors


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def doubled(piece: int) -> int:
    return 2 * piece


def missing(piece: int) -> Any:
    import a_module_that_nobody_has

    return a_module_that_nobody_has


def test_results_are_in_the_order_of_the_pieces(address: str) -> None:
    assert list(evaluate_on_cluster(doubled, iter(range(50)), address)) == list(range(0, 100, 2))


def test_a_sweep_on_a_cluster_equals_a_local_sweep(address: str) -> None:
    options: dict[str, Any] = {"batch": "1:40", "seq": "1:40", "phase": "prefill", "dtype": "fp16,fp8"}
    local, on_cluster = (
        roofmodel.sweep("gpt2", ["a100", "h100"], cluster=cluster, **options) for cluster in (None, address)
    )
    assert on_cluster.to_dict() == local.to_dict()


def test_a_plan_on_a_cluster_equals_a_local_plan(address: str) -> None:
    options: dict[str, Any] = {"gpus": 1, "isl": 64, "osl": 16, "dtype": "fp16"}
    local, on_cluster = (roofmodel.plan("gpt2", "a100", cluster=cluster, **options) for cluster in (None, address))
    assert on_cluster.to_dict() == local.to_dict()


def test_a_local_cluster_is_started_on_request() -> None:
    local, on_cluster = (roofmodel.sweep("gpt2", "a100", batch=[1, 2], cluster=cluster) for cluster in (None, "local"))
    assert on_cluster.to_dict() == local.to_dict()


def test_workers_with_missing_packages_are_named(address: str) -> None:
    with pytest.raises(WorkloadError, match=r"cannot import .*a_module_that_nobody_has"):
        list(evaluate_on_cluster(missing, [1], address))


def dies(piece: int) -> int:
    os._exit(piece)


def test_failed_workers_are_a_one_line_error() -> None:
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        cluster.scheduler.allowed_failures = 0
        with pytest.raises(WorkloadError, match=r"workers died repeatedly"):
            list(evaluate_on_cluster(dies, [1], cluster.scheduler_address))


@pytest.mark.parametrize("error", [distributed.comm.CommClosedError("in <TCP>: closed"), distributed.CancelledError()])
def test_a_lost_scheduler_is_a_one_line_error(error: Exception) -> None:
    class Future:
        def result(self) -> None:
            raise error

    with pytest.raises(
        WorkloadError, match=r'cluster="tcp://a:1": connection to the scheduler lost \(.+\); restart the scheduler'
    ):
        _result(Future(), "tcp://a:1")


def test_an_unreachable_scheduler_is_quoted_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_TIMEOUT", 1)
    with pytest.raises(WorkloadError, match=r'cluster="tcp://127\.0\.0\.1:9": no Dask scheduler answers at'):
        list(evaluate_on_cluster(doubled, [1], "tcp://127.0.0.1:9"))
