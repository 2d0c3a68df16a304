"""Device files of roofmodel, checked by arithmetic and compared with an independent table.

These tests read the files with PyYAML and their own parser of quantities, so that an error in roofmodel's reader cannot
hide an error in a file. Set ROOF_MEASURED to the folder of hardware_facts.csv; without it, the tests that need it are
skipped.
"""

from __future__ import annotations

import csv
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofmodel.devices import library
from roofmodel.devices.ceilings import doubtful_entries
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError, WorkloadError

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "hardware").glob("*.yaml"), key=lambda file: file.stem)
FACTS = Path(os.environ.get("ROOF_MEASURED", ROOT.parent / "shared" / "measured")) / "hardware_facts.csv"
DATASHEET_ROUNDING = 0.025  # the coarsest rounding: 33.45 TFLOP/s is printed as 34

by_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])

NAMES = [
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-pcie-16gb",
    "v100-pcie-32gb",
    "v100s-pcie-32gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "h100-sxm",
    "h100-pcie",
    "h100-nvl",
    "h200",
    "gh200",
    "h20",
    "b200",
    "gb200",
    "b300",
    "gb300",
    "rtx-pro-6000",
    "rtx-pro-6000-server",
    "rtx-a6000",
    "rtx-6000-ada",
    "a30",
    "a40",
    "l4",
    "l40s",
    "t4",
    "a10",
    "a10g",
    "h800",
    "rtx3090",
    "rtx4060",
    "rtx4060-laptop",
    "rtx4070",
    "rtx4070-laptop",
    "rtx4080",
    "rtx4080-laptop",
    "rtx4090",
    "rtx5060",
    "rtx5070",
    "rtx5080",
    "rtx5090",
    "gb10",
    "jetson-orin",
    "jetson-thor",
    "mi210",
    "mi250x",
    "mi250x-die",
    "mi300x",
    "mi325x",
    "mi355x",
    "m2-max",
    "m3-max",
    "m4-max",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
]
# files without SMs and caches; bus and clock of the memory are not published
WITHOUT_SMS = ["m2-max", "m3-max", "m4-max", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"]


@pytest.fixture(autouse=True)
def _no_files_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def raw(file: Path) -> dict[str, Any]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def quantity(text: str) -> Fraction:
    """`312 TFLOP/s` -> 312 × 10¹², for any unit."""
    number, unit = text.split()
    for base in ("FLOP/clock", "OP/clock", "B/clock", "FLOP/s", "OP/s", "B/s", "Hz", "bit", "B"):
        if unit.endswith(base):
            return Fraction(number) * POWERS[unit.removesuffix(base)]
    raise AssertionError(text)


# --- Each file --------------------------------------------------------------------------------------


@by_file
def test_a_device_file_has_no_warnings(file: Path) -> None:
    assert doubtful_entries(Device.load(file)) == []


@by_file
def test_every_number_names_a_source_that_is_listed(file: Path) -> None:
    content = raw(file)
    sections = [content["pipes"], content.get("sparse_pipes", {}), content["memory"], content.get("links", {})]
    rows = [row for section in sections for row in section.values()] + content.get("measured", [])
    rows += [content[key] for key in ("unaligned_gemms", "power") if key in content]
    named = {row.get("source", content.get("source")) for row in rows}
    assert named == set(content["sources"])  # no number without a source, and no unused source
    assert all(str(source).strip() for source in content["sources"].values())


@by_file
def test_a_device_file_can_be_read_aloud(file: Path) -> None:
    """Without fitted parameters, on one screen."""
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 70
    assert max(map(len, lines)) <= 120
    assert "calibration" not in raw(file)


@by_file
def test_every_peak_is_number_of_sms_times_clock_times_rate(file: Path) -> None:
    content = raw(file)
    for section in ("pipes", "sparse_pipes"):
        for name, pipe in content.get(section, {}).items():
            if "clock" not in pipe:
                assert not {"per_clock", "per_multiprocessor"} & set(pipe)  # the source states the peak only
                continue
            clock = quantity(content["clocks"][pipe["clock"]])
            if file.stem in WITHOUT_SMS:
                computed = clock * quantity(pipe["per_clock"])
            else:
                computed = content["multiprocessors"] * clock * quantity(pipe["per_multiprocessor"])
            assert abs(computed / quantity(pipe["peak"]) - 1) <= DATASHEET_ROUNDING, name


@by_file
def test_the_bandwidth_is_bus_width_times_data_rate(file: Path) -> None:
    dram = raw(file)["memory"]["dram"]
    if file.stem in WITHOUT_SMS:
        assert not {"bus", "clock", "transfers_per_clock"} & set(dram)
    if "clock" not in dram:
        return
    computed = quantity(dram["bus"]) / 8 * quantity(dram["clock"]) * dram["transfers_per_clock"]
    assert abs(computed / quantity(dram["bandwidth"]) - 1) <= DATASHEET_ROUNDING


@by_file
def test_a_device_file_is_read_back_as_written(file: Path) -> None:
    content, device = raw(file), Device.load(file)
    assert (device.id, device.name) == (file.stem, content["name"])
    assert device.multiprocessors == content.get("multiprocessors")
    assert (device.multiprocessors is None) == (file.stem in WITHOUT_SMS)
    for section, pipes in (("pipes", device.pipes), ("sparse_pipes", device.sparse_pipes)):
        assert {n: Fraction(p.peak) for n, p in pipes.items()} == {
            n: quantity(p["peak"]) for n, p in content.get(section, {}).items()
        }
    assert device.bandwidth == quantity(content["memory"]["dram"]["bandwidth"])
    assert device.capacity == quantity(content["memory"]["dram"]["capacity"])
    assert set(device.levels) == set(content["memory"]) - {"driver"}
    if "driver" in content["memory"]:  # less than all DRAM, by the reserve of the driver and by ECC in GDDR
        assert device.driver_capacity == int(quantity(content["memory"]["driver"]["capacity"]))
        assert 0.9 * device.capacity < device.driver_capacity < device.capacity
    if file.stem not in WITHOUT_SMS:
        l2 = content["memory"]["l2"]
        assert device.levels["l2"].capacity == quantity(l2["capacity"])
        assert device.levels["l2"].bandwidth == bandwidth_at_clock(content, l2, "bandwidth_per_clock")
    if l1 := content["memory"].get("l1"):
        assert device.levels["l1"].capacity == content["multiprocessors"] * quantity(l1["capacity_per_multiprocessor"])
        each = bandwidth_at_clock(content, l1, "bandwidth_per_clock_per_multiprocessor")
        assert device.levels["l1"].bandwidth == (each and content["multiprocessors"] * each)
    assert {n: Fraction(link.bandwidth) for n, link in device.links.items()} == {
        n: quantity(link["bandwidth"]) for n, link in content.get("links", {}).items()
    }
    assert [(m.ceiling, m.by, Fraction(m.value)) for m in device.measured] == [
        (m["ceiling"], m["by"], quantity(m["value"])) for m in content.get("measured", [])
    ]


def bandwidth_at_clock(content: dict[str, Any], level: dict[str, Any], key: str) -> Fraction | None:
    """Bytes per second of a level at its clock; None if its file has no clock."""
    return quantity(level[key]) * quantity(content["clocks"][level["clock"]]) if key in level else None


@by_file
def test_measured_ceilings_do_not_exceed_stated_ones(file: Path) -> None:
    device = Device.load(file)
    for measured in device.measured:
        if measured.ceiling in device.levels:
            stated = device.levels[measured.ceiling].bandwidth
        else:
            stated = device.pipes[measured.ceiling].peak
        assert stated is None or measured.value <= stated


@by_file
def test_sparse_peaks_are_twice_the_dense_peaks(file: Path) -> None:
    content = raw(file)
    for name, pipe in content.get("sparse_pipes", {}).items():
        dense = quantity(content["pipes"][name]["peak"])
        ratio = quantity(pipe["peak"]) / dense
        assert abs(ratio / 2 - 1) < Fraction(1, 5_000), name  # datasheets round: 728.5 and 364.2


@by_file
def test_memory_levels_closer_to_the_sms_are_faster_and_l2_is_smaller_than_dram(file: Path) -> None:
    device = Device.load(file)
    stated = [device.levels[n].bandwidth for n in ("dram", "l2", "l1") if n in device.levels]
    bandwidths = [bandwidth for bandwidth in stated if bandwidth is not None]
    assert bandwidths == sorted(bandwidths)
    if "l2" in device.levels:
        assert (device.capacity or 0) > 100 * (device.levels["l2"].capacity or 0)


# --- Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_id_of_a_device_is_the_stem_of_its_file(name: str) -> None:
    assert Device.load(name).id == name
    assert Device.load(name.upper()) == Device.load(name)
    assert Device.load(str(ROOT / "hardware" / f"{name}.yaml")) == Device.load(name)


@pytest.mark.parametrize(
    ("alias", "name"), [("v100", "v100-sxm2-32gb"), ("a100", "a100-sxm-80gb"), ("h100", "h100-sxm")]
)
def test_the_alias_of_a_generation_is_its_most_common_board(alias: str, name: str) -> None:
    assert Device.load(alias) == Device.load(alias.upper()) == Device.load(name)


def test_a_link_to_the_host_does_not_connect_gpus() -> None:
    superchip, server = Device.load("gh200"), Device.load("h100")
    assert superchip.inside is superchip.links["nvlink"]
    assert superchip.host_link is superchip.links["nvlink_c2c"]
    assert server.host_link is server.links["pcie"]


def test_device_names_are_the_file_names_and_no_alias_is_a_file_name() -> None:
    assert library.names() == [file.stem for file in FILES]
    assert set(library.names()) >= set(NAMES)
    assert not set(library.names()) & set(library.ALIASES)


def test_full_names_of_devices_are_unique() -> None:
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
        ("b200", "tensor_fp4", 9_000_000_000_000_000),
        ("gb200", "tensor_fp4", 10_000_000_000_000_000),
        ("gb300", "tensor_fp4", 15_000_000_000_000_000),
        ("b300", "tensor_fp4", 13_500_000_000_000_000),
        ("h20", "tensor_fp16", 148_000_000_000_000),
        ("gh200", "tensor_fp16", 989_400_000_000_000),
        ("rtx-pro-6000", "tensor_fp16", 503_800_000_000_000),
        ("rtx-a6000", "fp32", 38_700_000_000_000),
        ("rtx-6000-ada", "tensor_fp8", 728_500_000_000_000),
        ("a30", "tensor_fp16", 165_000_000_000_000),
        ("a40", "tensor_fp16", 149_700_000_000_000),
        ("rtx5090", "fp32", 104_800_000_000_000),
        ("tpu-v5e", "tensor_int8", 393_000_000_000_000),
        ("tpu-v6e", "tensor_bf16", 918_000_000_000_000),
        ("a10g", "tensor_fp16", 70_000_000_000_000),
        ("h800", "fp64", 1_000_000_000_000),
        ("mi355x", "tensor_fp4", 10_066_300_000_000_000),
        ("jetson-thor", "tensor_fp4", 1_035_000_000_000_000),
        ("gb10", "tensor_fp4", 500_000_000_000_000),
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
        ("gh200", 4_000_000_000_000, 96),
        ("h20", 4_000_000_000_000, 96),
        ("gb200", 8_000_000_000_000, 186),
        ("b300", 7_700_000_000_000, 270),
        ("gb300", 8_000_000_000_000, 279),
        ("rtx-pro-6000", 1_792_000_000_000, 96),
        ("rtx-pro-6000-server", 1_597_000_000_000, 96),
        ("rtx-a6000", 768_000_000_000, 48),
        ("rtx-6000-ada", 960_000_000_000, 48),
        ("a30", 933_000_000_000, 24),
        ("a40", 696_000_000_000, 48),
        ("rtx5070", 672_000_000_000, 12),
        ("rtx5090", 1_792_000_000_000, 32),
        ("rtx4060", 272_000_000_000, 8),
        ("rtx5080", 960_000_000_000, 16),
        ("mi325x", 6_000_000_000_000, 256),
        ("mi355x", 8_000_000_000_000, 288),
        ("gb10", 273_000_000_000, 128),
        ("jetson-orin", 204_800_000_000, 64),
        ("m4-max", 546_000_000_000, 128),
        ("tpu-v4", 1_228_000_000_000, 32),
        ("tpu-v5p", 2_765_000_000_000, 95),
    ],
)
def test_memory_figures_equal_the_datasheets(name: str, bandwidth: int, gib: int) -> None:
    device = Device.load(name)
    assert (device.bandwidth, device.capacity) == (bandwidth, gib * 1024**3)


