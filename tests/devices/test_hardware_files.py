"""The device files that come with roofmodel, against arithmetic and against an independent table.

Files are read here with PyYAML and a reader of quantities of this test's own, so that a mistake in
roofmodel's reader cannot hide one in a file. Set ROOF_MEASURED to the folder of hardware_facts.csv;
the tests that want it skip without it.
"""

from __future__ import annotations

import csv
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.devices.schema import findings, load_file
from roofmodel.errors import DeviceError

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "hardware").glob("*.yaml"))
FACTS = Path(os.environ.get("ROOF_MEASURED", ROOT.parent / "shared" / "measured")) / "hardware_facts.csv"
DATASHEET_ROUNDING = 0.025  # the coarsest one: 33.45 TFLOP/s is printed as 34

by_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])

NAMES = [
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-pcie-16gb",
    "v100-pcie-32gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "h100-sxm",
    "h100-pcie",
    "h200",
]


@pytest.fixture(autouse=True)
def _no_files_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def raw(file: Path) -> dict[str, Any]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def exact(text: str) -> Fraction:
    """`312 TFLOP/s` -> 312 × 10¹², whatever the unit."""
    number, unit = text.split()
    for base in ("FLOP/clock", "OP/clock", "B/clock", "FLOP/s", "OP/s", "B/s", "Hz", "bit", "B"):
        if unit.endswith(base):
            return Fraction(number) * POWERS[unit.removesuffix(base)]
    raise AssertionError(text)


# --- Each file --------------------------------------------------------------------------------------


@by_file
def test_a_file_leaves_no_doubt(file: Path) -> None:
    assert findings(load_file(file)) == []


@by_file
def test_every_number_names_a_source_that_is_listed(file: Path) -> None:
    content = raw(file)
    sections = [content["pipes"], content.get("sparse_pipes", {}), content["memory"], content.get("links", {})]
    rows = [row for section in sections for row in section.values()] + content.get("measured", [])
    assert all(row["source"] in content["sources"] for row in rows)
    assert {row["source"] for row in rows} == set(content["sources"])  # none is listed for nothing
    assert all(str(source).strip() for source in content["sources"].values())


@by_file
def test_every_peak_is_multiprocessors_times_clock_times_rate(file: Path) -> None:
    content = raw(file)
    for section in ("pipes", "sparse_pipes"):
        for name, pipe in content.get(section, {}).items():
            clock = exact(content["clocks"][pipe["clock"]])
            computed = content["multiprocessors"] * clock * exact(pipe["per_multiprocessor"])
            assert abs(computed / exact(pipe["peak"]) - 1) <= DATASHEET_ROUNDING, name


@by_file
def test_the_bandwidth_is_bus_width_times_data_rate(file: Path) -> None:
    dram = raw(file)["memory"]["dram"]
    computed = exact(dram["bus"]) / 8 * exact(dram["clock"]) * dram["transfers_per_clock"]
    assert abs(computed / exact(dram["bandwidth"]) - 1) <= DATASHEET_ROUNDING


@by_file
def test_a_file_is_read_as_it_is_written(file: Path) -> None:
    content, device = raw(file), load_file(file)
    assert (device.id, device.name) == (file.stem, content["name"])
    assert device.multiprocessors == content["multiprocessors"]
    for section, pipes in (("pipes", device.pipes), ("sparse_pipes", device.sparse_pipes)):
        assert {n: Fraction(p.peak) for n, p in pipes.items()} == {
            n: exact(p["peak"]) for n, p in content.get(section, {}).items()
        }
    assert device.bandwidth == exact(content["memory"]["dram"]["bandwidth"])
    assert device.capacity == exact(content["memory"]["dram"]["capacity"])
    l1, l2 = content["memory"]["l1"], content["memory"]["l2"]
    assert device.levels["l2"].capacity == exact(l2["capacity"])
    if "bandwidth_per_clock" in l2:
        assert device.levels["l2"].bandwidth == exact(l2["bandwidth_per_clock"]) * exact(content["clocks"][l2["clock"]])
    else:
        assert device.levels["l2"].bandwidth is None
    assert device.levels["l1"].capacity == content["multiprocessors"] * exact(l1["capacity_per_multiprocessor"])
    assert device.levels["l1"].bandwidth == (
        content["multiprocessors"]
        * exact(l1["bandwidth_per_clock_per_multiprocessor"])
        * exact(content["clocks"][l1["clock"]])
    )
    assert {n: Fraction(link.bandwidth) for n, link in device.links.items()} == {
        n: exact(link["bandwidth"]) for n, link in content.get("links", {}).items()
    }
    assert [(m.ceiling, m.by, Fraction(m.value)) for m in device.measured] == [
        (m["ceiling"], m["by"], exact(m["value"])) for m in content.get("measured", [])
    ]


