"""Read the databases of AMD's profilers: rocpd, which rocprofv3 writes, and the older RPD of rocmProfileData.

rocpd (schemas 3 and 4; the names of the tables of a process end with its GUID):

    rocpd_kernel_dispatch, rocpd_memory_copy   activities, with agent, stream and event
    rocpd_region                               API calls and ROCTX ranges
    rocpd_event                                category, and `stack_id`, which an activity shares with its launch
    rocpd_pmc_event, rocpd_info_pmc            counters by event, one row for each instance of a counter
    rocpd_info_kernel_symbol, rocpd_info_agent, rocpd_info_process, rocpd_string
    rocpd_track, rocpd_timestamp, rocpd_info_category   in schema 4: where and when each of them is, and its category

RPD (schemas 1 and 2): rocpd_op has activities, rocpd_api calls and ranges, rocpd_api_ops which call launched which
activity, rocpd_kernelapi and rocpd_copyapi (schema 1: rocpd_copyop) the arguments of launches and copies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import AMD_ALTERNATIVE, COPY, KERNEL, MEMSET, Evidence, KernelTable
from roofmodel.profiles.nsys import add_activity, size
from roofmodel.profiles.nsys_database import Database, opened
from roofmodel.profiles.timelines.timeline import CALLS, RANGES, Timeline, check_times, with_launches

_DISPATCHES = "rocpd_kernel_dispatch"
_NAMELESS = "unnamed kernel"
_KERNEL_EXECUTION = "KernelExecution"  # type of the kernels of RPD, whose description is their name
LARGEST = 1e18  # of all counters
_PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")
_AGAIN = "profile again with `rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace -- COMMAND`"
_DIRECTIONS = {"hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD", "hosttohost": "HtoH"}
_IN_WORK_ITEMS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")  # calls that state so the size of their grid


def read(file: BinaryIO, name: str) -> Timeline:
    """The events of a database; kernels have the number of their dispatch, and their counters in upper case as metrics.

    Raises ProfileError for a damaged database, and for one without kernels and copies.
    """
    work, calls, ranges = KernelTable(), ColumnTable(CALLS), ColumnTable(RANGES)
    work.declare(dispatch=str)
    devices: dict[Evidence, None] = {}
    with opened(file, name, _AGAIN, _check) as database:
        processes = sorted(table for table in database.tables if table.startswith(_DISPATCHES))
        for number, table in enumerate(processes):
            prefix = f"{number}/" if number else ""  # each process numbers its dispatches from 1
            devices |= _add_process(database, table.removeprefix(_DISPATCHES), prefix, work, calls, ranges)
        if "rocpd_op" in database.tables:
            _add_rpd(database, work, calls, ranges)
        if not len(work):
            raise ProfileError(f"{name}: the database contains no kernels and no copies; {_AGAIN}")
        check_times(work, calls, ranges)
    timeline = Timeline(
        "rocprof", name, work, calls, range_table=ranges, evidence=tuple(devices), begin=min(work.stored("start"))
    )
    return with_launches(timeline)


def _check(database: Database, name: str) -> None:
    if "rocpd_op" not in database.tables and not any(table.startswith(_DISPATCHES) for table in database.tables):
        raise ProfileError(f"{name}: a database of AMD's profilers without kernels; {AMD_ALTERNATIVE}")


def _add_process(
    database: Database, guid: str, prefix: str, work: KernelTable, calls: ColumnTable, ranges: ColumnTable
) -> dict[Evidence, None]:
    """Add the tables of one process of a rocpd database; returns the GPUs that its kernels ran on."""

    def rows(table: str, *columns: str) -> Iterator[Any]:
        return database.rows(f"rocpd_{table}{guid}", columns)

    strings = {row["id"]: str(row["string"]) for row in rows("string", "id", "string")}
    events = {row["id"]: row for row in rows("event", "id", "category_id", "stack_id", "extdata")}
    processes = {row["id"]: row["pid"] for row in rows("info_process", "id", "pid")}
    agents = {row["id"]: row for row in rows("info_agent", "id", "type", "name", "product_name", "extdata")}
    symbols = {
        row["id"]: row for row in rows("info_kernel_symbol", "id", "kernel_name", "display_name", "arch_vgpr_count")
    }
    counters = _counters(database, guid)
    work.declare(**{counter: float for own in counters.values() for counter in own})
    categories = {row["id"]: str(row["name"]) for row in rows("info_category", "id", "name")} or strings
    tracks = {row["id"]: row for row in rows("track", "id", *_PLACE)}
    times = {row["id"]: row["value"] for row in rows("timestamp", "id", "value")}

    def placed(table: str, *columns: str) -> Iterator[dict[str, Any]]:
        for row in rows(table, *columns, *_PLACE, "start", "end", "event_id", "track_id", "start_id", "end_id"):
            cells = dict(zip(row.keys(), row, strict=True))
            if track := tracks.get(row["track_id"]):
                cells |= {name: track[name] for name in _PLACE}
                cells |= {"start": times.get(row["start_id"]), "end": times.get(row["end_id"])}
            yield cells | {"process": processes.get(cells["pid"], cells["pid"])}

    def activity(row: Mapping[str, Any], agent: object) -> dict[str, Any]:
        event = events.get(row["event_id"])
        return {
            "start": row["start"], "end": row["end"], "deviceId": agent,
            "streamId": row["queue_id"] if row["stream_id"] is None else row["stream_id"],
            "correlationId": event and event["stack_id"],
        }  # fmt: skip

    sizes = [f"{of}_size_{axis}" for of in ("grid", "workgroup") for axis in "xyz"]
    used: dict[object, None] = {}
    for row in placed("kernel_dispatch", "kernel_id", "dispatch_id", *sizes):
        symbol = symbols.get(row["kernel_id"])
        names = (symbol["display_name"], symbol["kernel_name"]) if symbol else ()
        used[row["agent_id"]] = None
        threads, block = [row[each] for each in sizes[:3]], [row[each] for each in sizes[3:]]
        add_activity(
            work, KERNEL, activity(row, row["agent_id"]), process=row["process"],
            name=str(next(filter(None, names), "")).removesuffix(".kd").strip() or _NAMELESS,
            registers=symbol and symbol["arch_vgpr_count"], grid=size(*_workgroups(threads, block)), block=size(*block),
            dispatch=f"{prefix}{row['dispatch_id']}", **counters.get(row["event_id"], {}),
        )  # fmt: skip
    for row in placed("memory_copy", "name_id", "src_agent_id", "dst_agent_id", "size"):
        ends = [agent for agent in (row["dst_agent_id"], row["src_agent_id"]) if _is_gpu(agents.get(agent))]
        direction, between = copy_direction(strings.get(row["name_id"], "")), {}
        if direction == "HtoH":  # of no GPU
            continue
        if len(ends) == 2 and ends[0] != ends[1]:
            direction, between = "PtoP", {"destination": ends[0], "source": ends[1]}
        add_activity(
            work, COPY, activity(row, ends[0] if ends else None), process=row["process"],
            name=copy_name(direction), bytes=row["size"], direction=direction,
            memory="device" if len(ends) == 2 else None, **between,
        )  # fmt: skip
    for row in placed("region", "name_id"):
        event, label = events.get(row["event_id"]), strings.get(row["name_id"], "")
        category = categories.get(event["category_id"], "") if event else ""
        place = {"start": row["start"], "end": row["end"], "process": row["process"], "thread": row["tid"]}
        if category.startswith("MARKER"):
            if label.startswith("roctx"):  # the function; its message is apart
                label = str(_parsed(event and event["extdata"]).get("message") or label)
            ranges.add(name=label, **place)
        elif category.startswith(("HIP", "HSA")):
            calls.add(name=label, correlation=event and event["stack_id"], **place)
    return {_evidence(agents[agent]): None for agent in used if agent in agents}


def _counters(database: Database, guid: str) -> dict[object, dict[str, float]]:
    """The counters of each event, summed over their instances."""
    names = {row["id"]: str(row["name"]).upper() for row in database.rows(f"rocpd_info_pmc{guid}", ("id", "name"))}
    counters: dict[object, dict[str, float]] = {}
    for row in database.rows(f"rocpd_pmc_event{guid}", ("event_id", "pmc_id", "value")):
        own, counter, value = (
            counters.setdefault(row["event_id"], {}),
            names.get(row["pmc_id"], ""),
            float(row["value"]),
        )
        if not 0 <= value <= LARGEST:
            raise ValueError("not a count")
        own[counter] = own.get(counter, 0.0) + value
    return counters


def _is_gpu(agent: Any) -> bool:
    return agent is not None and agent["type"] == "GPU"


def copy_direction(name: str) -> str | None:
    """The direction in `MEMORY_COPY_HOST_TO_DEVICE` and `CopyHostToDevice`."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((short for long, short in _DIRECTIONS.items() if long in plain), None)


