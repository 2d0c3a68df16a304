"""The device of a profile."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from roofmodel.devices import library
from roofmodel.devices.ceilings import with_boost_clock, with_ceilings
from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Evidence
from roofmodel.roofline.device import UnknownDevice, contradictions, identify

A100_40 = Evidence(
    name="NVIDIA A100-SXM4-40GB", compute_capability="8.0", multiprocessors=108, l2_bytes=41943040, clock=1.41e9
)


@pytest.mark.parametrize(
    ("evidence", "device"),
    [
        (A100_40, "a100-sxm-40gb"),
        (Evidence("NVIDIA A100 80GB PCIe", "8.0", 108, 41943040, 1935.36e9), "a100-pcie-80gb"),
        (Evidence("NVIDIA A100-SXM4-80GB", "8.0", 108), "a100-sxm-80gb"),
        (Evidence("Tesla V100-SXM2-32GB", "7.0", 80, dram_bytes=34079637504), "v100-sxm2-32gb"),
        (Evidence("Tesla V100-SXM2-16GB", "7.0", 80), "v100-sxm2-16gb"),
        (Evidence("NVIDIA H100 80GB HBM3", "9.0", 132, dram_bytes=84929347584), "h100-sxm"),
        (Evidence("NVIDIA H100 PCIe", "9.0", 114), "h100-pcie"),
        (Evidence("NVIDIA H200", "9.0", 132, dram_bytes=150122070016), "h200"),
        (Evidence("NVIDIA H100 NVL", "9.0", 132, dram_bytes=100_000_000_000), "h100-nvl"),
        (Evidence("NVIDIA B200", "10.0", 148, l2_bytes=132644864), "b200"),
        (Evidence("NVIDIA GB200", "10.0", 152), "gb200"),
        (Evidence("NVIDIA B300 SXM6 AC", "10.3", 148), "b300"),
        (Evidence("NVIDIA GB300", "10.3", 152), "gb300"),
        (Evidence(None, None, 304, dram_bytes=205_522_993_152), "mi300x"),  # gfx942
        (Evidence("NVIDIA GH200 480GB", "9.0", 132, dram_bytes=101_468_602_368), "gh200"),
        (Evidence("NVIDIA GH200 120GB", "9.0", 132, dram_bytes=101_468_602_368), "gh200"),
        (Evidence("NVIDIA H20", "9.0", 78, l2_bytes=62_914_560), "h20"),
        (Evidence("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 188), "rtx-pro-6000"),
        (Evidence("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 188), "rtx-pro-6000-server"),
        (Evidence("RTX-PRO-6000-Blackwell-Server", "12.0", 188), "rtx-pro-6000-server"),  # of aiconfigurator's tables
        (Evidence("NVIDIA RTX 6000 Ada Generation", "8.9", 142), "rtx-6000-ada"),
        (Evidence("NVIDIA RTX A6000", "8.6", 84), "rtx-a6000"),
        (Evidence("NVIDIA A30", "8.0", 56), "a30"),
        (Evidence("NVIDIA A40", "8.6", 84), "a40"),
        (Evidence("Tesla T4", "7.5", 40), "t4"),
        (Evidence("NVIDIA L40S", "8.9", 142), "l40s"),
        (Evidence("NVIDIA A10", "8.6", 72), "a10"),
        (Evidence("NVIDIA GeForce RTX 3090", "8.6", 82, 6291456, 936.096e9, clock=1.695e9), "rtx3090"),
        (Evidence("NVIDIA GeForce RTX 5070", "12.0", 48), "rtx5070"),
        (Evidence("AMD Instinct MI300X", "9.4", 304, dram_bytes=206141652992), "mi300x"),
        (Evidence("NVIDIA A100-PG509-200", "8.0", 108, dram_bytes=42_505_273_344), "a100-sxm-40gb"),
        (Evidence("NVIDIA PG509-210", "8.0", 108, dram_bytes=85_199_093_760), "a100-sxm-80gb"),
        (Evidence("NVIDIA GeForce RTX 4090", "8.9", 128, dram_bandwidth=1008.096e9, clock=2.565e9), "rtx4090"),
        (Evidence("AMD Instinct MI325X", None, 304), "mi325x"),
        (Evidence("AMD Instinct MI250X", None, 110), "mi250x-die"),
        (Evidence("AMD Instinct MI210", None, 104), "mi210"),
        (Evidence(None, None, 304, dram_bytes=274_877_906_944), "mi325x"),  # an MI300X has 192 GiB
        (Evidence("AMD Instinct MI355X", None, 256), "mi355x"),
        (Evidence("NVIDIA A10G", "8.6", 80, 6291456, 600.096e9, clock=1.71e9), "a10g"),
        (Evidence("NVIDIA H800", "9.0", 132, dram_bytes=85_029_158_912), "h800"),
        (Evidence("NVIDIA GeForce RTX 4060", "8.9", 24), "rtx4060"),
        (Evidence("NVIDIA GeForce RTX 4060 Laptop GPU", "8.9", 24, 33_554_432, clock=2.37e9), "rtx4060-laptop"),
        (Evidence("NVIDIA GeForce RTX 4070 Laptop GPU", "8.9", 36), "rtx4070-laptop"),
        (Evidence("NVIDIA GeForce RTX 4070 Laptop GPU"), "rtx4070-laptop"),
        (Evidence("NVIDIA GeForce RTX 4080", "8.9", 76), "rtx4080"),
        (Evidence("NVIDIA GeForce RTX 5060", "12.0", 30, dram_bytes=8_546_484_224), "rtx5060"),
        (Evidence("NVIDIA GeForce RTX 5080", "12.0", 84), "rtx5080"),
        # as cudaDeviceProp describes them: other clocks than those of GPU and memory, or none
        (Evidence("NVIDIA GB10", "12.1", 48, 25_165_824, 546.1e9, 128_524_000_000, 2.418e9), "gb10"),
        (Evidence("Orin", "8.7", 16, 4_194_304, 83.2e9, 65_893_089_280, 1.3e9), "jetson-orin"),
        (Evidence("NVIDIA Thor", "11.0", 20, 33_554_432, None, 131_881_680_896, 1.049e9), "jetson-thor"),
        # no name; the attributes match exactly one device
        (Evidence(None, "9.0", 132, dram_bytes=150122070016), "h200"),
    ],
)
def test_attributes_that_match_one_device_identify_it(evidence: Evidence, device: str) -> None:
    found = identify([evidence], None, ["x.csv"])
    assert (found.device.id, found.source) == (device, "attributes")


def test_the_number_of_sms_alone_does_not_identify_a_gpu_of_a_generation_with_unknown_gpus():
    """A T4 and an RTX 2070 Super have 40 SMs of compute capability 7.5."""
    with pytest.raises(UnknownDevice, match="its device is unknown"):
        identify([Evidence(None, "7.5", 40)], None, ["a.txt"])


def test_the_memory_clock_of_a_jetson_gives_no_ceiling():
    """The driver of an Orin Nano states 29 GB/s; its module has 68 or 102 GB/s."""
    orin = Evidence("Orin", "8.7", 8, 2 << 20, 29.376e9, 7_990_091_776, 1.02e9)
    with pytest.raises(UnknownDevice, match="describes 'Orin', and the file does not state its DRAM bandwidth"):
        identify([orin], None, ["a.sqlite"])


@pytest.mark.parametrize(
    ("evidence", "example"),
    [
        (Evidence(amd=True), "mi210"),
        (Evidence("AMD Instinct MI300A", None, 228, amd=True), "mi300x"),
        (Evidence(compute_capability="8.7"), "jetson-orin"),
        (Evidence(), "a100"),
    ],
)
def test_the_example_of_an_unknown_device_is_one_of_its_vendor(evidence: Evidence, example: str) -> None:
    with pytest.raises(UnknownDevice, match=f'as in hw="{example}"'):
        identify([evidence], None, ["a.csv"])


def test_the_candidates_of_an_unknown_device_have_its_compute_capability() -> None:
    with pytest.raises(UnknownDevice) as caught:
        identify([Evidence(compute_capability="7.5")], None, ["a.log"])
    assert str(caught.value) == (
        'a.log: its device is unknown (compute capability 7.5); give one, as in hw="t4"; candidates: t4, or a YAML file'
    )


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence("NVIDIA GeForce RTX 2080 Ti", "7.5", 68),  # a T4 has 40 SMs
        Evidence("AMD Instinct MI300A", None, 228, amd=True),
    ],
)
def test_devices_with_another_number_of_sms_are_no_candidates(evidence: Evidence) -> None:
    with pytest.raises(UnknownDevice, match="; known: ") as caught:
        identify([evidence], None, ["a.json"])
    assert "candidates" not in str(caught.value)


def test_a_slice_of_a_gpu_has_the_gpus_with_as_many_sms_as_candidates() -> None:
    """An H20 has 78 SMs, an H100 PCIe 114."""
    with pytest.raises(UnknownDevice, match=r"possibly a MIG slice\); give one, .*; candidates: ") as caught:
        identify([Evidence(None, "9.0", 98)], None, ["a.csv"])
    listed = str(caught.value).partition("; candidates: ")[2].split(", ")
    assert "h100-pcie" in listed
    assert "h20" not in listed


def test_an_unknown_compute_capability_is_not_stated() -> None:
    """As a trace of an AMD GPU whose name is empty: one die of an MI250X."""
    (note,) = identify([Evidence(None, None, 110, amd=True)], None, ["a.json"]).warnings
    assert note == "the file states no name: 110 SMs; mi250x-die is assumed"


def test_a_name_that_several_devices_have_is_stated_with_the_assumed_device() -> None:
    (note,) = identify([Evidence("NVIDIA A100", "8.0", 108)], None, ["a.json"]).warnings
    assert note == (
        "several devices match 'NVIDIA A100': compute capability 8.0 and 108 SMs; a100-sxm-80gb (a100) is assumed"
    )


def test_the_usual_device_of_a_generation_is_not_assumed_against_the_number_of_sms():
    (note,) = identify([Evidence(None, "9.0", 132)], None, ["a.txt"]).warnings
    assert str(note) == "the file states no name: compute capability 9.0 and 132 SMs; h100-sxm (h100) is assumed"
    with pytest.raises(UnknownDevice, match="its device is unknown"):
        identify([Evidence(None, "8.0", 70)], None, ["a.txt"])


@pytest.mark.parametrize(
    ("capability", "device"), [("7.0", "v100-sxm2-32gb"), ("8.0", "a100-sxm-80gb"), ("9.0", "h100-sxm")]
)
def test_a_compute_capability_alone_gives_the_generations_alias_marked_assumed(capability: str, device: str) -> None:
    found = identify([Evidence(compute_capability=capability)], None, ["x.csv"])
    assert (found.device.id, found.source) == (device, "assumed")
    assert "assumed" in found.warnings[0]
    assert capability in found.warnings[0]


@pytest.mark.parametrize(
    ("name", "sms", "dram", "l2", "clock", "device", "fp32"),
    [  # 2 x 128 x SMs x the clock in the profile
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 24, 256.032e9, 33_554_432, 2.01e9, "rtx4060-laptop", 12.35e12),
        ("NVIDIA GeForce RTX 4090", 128, 1008.096e9, 75_497_472, 2.565e9, "rtx4090", 84.05e12),  # overclocked
    ],
)
def test_another_boost_clock_scales_the_ceilings_of_the_named_device(
    name: str, sms: int, dram: float, l2: int, clock: float, device: str, fp32: float
) -> None:
    found = identify([Evidence(name, "8.9", sms, l2, dram, clock=clock)], None, ["x.sqlite"])
    packaged = Device.load(device)
    assert (found.device.id, found.source) == (device, "attributes")
    assert found.device.pipes["fp32"].peak == pytest.approx(fp32, rel=0.003)
    assert found.device.bandwidth == packaged.bandwidth
    assert found.device.calibration == packaged.calibration
    again = with_ceilings(found.device, packaged.clocks["boost"])
    assert again.pipes["fp32"].peak == pytest.approx(packaged.pipes["fp32"].peak)
    assert f"the ceilings of {device} are scaled to the file's boost clock" in str(found.warnings[0])


def test_the_file_of_a_device_at_another_clock_describes_the_scaled_device(tmp_path: Path) -> None:
    """As `roof hw show --from` writes it: 2.01 GHz in place of 2.37."""
    scaled = with_boost_clock(Device.load("rtx4060-laptop"), 2.01e9)
    (tmp_path / "mine.yaml").write_text(library.text_at_clock("rtx4060-laptop", 2.01e9))
    mine = Device.load(tmp_path / "mine.yaml")
    assert mine.clocks == scaled.clocks
    for name, pipe in scaled.pipes.items():
        assert mine.pipes[name].peak == pytest.approx(pipe.peak, rel=1e-4)
    assert mine.links == scaled.links
    assert library.text_at_clock("rtx4090", 2.52e9) == library.text("rtx4090")


@pytest.mark.parametrize(
    ("idle", "device"),
    [
        (Evidence("NVIDIA GeForce RTX 4090", "8.9", 128, 75_497_472, 1008.096e9, clock=240e6), "rtx4090"),
        # tensor cores with a clock of their own
        (Evidence("NVIDIA H100 80GB HBM3", "9.0", 132, 52_428_800, 3352e9, 85_029_158_912, 240e6), "h100-sxm"),
    ],
)
def test_the_clock_of_an_idle_gpu_is_no_boost_clock(idle: Evidence, device: str) -> None:
    found = identify([idle], None, ["x.sqlite"])
    assert (found.device, found.source) == (Device.load(device), "attributes")
    assert found.warnings == (
        f"the file states a clock of 240 MHz, which is no boost clock of {device}: its own ceilings are used",
    )


def test_the_number_of_sms_without_a_name_assumes_a_device() -> None:
    """A slice of an A100 has the 56 SMs of an A30, too; with 42 SMs it is no known device."""
    found = identify([Evidence(None, "8.0", 56)], None, ["x.csv"])
    assert (found.device.id, found.source) == ("a30", "assumed")
    assert str(found.warnings[0]) == "the file states no name: compute capability 8.0 and 56 SMs; a30 is assumed"
    with pytest.raises(UnknownDevice, match=r"compute capability 8\.0 and 42 SMs, possibly a MIG slice\)"):
        identify([Evidence(None, "8.0", 42)], None, ["x.csv"])


def test_a_device_with_two_clocks_is_not_scaled_to_a_third() -> None:
    """The boost clock of an H100's tensor cores does not follow from that of its other units."""
    seen = Evidence("NVIDIA H100 80GB HBM3", "9.0", 132, 52_428_800, 3352e9, 85_029_158_912, 1.7e9)
    assert identify([seen], None, ["x.sqlite"]).source == "file"


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(),
        Evidence(compute_capability="12.0"),
        Evidence("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0", 60),
        Evidence("NVIDIA GeForce RTX 4060 Ti", "8.9", 34),
        Evidence("NVIDIA GeForce RTX 4070 SUPER", "8.9", 56),
        Evidence("Orin", "8.7", 8, 4_194_304, dram_bytes=16_136_011_776),  # of an Orin NX
        Evidence("NVIDIA H800 PCIe", "9.0", 114),
        Evidence("NVIDIA RTX A4500", "8.6", 56),
        Evidence("AMD Instinct MI300A", None, 228),
        Evidence("AMD Instinct MI308X", None, 80),
        Evidence("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", 76),  # another chip with the same model number
        Evidence("NVIDIA A10M", "8.6", 80),
        Evidence("NVIDIA GH200 144G HBM3e", "9.0", 132),  # other memory than the packaged GH200
        Evidence("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0", 188),
        Evidence("Quadro RTX 6000", "7.5", 72),  # a Turing GPU with the model number of an Ada GPU
        Evidence("NVIDIA A2", "8.6", 10),
    ],
)
def test_an_unknown_device_is_refused_with_an_option_to_add(evidence: Evidence) -> None:
    with pytest.raises(ProfileError) as caught:
        identify([evidence], None, ["x.csv"])
    assert str(caught.value).startswith("x.csv: ")
    (example,) = re.findall(r', as in hw="(.*?)"', str(caught.value))
    if "; candidates: " in str(caught.value):
        assert Device.load(example).compute_capability == evidence.compute_capability
    else:
        assert example == "a100"
    assert evidence.name is None or evidence.name in str(caught.value)


