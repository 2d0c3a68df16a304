"""A device that no file describes, from the attributes in a profile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import roofmodel
from roofmodel.devices import library
from roofmodel.devices.ceilings import doubtful_entries
from roofmodel.devices.derived import PER_CLOCK, derived, device_yaml, per_clock
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Evidence
from roofmodel.roofline.device import UnknownDevice, identify
from tests.profiles.samples import measured

KNOWN = [
    device
    for device in map(Device.load, library.names())
    if device.compute_capability is not None and device.id not in ("h20",)  # an H20 has fewer tensor cores
]


@pytest.mark.parametrize("device", KNOWN, ids=lambda device: device.id)
def test_the_rates_of_a_compute_capability_are_those_of_the_packaged_devices(device: Device) -> None:
    """Each packaged file has its rates from that device's datasheet or whitepaper."""
    rates = per_clock(device.compute_capability or "", device.name)
    for name, pipe in device.pipes.items():
        if name in rates and pipe.per_multiprocessor is not None:
            assert rates[name] == pipe.per_multiprocessor, name
    assert {name for name in device.pipes if not name.endswith("_acc16")} <= rates.keys()


@pytest.mark.parametrize(
    ("name", "capability", "sms", "boost", "fp32", "tensor"),
    [  # TFLOP/s of NVIDIA's and TechPowerUp's specifications; tensor: fp16 with fp32 accumulation, dense
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", 28, 1582e6, 11.34, None),
        ("NVIDIA GeForce GTX 1660 Ti", "7.5", 24, 1770e6, 5.437, None),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5", 68, 1545e6, 13.45, 53.8),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "8.6", 30, 1425e6, 10.94, 21.9),
        ("NVIDIA RTX A4000", "8.6", 48, 1560e6, 19.17, 76.7),
        ("NVIDIA A10G", "8.6", 80, 1710e6, 35.02, 70.0),
        ("NVIDIA GeForce RTX 4060", "8.9", 24, 2460e6, 15.11, 30.2),
        ("Orin", "8.7", 16, 1300e6, 5.325, 42.6),
    ],
)
def test_peaks_are_those_that_the_vendor_publishes(
    name: str, capability: str, sms: int, boost: float, fp32: float, tensor: float | None
) -> None:
    found = derived(name, capability, sms, boost, 400e9)
    assert found is not None
    assert found.pipes["fp32"].peak / 1e12 == pytest.approx(fp32, rel=0.01)
    assert ("tensor_fp16" in found.pipes) == (tensor is not None)
    if tensor is not None:
        assert found.pipes["tensor_fp16"].peak / 1e12 == pytest.approx(tensor, rel=0.01)


def test_a_profile_of_an_unknown_card_gives_its_ceilings() -> None:
    """An RTX A4500: 23.7 TFLOP/s in fp32, 94.6 on tensor cores, 20 GB at 640 GB/s (NVIDIA's datasheet)."""
    file = str(measured("traces/nsys/one_kernel_rtx_a4500.sqlite"))
    found = roofmodel.show_hardware(profile=file).data
    assert found["pipes"]["fp32"]["peak"] == pytest.approx(23.7e12, rel=0.01)
    assert found["pipes"]["tensor_fp16"]["peak"] == pytest.approx(94.6e12, rel=0.01)
    assert found["levels"]["dram"]["bandwidth"] == pytest.approx(640e9, rel=0.01)
    assert roofmodel.read_profile(file).to_dict()["hardware"] == "rtx-a4500"


def test_the_written_file_of_an_overclocked_card_has_its_clock(tmp_path: Path) -> None:
    """An RTX 4090 at 2565 instead of 2520 MHz: 2 x 128 x 128 x 2.565 GHz = 84 TFLOP/s."""
    file = tmp_path / "run.sqlite"
    file.write_bytes(measured("traces/nsys/one_kernel_rtx_a4500.sqlite").read_bytes())
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "UPDATE TARGET_INFO_GPU SET name = 'NVIDIA GeForce RTX 4090', computeMajor = 8, computeMinor = 9,"
            " smCount = 128, clockRate = 2565000000, memoryBandwidth = 1008096000000, totalMemory = 25385107456,"
            " l2CacheSize = 75497472"
        )
        database.commit()
    profile = roofmodel.read_profile(str(file)).to_dict()
    assert profile["hardware"] == "rtx4090"
    roofmodel.show_hardware(profile=str(file)).save(tmp_path / "mine.yaml")
    mine = Device.load(tmp_path / "mine.yaml")
    assert mine.pipes["fp32"].peak == pytest.approx(84.05e12, rel=0.001)
    assert doubtful_entries(mine) == []


@pytest.mark.parametrize("capability", PER_CLOCK)
def test_the_written_file_is_a_valid_device(capability: str, tmp_path: Path) -> None:
    device = derived('A "new" card', capability, 40, 1.5e9, 448e9, 8 * 2**30, 4 * 2**20)
    assert device is not None
    (tmp_path / "mine.yaml").write_text(device_yaml(device) + "\n")
    again = Device.load(tmp_path / "mine.yaml")
    assert doubtful_entries(again) == []
    assert again.pipes.keys() == device.pipes.keys()
    assert (again.name, again.bandwidth, again.capacity) == ('A "new" card', 448e9, 8 * 2**30)
    assert max(map(len, device_yaml(device).splitlines())) <= 120


def test_a_packaged_device_is_written_as_it_is(tmp_path: Path) -> None:
    roofmodel.show_hardware("l4").save(tmp_path / "mine.yaml")
    assert (tmp_path / "mine.yaml").read_text() == library.find("l4").read_text()


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (Evidence("NVIDIA RTX A4500", "8.6", 56, clock=1.65e9), "does not state its DRAM bandwidth"),
        (Evidence("NVIDIA RTX A4500", "8.6", 56), "states neither its clock nor its DRAM bandwidth"),
        (Evidence("NVIDIA Future", "99.0", 56, dram_bandwidth=1e12, clock=1.65e9), "no device file describes"),
    ],
)
def test_a_file_that_states_too_little_is_an_error_that_says_what_it_lacks(evidence: Evidence, message: str) -> None:
    with pytest.raises(UnknownDevice, match=message):
        identify([evidence], None, ["a.sqlite"])
