"""Reports (`.ncu-rep`): intact ones by a test double of NVIDIA's package, damaged ones by the package itself.

The repository contains no report. A real one was checked by hand: a sum of two 1000 × 1000 matrices has 10^6 FLOPs, as
in its table. The tests compare a report with a table of the same content.
"""

import csv
import gzip
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofmodel.errors import ProfileError
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Evidence
from roofmodel.profiles.ncu import report
from roofmodel.profiles.signatures import NCU_REPORT
from tests import kernels as make
from tests.profiles.ncu.samples import read_file
from tests.profiles.samples import measured

BY_HAND = Path(__file__).parents[3] / "examples" / "ncu_by_hand.csv"


class IMetric:
    def __init__(self, value, unit):
        self._value, self._unit = value, unit

    def value(self):
        return self._value

    def unit(self):
        return self._unit


class INvtxDomainInfo:
    def __init__(self, started=(), pushed=()):
        self._started, self._pushed = started, pushed

    def start_end_ranges(self):
        return self._started

    def push_pop_ranges(self):
        return self._pushed


class INvtxState:
    def __init__(self, *domains):
        self._domains = dict(enumerate(domains))

    def domains(self):
        return tuple(self._domains)

    def domain_by_id(self, id):
        return self._domains[id]


class IAction:
    NameBase_DEMANGLED = 1

    def __init__(self, name="gemm", metrics=(), nvtx=None):
        self._name, self._metrics, self._nvtx = name, dict(metrics), nvtx

    def name(self, base=0):
        return self._name

    def metric_names(self):
        return tuple(self._metrics)

    def metric_by_name(self, metric_name):
        return IMetric(*self._metrics[metric_name]) if metric_name in self._metrics else None

    def nvtx_state(self):
        return self._nvtx

    def source_info(self, address):
        return (
            SimpleNamespace(file_name=lambda: "/home/someone/gemm.cu", line=lambda: address // 16) if address else None
        )

    def sass_by_pc(self, address):
        return "  EXIT ;  "


class Instances(IMetric):
    """A metric with a value for each address."""

    def __init__(self, values):
        super().__init__(sum(values.values()), "warp")
        self._values = values

    def num_instances(self):
        return len(self._values)

    def as_double(self, instance):
        return float([*self._values.values()][instance])

    def as_uint64(self, instance):
        return [*self._values][instance]

    def correlation_ids(self):
        return self


class Sampled(IAction):
    def __init__(self, stalls):
        super().__init__("gemm", dict.fromkeys(stalls, (0, "warp")))
        self._stalls = stalls

    def metric_by_name(self, metric_name):
        return Instances(self._stalls[metric_name]) if metric_name in self._stalls else None


def test_the_lines_with_most_stalled_warps_are_listed():
    """60 + 20 of 100 samples at line 2 (addresses 32 and 40), 15 at line 3, 5 at an instruction without a line."""
    stalls = {
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": {32: 60, 48: 10, 0: 5},
        "smsp__pcsamp_warps_issue_stalled_wait": {40: 20, 48: 5},
        "smsp__pcsamp_warps_issue_stalled_wait_not_issued": {48: 1000},
        "smsp__pcsamp_warps_issue_stalled_selected": {48: 1000},
    }
    lines = report._lines(Sampled(stalls), [*stalls])
    assert [(line.place, line.share) for line in lines] == [("gemm.cu:2", 0.8), ("gemm.cu:3", 0.15), ("EXIT ;", 0.05)]
    executed = {"inst_executed": {32: 3, 48: 1}}
    assert [line.measure for line in report._lines(Sampled(executed), [*executed])] == 2 * ["instructions"]


def number(text):
    """A cell as the package returns it: a float, an integer where a table has attributes, text, None for nothing."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text or None


def as_actions(table: str):
    """A report of the same launches as a table of `--page raw`."""
    columns, units, *rows = csv.reader(io.StringIO(table))
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        metrics = {n: (number(v), u) for n, v, u in zip(columns, row, units, strict=True) if "__" in n}
        for which in ("Grid", "Block"):
            for axis, size in zip("xyz", cells.get(f"{which} Size", "").strip("()").split(", "), strict=False):
                metrics.setdefault(f"launch__{which.lower()}_dim_{axis}", (number(size), ""))
        for column, name in (("Device", "launch__device_id"), ("Stream", "launch__stream_id")):
            metrics.setdefault(name, (number(cells.get(column, "")), ""))
        if cc := cells.get("CC"):
            for part, value in zip(("major", "minor"), cc.split("."), strict=True):
                metrics[f"device__attribute_compute_capability_{part}"] = (int(value), "")
        yield IAction(cells["Kernel Name"], metrics)


@pytest.fixture
def holding(monkeypatch):
    """A test double of the package with these results; it opens only files with a report's header."""

    def install(*parts):
        def load_report(path):
            assert Path(path).read_bytes().startswith(NCU_REPORT)
            return [list(part) for part in parts]

        monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=load_report))
        return io.BytesIO(NCU_REPORT + b"\2\0\0\0")

    return install


def comparable(profile):
    return [make.changed(kernel, file="", process=None) for kernel in profile.kernels]