def test_an_unsupported_type_has_no_pipe() -> None:
    assert {"bf16", "tensor_bf16", "tensor_tf32", "tensor_fp8", "tensor_int8"}.isdisjoint(Device.load("v100").pipes)
    assert "tensor_fp8" not in Device.load("a100").pipes


@pytest.mark.parametrize(
    ("name", "tops"),
    [  # "AI TOPS" on NVIDIA's product pages
        ("rtx4060", 242),
        ("rtx4060-laptop", 233),
        ("rtx4070", 466),
        ("rtx4070-laptop", 321),
        ("rtx4080", 780),
        ("rtx4080-laptop", 542),
        ("rtx4090", 1321),
        ("rtx5060", 614),
        ("rtx5070", 988),
        ("rtx5080", 1801),
        ("rtx5090", 3352),
    ],
)
def test_the_advertised_rate_of_a_geforce_is_the_sparse_peak_of_its_narrowest_type(name: str, tops: int) -> None:
    pipes = Device.load(name).pipes
    narrowest = pipes.get("tensor_fp4") or pipes["tensor_fp8_acc16"]
    assert 2 * narrowest.peak == pytest.approx(tops * 1e12, rel=0.002)


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"rtx\d+(-laptop)?", name)])
def test_accumulation_in_fp32_halves_the_peak_of_a_geforce(name: str) -> None:
    device = Device.load(name)
    full = device.pipes["tensor_fp16_acc16"]
    assert full.accumulator == "fp16"
    assert device.matmul_pipe("fp16").accumulator == "fp32"
    assert device.matmul_pipe("fp16").peak == pytest.approx(full.peak / 2, rel=0.002)
    assert device.matmul_pipe("bf16").peak == device.matmul_pipe("fp16").peak


