"""Many launches as arrays: equal to single kernels, with little memory."""

import csv
import io
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles import kernel as kernel_module
from roofmodel.profiles import streams
from roofmodel.profiles.kernel import Flops, Kernel, Profile, Traffic
from roofmodel.profiles.ncu import metrics
from roofmodel.profiles.ncu import reader as ncu
from roofmodel.profiles.ncu.kernel_arrays import DivergentBranch, LaunchArray
from roofmodel.profiles.ncu.launch_tables import LaunchTable
from roofmodel.profiles.ncu.layouts import LongReader
from roofmodel.profiles.ncu.rows import RowReader
from roofmodel.profiles.timelines.kernels import profile as profiled
from roofmodel.roofline.points import GROUPINGS, group, group_name
from tests import kernels as make
from tests.profiles.ncu.samples import HEADER, RULES, launch, read, read_file, row

THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = "sm__inst_executed_pipe_tensor{}.sum"
NAMES = [
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.avg",
    "sm__cycles_elapsed.avg.per_second",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__bytes.sum.per_second",
    "lts__t_sectors.sum",
    "launch__registers_per_thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    *(THREADS.format(op) for op in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma")),
    THREADS.format("ffma") + ".per_cycle_elapsed",
    *(TENSOR.format(kind) for kind in ("", "_op_hmma", "_op_hmma_type_hfma2", "_op_imma")),
    "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_int4.sum",
]
VALUES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.0, 1.0, 7.0, 0.5, 1e9]), max_size=12)
KINDS = st.builds(
    dict,
    name=st.sampled_from(["gemm", "void relu<float>(T *)", "softmax"]),
    nvtx=st.sampled_from([(), ("step",), ("step", "layer")]),
    capability=st.sampled_from([None, "7.0", "8.0", "9.0", "10.0"]),
    invocations=st.sampled_from([1, 3]),
)


def table(launches) -> LaunchTable:
    found = LaunchTable("file.csv", summary=False)
    for number, (kind, values) in enumerate(launches):
        found.launches.declare(**dict.fromkeys(values, float))
        found.launches.add(file="file.csv", number=number, **kind, **values)
    return found


@pytest.fixture(params=[1, 1000], ids=["as arrays", "one by one"])
def many(request, monkeypatch):
    monkeypatch.setattr(ncu, "MANY", request.param)


# --- meaning ----------------------------------------------------------------------------------------------------


@given(launches=st.lists(st.tuples(KINDS, VALUES), min_size=1, max_size=12))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_launches_read_together_equal_launches_read_singly(many, launches):
    profile = profiled(ncu.timeline([table(launches)], ["file.csv"]))
    notes, raw = Counter(), []
    for kernel, (kind, values) in zip(profile.kernels, launches, strict=True):
        times = kind["invocations"]
        alone = metrics.interpret(values, kind["capability"], times > 1)
        notes.update(alone.notes)
        assert kernel.flops == Flops(*(None if n is None else n * times for n in alone.flops))
        assert kernel.bytes == Traffic(*(None if n is None else n * times for n in alone.bytes))
        seconds = alone.numbers["seconds"]
        fields = {**alone.numbers, "seconds": None if seconds is None else seconds * times}
        raw.append(make.kernel(invocations=times, **fields))
        expected = make.changed(raw[-1])
        expected.table.without_impossible_values()
        assert all(getattr(kernel, name) == getattr(expected, name) for name in fields)
    share = {note: f" ({n} of {len(launches)} kernels)" if n < len(launches) else "" for note, n in notes.items()}
    impossible = make.table(raw).without_impossible_values()
    assert set(profile.warnings) == {note + share[note] for note in notes} | {*impossible}


def test_branches_of_an_array_are_uniform_or_refused():
    assert bool(np.array([1.0, 2.0]).view(LaunchArray))
    assert not np.array([0.0, 0.0]).view(LaunchArray)
    with pytest.raises(DivergentBranch) as raised:
        max(np.array([-1.0, 5.0]).view(LaunchArray), 0)
    assert raised.value.mask.tolist() == [True, False]


