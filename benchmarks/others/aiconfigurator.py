"""Predictions of aiconfigurator (0.12.0 on PyPI; NVIDIA), which configures serving by tables of measured operators.

Its modes all run in the package: `SOL`, the speed of light; `EMPIRICAL`, the speed of light divided by the fraction
that its nearest measurements achieve; `SILICON`, the default, which interpolates measurements. Its tables contain our
rows of measurements: it gets copies without the cells that our fits hold out. It keeps all its other rows, many times
as many as our fits use.
"""

from __future__ import annotations

import contextlib
import csv
import logging
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.others import ToolMissing, config_folder
from benchmarks.served import ServedBatch
from roofmodel.measure.table import held_out

try:
    import aiconfigurator_core
    import pandas
    from aiconfigurator_core.sdk import common, config_builders, engine, models, operations
    from aiconfigurator_core.sdk.errors import PerfDataNotAvailableError
    from aiconfigurator_core.sdk.perf_database import get_database_view
except ImportError:
    aiconfigurator_core = None

MODES = ("SOL", "EMPIRICAL", "SILICON")
SYSTEMS = {
    "a100": "a100_sxm", "h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "gb200": "gb200",
    "b300": "b300_sxm", "l40s": "l40s", "rtx-pro-6000-server": "rtx_pro_6000_server",
}  # fmt: skip
_ATTENTION = {"batch_size": "batch", "num_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_dim"}
_TABLES = {  # by operation: its file, and its shape columns with our names
    "gemm": ("gemm_perf.parquet", {"m": "m", "n": "n", "k": "k"}),
    "attn_context": ("context_attention_perf.parquet", _ATTENTION),
    "attn_generation": ("generation_attention_perf.parquet", _ATTENTION),
    "moe": (
        "moe_perf.parquet",
        {
            "num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "inter", "topk": "topk",
            "num_experts": "experts", "moe_tp_size": "moe_tp", "moe_ep_size": "moe_ep",
        },
    ),
}  # fmt: skip


def require() -> None:
    """Raise ToolMissing if aiconfigurator is not installed."""
    if aiconfigurator_core is None:
        raise ToolMissing("aiconfigurator: pip install aiconfigurator (Linux on x86-64; the comparison used 0.12.0)")
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)


@contextlib.contextmanager
def without_unseen_cells(hw: str, op: str) -> Iterator[str]:
    """A copy of the package's systems folder; its table of this operation lacks the cells that our fits hold out."""
    require()
    packaged, (table, columns) = Path(aiconfigurator_core.__file__).parent / "systems", _TABLES[op]
    with tempfile.TemporaryDirectory() as folder:
        for source in filter(Path.is_file, packaged.rglob("*")):
            place = source.relative_to(packaged)
            if place.parts[0] == "data" and place.parts[1] != SYSTEMS[hw]:
                continue
            copy = Path(folder) / place
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.name == table:
                rows = pandas.read_parquet(source)
                rows[~held_out(_shape(rows, columns))].to_parquet(copy)
            else:
                copy.symlink_to(source)
        yield folder