def test_the_test_double_has_only_attributes_of_the_package():
    package = pytest.importorskip("ncu_report", reason="ncu-report is not installed: pip install ncu-report")
    for test_double in (IMetric, INvtxDomainInfo, INvtxState, IAction):
        original = getattr(package, test_double.__name__)
        assert [name for name in vars(test_double) if not name.startswith("_") and not hasattr(original, name)] == []
    assert callable(package.load_report)
    assert hasattr(package.IContext, "__iter__")
    assert hasattr(package.IRange, "__iter__")


def test_a_report_equals_its_exported_table(holding):
    text = BY_HAND.read_text()
    report = read_file(holding(as_actions(text)), "r.ncu-rep", None)
    table = read_file(io.BytesIO(text.encode()), "t.csv")
    assert comparable(report) == comparable(table)
    assert report.warnings == table.warnings
    assert report.kernels[0].flops.fp32 == 2 * 2**24  # saxpy: one multiply-add for each of 2^24 elements


def test_a_report_of_a_network_equals_its_exported_table(holding):
    file = measured("ncu/a100_40_resnet18_raw_wide.csv")
    text = file.read_text()
    report = read_file(holding(as_actions(text)), "r.ncu-rep")
    table = read_file(io.BytesIO(text.encode()), "t.csv")
    assert len(report.kernels) > 100
    assert comparable(report) == comparable(table)
    assert report.evidence == table.evidence


def test_results_are_numbered_across_all_parts(holding):
    time = {"gpu__time_duration.sum": (3232, "ns")}
    stream = holding([IAction("a", time), IAction("b", time)], [IAction("c", time)])
    kernels = read_file(stream, "r").kernels
    assert [(kernel.id, kernel.name) for kernel in kernels] == [("0", "a"), ("1", "b"), ("2", "c")]
    assert {kernel.seconds for kernel in kernels} == {3232e-9}


def test_ranges_are_listed_outermost_first(holding):
    state = INvtxState(INvtxDomainInfo(("epoch",), ("step", "mlp")), INvtxDomainInfo(("job",), ()))
    metrics = {"gpu__time_duration.sum": (1.0, "ns")}
    assert read_file(holding([IAction("k", metrics, state)]), "r").kernels[0].nvtx == ("epoch", "job", "step", "mlp")


def test_uncollected_metrics_are_unknown_and_not_zero(holding):
    names = {
        "dram__bytes.sum": (float("nan"), "byte"),
        "lts__t_bytes.sum": (0, "byte"),
        "l1tex__t_bytes.sum": (None, ""),
    }
    moved = read_file(holding([IAction("k", names)]), "r").kernels[0].bytes
    assert (moved.dram, moved.l2, moved.l1) == (None, 0, None)


def test_a_report_names_its_device(holding):
    attributes = {
        "display_name": "NVIDIA GeForce RTX 3070",
        "compute_capability_major": 8,
        "compute_capability_minor": 6,
        "multiprocessor_count": 46,
        "max_gpu_frequency_khz": 1725000,
    }
    metrics = {f"device__attribute_{name}": (value, "") for name, value in attributes.items()}
    seen = read_file(holding([IAction("k", metrics)] * 2), "r").evidence
    assert seen == (
        Evidence(name="NVIDIA GeForce RTX 3070", compute_capability="8.6", multiprocessors=46, clock=1725e6),
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_in_place_and_a_compressed_one_from_a_copy(holding, tmp_path, packed):
    content = holding([IAction("k", {"gpu__time_duration.sum": (1.0, "ns")})]).getvalue()
    file = tmp_path / "renamed.bin"  # its content says what it is
    file.write_bytes(gzip.compress(content) if packed else content)
    assert [kernel.name for kernel in reading.read([file]).kernels] == ["k"]


def test_without_the_package_the_message_says_what_to_install_or_to_run(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    file = tmp_path / "my run.ncu-rep"
    file.write_bytes(NCU_REPORT)
    with pytest.raises(ProfileError) as caught:
        reading.read([file])
    assert "pip install ncu-report" in str(caught.value)
    assert f"ncu --import '{file}' --csv --page raw" in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "no results.*newer Nsight Compute"),
        ([[]], "no results"),
        ([[IAction("k"), IAction(None)]], "result 1 has no name: the report is cut short"),
        ([[IAction("k", {"dram__bytes.sum": (1, "parsec")})]], "dram__bytes.sum is in 'parsec'"),
    ],
)
def test_a_damaged_report_is_refused(holding, parts, says):
    with pytest.raises(ProfileError, match=says):
        read_file(holding(*parts), "r.ncu-rep")


def test_the_package_refuses_a_file_that_only_begins_like_a_report():
    pytest.importorskip("ncu_report", reason="ncu-report is not installed: pip install ncu-report")
    for tail in (b"", b"\2\0\0\0", b"no report at all" * 100):
        with pytest.raises(ProfileError, match="no results"):
            read_file(io.BytesIO(NCU_REPORT + tail), "r.ncu-rep")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reads a report in a process of its own")
def test_a_report_that_crashes_the_package_is_refused(monkeypatch):
    package = SimpleNamespace(load_report=lambda path: os._exit(134))
    monkeypatch.setitem(sys.modules, "ncu_report", package)
    with pytest.raises(ProfileError, match="the report is damaged: ncu-report aborted; or run: ncu --import"):
        read_file(io.BytesIO(NCU_REPORT + b"\2\0\0\0"), "r.ncu-rep")