# --- sums -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", GROUPINGS)
@given(launches=st.lists(st.tuples(KINDS, VALUES), min_size=1, max_size=12))
@settings(deadline=None)
def test_sums_of_columns_are_the_sums_of_their_kernels(by, launches):
    def total(values):
        return None if None in values else sum(values)

    kernels = profiled(ncu.timeline([table(launches)], ["file.csv"])).kernels
    members: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        members.setdefault(group_name(kernel, by), []).append(kernel)
    with pytest.MonkeyPatch.context() as patch:
        few = group(kernels, by)
        patch.setattr(kernel_module, "MANY", 1)
        assert list(group(kernels, by)) == list(few)
    times = {name: total([kernel.seconds for kernel in every]) for name, every in members.items()}
    assert [one.name for one in few] == sorted(members, key=lambda name: -(times[name] or 0))
    for one in few:
        every = members[one.name]
        assert one.invocations == sum(kernel.invocations for kernel in every)
        assert one.registers == max((k.registers for k in every if k.registers is not None), default=None)
        seconds = times[one.name]
        resident = total([None if k.occupancy is None else k.occupancy * (k.seconds or 0) for k in every])
        occupancy = resident / seconds if resident is not None and seconds else None
        flops = [*map(total, zip(*(kernel.flops for kernel in every), strict=True))]
        traffic = [*map(total, zip(*(kernel.bytes for kernel in every), strict=True))]
        assert (one.seconds, one.occupancy, [*one.flops], [*one.bytes]) == (seconds, occupancy, flops, traffic)


@given(launches=st.lists(st.tuples(KINDS, VALUES), min_size=1, max_size=12), most=st.integers(1, 5))
@settings(deadline=None)
def test_the_longest_of_columns_are_the_longest_of_their_kernels(launches, most):
    kernels = profiled(ncu.timeline([table(launches), table(launches[::-1])], ["one.csv", "other.csv"])).kernels
    longest = sorted(kernels, key=lambda kernel: kernel.seconds or 0, reverse=True)[:most]
    assert [kernel.row for kernel in kernels.longest(most)] == [kernel.row for kernel in longest]


# --- reading ----------------------------------------------------------------------------------------------------


def careful(text: str) -> Profile | str:
    """The result of a file read only by the general parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LongReader, "read_known_rows", RowReader.read_known_rows)
        patch.setattr(streams, "cells", by_the_library)
        return outcome(text)


def by_the_library(line: str) -> list[str] | None:
    try:
        (found,) = csv.reader(io.StringIO(line, newline=""), strict=True)
    except (csv.Error, ValueError):
        return None
    return found


def outcome(text: str) -> Profile | str:
    try:
        found = read(text)
    except ProfileError as error:
        return str(error)
    return found


@given(st.text(alphabet='",a \n', max_size=20))
def test_plain_rows_have_the_cells_that_the_csv_module_finds(text):
    for line in (text, f'"{text}"\n', f'"{text}","{text}"\n'):
        found = streams.cells(line)
        of_library = by_the_library(line)
        damaged = of_library is not None and any('"' in cell for cell in of_library)  # a quote in a cell without quotes
        assert found == of_library or (found is None and damaged)


VALUE = st.sampled_from(["7", "1,234", "1,234.5", "65.77", "n/a", "7 (0: 3; 1: 4)", " 8 ", "", '9""', "٣", "1e3", "x"])
ROWS = st.builds(
    lambda number, name, cc, metric, value, end: f'{launch(number, name, cc=cc)},"Section",{metric},"{value}"{end}',
    st.integers(0, 2),
    st.sampled_from(["gemm", "gemm", "gemm", 'relu<""x"", y>', "two\nlines"]),
    st.sampled_from(["8.0", "8.0", "8.0", "9.0"]),
    st.sampled_from(['"dram__bytes.sum","byte"', '"gpu__time_duration.sum","us"', '"Other","%"', '"",""', '"a""b",""']),
    VALUE,
    st.sampled_from(["\n", "\n", "\n", ",\n", ',"Rule","OPT","advice","",""\n', ',"', "", ", \n"]),
)
OTHER = st.sampled_from(["loss 2.31\n", "==PROF== done\n", "\n", '"', '"0",\n', HEADER])


@given(st.sampled_from([HEADER, HEADER[:-1] + RULES]), st.lists(st.one_of(ROWS, ROWS, ROWS, OTHER), max_size=14))
@settings(deadline=None, max_examples=400)
def test_fast_and_general_row_parsers_agree(header, rows):
    text = header + "".join(rows)
    assert outcome(text) == careful(text)


def test_ids_that_do_not_rise_are_looked_up():
    numbers = (5, 3, 9, 3, 5)
    profile = read(HEADER + "".join(row("dram__bytes.sum", "byte", str(n), number=n) for n in numbers))
    assert [(kernel.id, kernel.bytes.dram) for kernel in profile.kernels] == [("5", 5), ("3", 3), ("9", 9)]
    assert any("repeats the launch" in warning for warning in profile.warnings)


def test_a_launch_takes_less_than_two_hundred_bytes():
    def peak(launches: int) -> int:
        rows = (row("dram__bytes.sum", "byte", str(1000 + n), number=n) for n in range(launches))
        text = (HEADER + "".join(rows)).encode()
        tracemalloc.start()
        kernels = read_file(io.BytesIO(text), "file.csv").kernels
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(kernels) == launches
        return size

    assert (peak(9000) - peak(3000)) / 6000 < 200