@by_file
def test_what_was_measured_does_not_beat_what_is_stated(file: Path) -> None:
    device = load_file(file)
    for measured in device.measured:
        if measured.ceiling in device.levels:
            stated = device.levels[measured.ceiling].bandwidth
        else:
            stated = device.pipes[measured.ceiling].peak
        assert stated is None or measured.value <= stated


@by_file
def test_sparse_peaks_are_twice_the_dense_ones_and_stand_apart(file: Path) -> None:
    content = raw(file)
    for name, pipe in content.get("sparse_pipes", {}).items():
        assert exact(pipe["peak"]) == 2 * exact(content["pipes"][name]["peak"])


@by_file
def test_memory_levels_grow_faster_towards_the_multiprocessors(file: Path) -> None:
    device = load_file(file)
    stated = [device.levels[n].bandwidth for n in ("dram", "l2", "l1")]
    bandwidths = [bandwidth for bandwidth in stated if bandwidth is not None]
    assert bandwidths == sorted(bandwidths)
    sizes = [device.levels[n].capacity or 0 for n in ("dram", "l2")]
    assert sizes[0] > 100 * sizes[1]


# --- Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_device_is_known_by_the_stem_of_its_file(name: str) -> None:
    assert Device.load(name).id == name
    assert Device.load(name.upper()) == Device.load(name)
    assert Device.load(str(ROOT / "hardware" / f"{name}.yaml")) == Device.load(name)


@pytest.mark.parametrize(
    ("alias", "name"), [("v100", "v100-sxm2-32gb"), ("a100", "a100-sxm-80gb"), ("h100", "h100-sxm")]
)
def test_an_alias_is_the_common_form_of_its_generation(alias: str, name: str) -> None:
    assert Device.load(alias) == Device.load(alias.upper()) == Device.load(name)


def test_the_names_are_the_files_and_no_file_is_named_like_an_alias() -> None:
    assert library.names() == [file.stem for file in FILES]
    assert set(library.names()) >= set(NAMES)
    assert not set(library.names()) & set(library.ALIASES)


def test_full_names_tell_all_devices_apart() -> None:
    names = [Device.load(name).name for name in library.names()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("typo", "near"), [("a1000", "'a100'"), ("h100-sxn", "'h100-sxm'"), ("v100-pcie", "'v100-pcie-")]
)
def test_an_unknown_device_offers_the_nearest_ones(typo: str, near: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Device.load(typo)
    message = str(caught.value)
    assert message.startswith(f"unknown device {typo!r}; did you mean ")
    assert near in message
    assert all(name in message for name in NAMES)


# --- Well-known figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pipe", "peak"),
    [
        ("v100", "tensor_fp16", 125_000_000_000_000),
        ("a100", "tensor_fp16", 312_000_000_000_000),
        ("a100", "tensor_tf32", 156_000_000_000_000),
        ("a100", "fp32", 19_500_000_000_000),
        ("a100", "tensor_int8", 624_000_000_000_000),
        ("h100", "tensor_bf16", 989_400_000_000_000),
        ("h100", "tensor_fp8", 1_978_900_000_000_000),
    ],
)
def test_dense_peaks_are_those_of_the_datasheets(name: str, pipe: str, peak: int) -> None:
    assert Device.load(name).pipes[pipe].peak == peak


@pytest.mark.parametrize(
    ("name", "bandwidth", "gib"),
    [
        ("v100", 900_000_000_000, 32),
        ("a100-sxm-40gb", 1_555_000_000_000, 40),
        ("a100", 2_039_000_000_000, 80),
        ("h100", 3_350_000_000_000, 80),
        ("h200", 4_800_000_000_000, 141),
    ],
)
def test_memories_are_those_of_the_datasheets(name: str, bandwidth: int, gib: int) -> None:
    device = Device.load(name)
    assert (device.bandwidth, device.capacity) == (bandwidth, gib * 1024**3)