def test_an_unsupported_type_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(WorkloadError, match=r"'fp16'; supported: bf16, int8$"):
        Device.load("tpu-v4").matmul_pipe("fp16")
    with pytest.raises(WorkloadError, match=r"'fp4'; supported: bf16, fp16, fp32, fp64, fp8, int8, tf32$"):
        Device.load("rtx4090").matmul_pipe("fp4")  # accumulators are not types


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
    """The rows of the table, each with the name of the device file that it describes."""
    if not FACTS.is_file():
        return []
    with FACTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    device_ids = {file.stem for file in FILES}
    return [(name, row) for row in rows for name in GPUS[row["gpu"]] if name in device_ids]


by_fact = pytest.mark.parametrize(
    ("name", "row"),
    facts() or [pytest.param("", {}, marks=pytest.mark.skip(reason="no hardware_facts.csv; set ROOF_MEASURED"))],
    ids=lambda value: value if isinstance(value, str) else value.get("pipe", ""),
)


def pipe_in_file(row: dict[str, str]) -> str:
    """`tc_fp16` and `mx_fp16` correspond to `tensor_fp16`."""
    kind, _, rest = row["pipe"].partition("_")
    return f"tensor_{rest}" if kind in ("tc", "mx") else row["pipe"]


@by_fact
def test_peaks_agree_with_the_independent_table(name: str, row: dict[str, str]) -> None:
    device = Device.load(name)
    pipe = device.pipes[pipe_in_file(row)]  # KeyError: the file lacks a pipe of the table
    # The table has 394 for a TPU v5e's int8; Google's documentation prints 393.
    stated = 393 if (name, row["pipe"]) == ("tpu-v5e", "mx_int8") else Fraction(row["peak_datasheet_tflops"])
    assert Fraction(pipe.peak) == stated * 10**12
    if name.startswith("tpu"):  # the table counts TensorCores (one or two per chip) as SMs
        assert pipe.per_clock == int(row["sms"]) * int(row["flops_per_clk_per_sm"])
    else:
        assert device.multiprocessors == int(row["sms"])
        assert pipe.per_multiprocessor == int(row["flops_per_clk_per_sm"])
    assert Fraction(pipe.clock or 0) == Fraction(row["clock_ghz"]) * 10**9