def copy_name(direction: str | None) -> str:
    """How a timeline names a copy: `Memcpy HtoD`."""
    return f"Memcpy {direction or 'of unknown direction'}"


def _parsed(text: Any) -> Mapping[str, Any]:
    """The JSON object in a text; empty for anything else."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _workgroups(threads: list[Any], block: list[Any]) -> list[int | None]:
    """The grid in workgroups: AMD's tools state it in work items."""
    return [-(-items // each) if items and each else None for items, each in zip(threads, block, strict=True)]


def _evidence(agent: Any) -> Evidence:
    units, clock = (_parsed(agent["extdata"]).get(key) for key in ("cu_count", "max_engine_clk_fcompute"))
    return Evidence(
        name=agent["product_name"] or agent["name"],
        multiprocessors=units if isinstance(units, int) and units > 0 else None,
        clock=clock * 1e6 if isinstance(clock, int) and clock > 0 else None,
        amd=True,
    )


def _add_rpd(database: Database, work: KernelTable, calls: ColumnTable, ranges: ColumnTable) -> None:
    strings = {row["id"]: str(row["string"]) for row in database.rows("rocpd_string", ("id", "string"))}
    launch_columns = ("api_ptr_id", "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")
    launches = {row["api_ptr_id"]: row for row in database.rows("rocpd_kernelapi", launch_columns)}
    sizes = {row["api_ptr_id"]: row["size"] for row in database.rows("rocpd_copyapi", ("api_ptr_id", "size"))}
    op_sizes = {row["op_ptr_id"]: row["size"] for row in database.rows("rocpd_copyop", ("op_ptr_id", "size"))}
    call_of = {row["op_id"]: row["api_id"] for row in database.rows("rocpd_api_ops", ("op_id", "api_id"))}
    processes: dict[object, tuple[object, str]] = {}  # and the function, by call
    for row in database.rows("rocpd_api", ("id", "pid", "tid", "start", "end", "apiName_id", "args_id")):
        label, arguments = strings.get(row["apiName_id"], ""), strings.get(row["args_id"], "")
        processes[row["id"]] = row["pid"], label
        place = {"start": row["start"], "end": row["end"], "process": row["pid"], "thread": row["tid"]}
        if label == "UserMarker":
            ranges.add(name=arguments, **place)
        else:
            calls.add(name=label, correlation=row["id"], **place)
    columns = ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
    for row in database.rows("rocpd_op", columns):
        call, kind = call_of.get(row["id"]), strings.get(row["opType_id"], "")
        process, function = processes.get(call, (None, ""))
        activity = {
            "start": row["start"], "end": row["end"], "deviceId": row["gpuId"], "streamId": row["queueId"],
            "correlationId": call,
        }  # fmt: skip
        if "copy" in kind.lower():
            direction, moved = copy_direction(kind), sizes.get(call, op_sizes.get(row["id"]))
            if direction == "HtoH":  # of no GPU
                continue
            moved = moved if isinstance(moved, int) else None  # an empty text for more than 2 GiB
            cells = {"name": copy_name(direction), "bytes": moved, "direction": direction}
            add_activity(work, COPY, activity, process=process, **cells)
            continue
        if "fill" in kind.lower():
            add_activity(work, MEMSET, activity, process=process, name="Memset")
            continue
        label = strings.get(row["description_id"], "").strip()
        if not label and kind != _KERNEL_EXECUTION:  # barriers and markers
            continue
        launch = None if function == "hipGraphLaunch" else launches.get(call)
        grid, block = ([launch[each] for each in launch_columns[i : i + 3]] for i in (1, 4)) if launch else ([], [])
        if function in _IN_WORK_ITEMS:
            grid = _workgroups(grid, block)
        add_activity(
            work, KERNEL, activity, process=process, name=label or _NAMELESS,
            grid=size(*grid) if grid else None, block=size(*block) if block else None, dispatch=row["id"],
        )  # fmt: skip