def test_the_given_device_takes_precedence_and_contradictions_are_warnings() -> None:
    found = identify([A100_40], "v100", ["x.csv"])
    assert (found.device.id, found.source) == ("v100-sxm2-32gb", "given")
    assert any("compute capability 8.0" in warning for warning in found.warnings)
    assert not identify([A100_40], "a100-sxm-40gb", ["x.csv"]).warnings


def test_a_gpu_of_amd_is_none_of_nvidia() -> None:
    """A trace of an AMD GPU may state no name, only its number of compute units."""
    h100 = Device.load("h100-pcie")
    assert contradictions(h100, Evidence(multiprocessors=114)) == []
    assert contradictions(h100, Evidence(multiprocessors=114, amd=True)) == ["vendor AMD, not NVIDIA"]


def test_contradictions_have_readable_units() -> None:
    seen = Evidence(dram_bandwidth=1.555e12, l2_bytes=40 * 2**20)  # of an A100
    assert contradictions(Device.load("v100"), seen) == [
        "L2 40 MiB, not 6 MiB", "DRAM bandwidth 1.555 TB/s, not 900 GB/s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "stated", "tolerated", "contradicted"),
    [
        ("dram_bytes", 80 * 2**30, 0.92, 0.90),  # without the memory of ECC and of the driver
        ("dram_bandwidth", 2039e9, 1.02, 1.03),  # datasheets round it
        ("l2_bytes", 40 * 2**20, 1.005, 1.02),
        ("clock", 1410e6, 0.995, 0.98),
    ],
)
def test_attributes_contradict_a_device_from_a_limit_on(
    attribute: str, stated: float, tolerated: float, contradicted: float
) -> None:
    device = Device.load("a100-sxm-80gb")
    assert contradictions(device, Evidence(**{attribute: stated * tolerated})) == []
    assert len(contradictions(device, Evidence(**{attribute: stated * contradicted}))) == 1