def _shape(rows: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    shape = {ours: rows[theirs].to_numpy(dtype=float) for theirs, ours in columns.items()}
    if columns is _ATTENTION:
        shape["seq"] = rows["isl"].to_numpy(dtype=float)
        shape["kv_len"] = shape["seq"] + rows["step"].to_numpy(dtype=float)
        shape["window"] = rows["window_size"].to_numpy(dtype=float) if "window_size" in rows else 0 * shape["seq"]
    return shape


def operators(rows: Sequence[Mapping[str, str]], hw: str, mode: str, systems: str | None) -> Any:
    """Predicted seconds of each of these rows of a table of measurements, with the measured framework and kernel.

    NaN where the mode has no data that it can use.
    """
    require()
    predictions = np.full(len(rows), np.nan)
    batches: dict[tuple[str, tuple[Any, ...]], list[Any]] = defaultdict(list)
    for number, row in enumerate(rows):
        framework = row["framework"].split()[0]
        operator, how = _operation(row, str(number))
        batches[framework if framework in ("trtllm", "sglang") else "vllm", tuple(how.items())].append(operator)
    for (framework, how), some in batches.items():
        database = get_database_view(SYSTEMS[hw], framework, "current", systems_paths=systems, database_mode=mode)
        if isinstance(some[0], operations.ContextAttention | operations.GenerationAttention):
            engine._resolve_attention_lane_orders(some, database, None)
            for operator in some:  # its tables contain several kernels; the measured one comes first
                measured = rows[int(operator._name)]["kernel"]
                operator._lane_order = [measured, *(name for name in operator._lane_order if name != measured)]
        handle = engine.EngineHandle.for_database(database, systems_path=systems)
        for name, seconds in _evaluated(handle, some, dict(how)):
            predictions[int(name)] = seconds
    if rows[0]["op"] == "attn_context" and mode != "SOL":
        predictions -= [_rotary_and_cache_writes(row, database.system_spec["gpu"]) for row in rows]
    return predictions


def _evaluated(handle: Any, some: Sequence[Any], how: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Name and predicted seconds of these operations, without those for which it lacks data."""
    try:
        for name, milliseconds, *_ in handle.evaluate_ops_json(engine.build_ops_json(some), **how):
            yield name, milliseconds / 1e3
    except PerfDataNotAvailableError:  # one operation without data fails the whole list
        if len(some) > 1:
            half = len(some) // 2
            yield from _evaluated(handle, some[:half], how)
            yield from _evaluated(handle, some[half:], how)


def _operation(row: Mapping[str, str], name: str) -> tuple[Any, dict[str, Any]]:
    """A row as an aiconfigurator operation, and the arguments to evaluate it with."""
    c = {key: int(float(row[key])) for key in (*_SHAPE, *_ROUTED) if row.get(key)}
    how = {"is_context": True, "batch_size": 1, "s": 1, "prefix": 0, "x": None}
    dtype = {"float16": "bfloat16"}.get(row["dtype"], row["dtype"])
    if row["op"] == "gemm":
        return operations.GEMM(name, 1.0, c["n"], c["k"], common.GEMMQuantMode[dtype]), how | {"x": c["m"]}
    if row["op"] == "moe":
        gated = "nongated" not in row["kernel"]
        sizes = [c[key] for key in _ROUTED]
        kind = common.MoEQuantMode[dtype]
        return operations.MoE(name, 1.0, *sizes, kind, row["distribution"], 1, is_gated=gated), how | {"x": c["tokens"]}
    heads, cache = (c["heads"], c["kv_heads"]), common.KVCacheQuantMode[row["kv_dtype"]]
    ends = (c.get("window", 0), c["head_dim"])
    how["batch_size"] = c["batch"]
    if row["op"] == "attn_generation":
        operator = operations.GenerationAttention(name, 1.0, *heads, cache, *ends)
        return operator, how | {"is_context": False, "s": c["kv_len"]}
    operator = operations.ContextAttention(name, 1.0, *heads, cache, common.FMHAQuantMode[dtype], *ends)
    return operator, how | {"s": c["seq"], "prefix": c["kv_len"] - c["seq"]}


_SHAPE = ("m", "n", "k", "tokens", "batch", "heads", "kv_heads", "head_dim", "seq", "kv_len", "window")
_ROUTED = ("hidden", "inter", "topk", "experts", "moe_tp", "moe_ep")


def _rotary_and_cache_writes(row: Mapping[str, str], gpu: Mapping[str, float]) -> float:
    """Seconds that its prefill attention includes for rotary embedding and KV cache writes, which the table excludes.

    It is 1.1 times the time of four memory streams at the bandwidth and latency that its system states.
    """
    q, k = (int(row[heads]) * int(row["head_dim"]) for heads in ("heads", "kv_heads"))
    width = common.FMHAQuantMode[row["dtype"]].value.memory
    moved = 2 * (2 * q + 2 * k) + 2 * k * width
    bandwidth = gpu["mem_bw"] * gpu["mem_bw_empirical_scaling_factor"]
    return float(1.1 * (moved / bandwidth + 4 * gpu["mem_empirical_constant_latency"]))


def served(rows: Sequence[ServedBatch], mode: str) -> list[tuple[float, float]]:
    """TTFT and mean TPOT in seconds, from all its tables of TensorRT-LLM."""
    engines = {row[:3]: _engine(*row[:3], mode) for row in rows}
    latencies = []
    for row in rows:
        prefill, decode, _ = engines[row[:3]].run_static(batch_size=row.batch, isl=row.prompt, osl=row.new)
        latencies.append((prefill / 1e3, decode / 1e3 / (row.new - 1)))
    return latencies


def _engine(model: str, hw: str, precision: str, mode: str) -> Any:
    """A model on one GPU, compiled by the package."""
    require()
    kind = {"fp16": "bfloat16"}.get(precision, precision)
    config = config_builders.build_model_config(
        tp_size=1, pp_size=1, attention_dp_size=1, moe_tp_size=1, moe_ep_size=1, gemm_quant_mode=kind,
        kvcache_quant_mode=kind,
    )  # fmt: skip
    database = get_database_view(SYSTEMS[hw], "trtllm", "current", database_mode=mode)
    with config_folder(model) as folder:
        spec = engine.build_engine_spec_json(
            models.get_model(folder, config, "trtllm"), model_path=folder, system=SYSTEMS[hw], backend="trtllm",
            backend_version=database.version, kv_block_size=None, systems_path=None, nextn=0, database=database,
        )  # fmt: skip
    return engine.EngineHandle(bytes(aiconfigurator_core.engine_spec_bincode_from_json(spec)))


# --- Its search -------------------------------------------------------------------------------------

BEST = "best_config_topn.csv"


def search(
    model: str, hw: str, gpus: int, isl: int, osl: int, ttft: float, tpot: float
) -> dict[str, Mapping[str, str]]:
    """The row of the best configuration by mode, `agg` and `disagg`, of its command line with its defaults.

    A mode without a configuration that meets the targets (seconds) is missing.
    """
    if (command := shutil.which("aiconfigurator")) is None:
        raise ToolMissing("aiconfigurator: pip install aiconfigurator (Linux on x86-64; the comparison used 0.12.0)")
    arguments: dict[str, Any] = {
        "model": model, "system": SYSTEMS[hw], "total-gpus": gpus, "isl": isl, "osl": osl, "ttft": 1e3 * ttft,
        "tpot": 1e3 * tpot, "top-n": 1,
    }  # fmt: skip
    options = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [command, "cli", "default", *options, "--save-dir", folder], capture_output=True, text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        if done.returncode:
            raise ToolMissing(f"aiconfigurator: {done.stderr.strip().rpartition(chr(10))[2]}")
        return best_rows(Path(folder))


def best_rows(folder: Path) -> dict[str, Mapping[str, str]]:
    """The first row of the table of each mode, in the folder where its command line saved its results."""
    rows_by_mode = {}
    for path in folder.rglob(BEST):
        with path.open(newline="") as file:
            if row := next(csv.DictReader(file), None):
                rows_by_mode[path.parent.name] = row
    return rows_by_mode