@by_fact
def test_memory_figures_agree_with_the_independent_table(name: str, row: dict[str, str]) -> None:
    device = Device.load(name)
    assert device.bandwidth == int(row["hbm_gbps"]) * 10**9
    # The table has one row for two PCIe boards and states the smaller memory.
    stated = 32 if name == "v100-pcie-32gb" else int(row["mem_gb"])
    assert device.capacity == stated * 2**30
    if name.startswith("tpu"):
        assert "l2" not in device.levels
    else:
        # The table's 256 MB of an MI300X are its Infinity Cache; the eight dies have 4 MiB of L2 each.
        l2 = 8 * 4 if name == "mi300x" else int(row["l2_mb"])
        assert (device.levels["l2"].capacity or 0) // 2**20 == l2  # the B200 reports 126.5 MiB


@pytest.mark.skipif(not FACTS.is_file(), reason="no hardware_facts.csv; set ROOF_MEASURED")
def test_only_devices_newer_than_the_independent_table_are_missing_from_it() -> None:
    newer = {
        "gh200", "h20", "gb200", "b300", "gb300", "a30", "a40", "a10g", "h800", "gb10", "jetson-orin", "jetson-thor",
        "mi210", "mi250x-die", "mi325x", "mi355x", "m2-max", "m3-max", "m4-max", "tpu-v5p", "tpu-v6e",
    } | {name for name in NAMES if name.startswith("rtx")}  # fmt: skip
    assert {name for name, _ in facts()} == set(NAMES) - newer | {"rtx3090", "rtx4090"}