def test_a_type_that_a_device_lacks_has_no_pipe() -> None:
    assert {"bf16", "tensor_bf16", "tensor_tf32", "tensor_fp8", "tensor_int8"}.isdisjoint(Device.load("v100").pipes)
    assert "tensor_fp8" not in Device.load("a100").pipes


# --- The independent table --------------------------------------------------------------------------

GPUS = {
    "V100-SXM2-16GB": ["v100-sxm2-16gb"],
    "V100-SXM2-32GB": ["v100-sxm2-32gb"],
    "V100-PCIe-16/32GB": ["v100-pcie-16gb", "v100-pcie-32gb"],
    "V100S-PCIe-32GB": ["v100s-pcie-32gb"],
    "A100-SXM4-40GB": ["a100-sxm-40gb"],
    "A100-SXM4-80GB": ["a100-sxm-80gb"],
    "A100-PCIe-40GB": ["a100-pcie-40gb"],
    "A100-PCIe-80GB": ["a100-pcie-80gb"],
    "H100-SXM5-80GB": ["h100-sxm"],
    "H100-PCIe-80GB": ["h100-pcie"],
    "H100-NVL-94GB": ["h100-nvl"],
    "H200-SXM-141GB": ["h200"],
    "B200-SXM-180GB": ["b200"],
    "L4-24GB": ["l4"],
    "L40S-48GB": ["l40s"],
    "T4-16GB": ["t4"],
    "A10-24GB": ["a10"],
    "RTX3090-24GB": ["rtx3090"],
    "RTX4090-24GB": ["rtx4090"],
    "MI250X(full OAM)": ["mi250x"],
    "MI300X": ["mi300x"],
    "TPUv4 (2 TCs)": ["tpu-v4"],
    "TPUv5e (1 TC)": ["tpu-v5e"],
}


def facts() -> list[tuple[str, dict[str, str]]]:
    """The rows of the table, each with the name of a file of ours that it speaks about."""
    if not FACTS.is_file():
        return []
    with FACTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ours = {file.stem for file in FILES}
    return [(name, row) for row in rows for name in GPUS[row["gpu"]] if name in ours]


by_fact = pytest.mark.parametrize(
    ("name", "row"),
    facts() or [pytest.param("", {}, marks=pytest.mark.skip(reason="no hardware_facts.csv; set ROOF_MEASURED"))],
    ids=lambda value: value if isinstance(value, str) else value.get("pipe", ""),
)


def ours(row: dict[str, str]) -> str:
    """`tc_fp16` and `mx_fp16` are what we call `tensor_fp16`."""
    kind, _, rest = row["pipe"].partition("_")
    return f"tensor_{rest}" if kind in ("tc", "mx") else row["pipe"]


@by_fact
def test_a_pipe_agrees_with_the_independent_table(name: str, row: dict[str, str]) -> None:
    device = Device.load(name)
    pipe = device.pipes[ours(row)]  # a pipe of the table that we lack is a gap
    assert Fraction(pipe.peak) == Fraction(row["peak_datasheet_tflops"]) * 10**12
    assert device.multiprocessors == int(row["sms"])
    assert pipe.per_multiprocessor == int(row["flops_per_clk_per_sm"])
    assert Fraction(pipe.clock or 0) == Fraction(row["clock_ghz"]) * 10**9


@by_fact
def test_a_memory_agrees_with_the_independent_table(name: str, row: dict[str, str]) -> None:
    device = Device.load(name)
    assert device.bandwidth == int(row["hbm_gbps"]) * 10**9
    # The table has one row for two PCIe boards and states the smaller memory.
    stated = 32 if name == "v100-pcie-32gb" else int(row["mem_gb"])
    assert device.capacity == stated * 2**30
    assert device.levels["l2"].capacity == int(row["l2_mb"]) * 2**20


@pytest.mark.skipif(not FACTS.is_file(), reason="no hardware_facts.csv; set ROOF_MEASURED")
def test_every_device_of_ours_stands_in_the_independent_table() -> None:
    assert {name for name, _ in facts()} >= set(NAMES)