def test_a_packaged_device_does_not_contradict_its_own_attributes() -> None:
    for name in ("v100-sxm2-16gb", "a100-pcie-80gb", "h100-pcie", "h200"):
        device = Device.load(name)
        own = Evidence(
            device.name,
            device.compute_capability,
            device.multiprocessors,
            device.levels["l2"].capacity,
            device.levels["dram"].data_rate,
            device.capacity,
            device.clocks["boost"],
        )
        assert contradictions(device, own) == []


def test_files_of_two_devices_are_refused_with_names_to_add() -> None:
    a100 = Evidence("A100-SXM4-40GB", "8.0", file="a.csv")
    v100 = Evidence("Tesla V100-SXM2-16GB", "7.0", 80, file="b.csv")
    with pytest.raises(ProfileError, match=r"different devices.*a\.csv@a100-sxm-40gb b\.csv@v100-sxm2-16gb"):
        identify([a100, v100], None, ["a.csv", "b.csv"])
    warnings = identify([a100, v100], "a100-sxm-40gb", ["a.csv", "b.csv"]).warnings
    assert any("b.csv has compute capability 7.0" in text for text in warnings)
    assert not any("a.csv" in text for text in warnings)


def test_files_with_the_same_attributes_are_one_run() -> None:
    named, measured = Evidence("A100-SXM4-40GB", "8.0", file="a.csv"), replace(A100_40, file="b.csv")
    found = identify([named, measured, Evidence(compute_capability="8.0", file="c.csv")], None, ["a.csv", "b.csv"])
    assert (found.device.id, found.warnings) == ("a100-sxm-40gb", ())


def test_two_devices_in_one_file_give_a_warning() -> None:
    for both in permutations([A100_40, Evidence("Tesla V100-SXM2-16GB", "7.0", 80)]):
        (warning,) = identify(both, None, ["x.csv"]).warnings
        assert warning.startswith("the file has ")
        assert re.search(r"compute capability (7.0, not 8.0|8.0, not 7.0); multiprocessors", warning)


def test_an_h100_with_more_memory_than_the_nvl_is_not_the_nvl() -> None:
    """94 GiB are nominal, and drivers report less; the H100 SXM of 96 GB reports 95.1 GiB and the bare name."""
    found = identify([Evidence("NVIDIA H100", "9.0", 132, dram_bytes=int(95.1 * 2**30))], None, ["x.csv"])
    assert found.device.id == "h100-sxm-96gb-hbm2e"
