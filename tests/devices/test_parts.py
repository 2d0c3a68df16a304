"""Device files of users: an error states file, line, token and what would work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roofmodel.devices import library
from roofmodel.devices.ceilings import doubtful_entries, measured_ceilings
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError

GOOD = """\
name: A test device
multiprocessors: 100
clocks:
  boost: 1000 MHz
pipes:
  tensor_fp16: {peak: 100 TFLOP/s, per_multiprocessor: 1000 FLOP/clock, clock: boost, source: sheet}
  fp32: {peak: 10 TFLOP/s, source: sheet}
memory:
  dram: {capacity: 80 GiB, bandwidth: 2000 GB/s, bus: 4000 bit, clock: 2000 MHz, transfers_per_clock: 2, source: sheet}
  l2: {capacity: 40 MiB, bandwidth_per_clock: 5000 B/clock, clock: boost, source: sheet}
  l1: {capacity_per_multiprocessor: 192 KiB, bandwidth_per_clock_per_multiprocessor: 128 B/clock, clock: boost, source: sheet}
links:
  nvlink: {bandwidth: 600 GB/s, source: sheet}
measured:
  - {ceiling: dram, by: triad, value: 1800 GB/s, source: bench}
sources:
  sheet: "a datasheet"
  bench: "a benchmark"
"""  # noqa: E501


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def refusal(file: Path) -> str:
    with pytest.raises(DeviceError) as caught:
        Device.load(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    assert len(message) < len(str(file)) + 800  # the names of all devices
    return message.removeprefix(str(file))


def test_the_valid_example_file_is_accepted(tmp_path: Path) -> None:
    device = Device.load(write(tmp_path, GOOD))
    assert (device.id, device.name) == ("mine", "A test device")
    assert device.pipes["tensor_fp16"].peak == 100 * 10**12
    assert (device.bandwidth, device.capacity) == (2000 * 10**9, 80 * 2**30)
    assert device.levels["l2"].bandwidth == 5000 * 10**9  # 5000 B/clock × 1 GHz
    assert device.levels["l1"].bandwidth == 100 * 128 * 10**9  # 100 multiprocessors × 128 B/clock × 1 GHz
    assert device.levels["l1"].capacity == 100 * 192 * 1024
    assert doubtful_entries(device) == []


def test_a_device_file_needs_at_least_a_name_a_pipe_and_a_bandwidth(tmp_path: Path) -> None:
    least = "name: least\npipes:\n  fp32: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 GB/s}\n"
    device = Device.load(write(tmp_path, least))
    assert (device.capacity, device.multiprocessors, device.clocks, device.links) == (None, None, {}, {})
    unsourced = ["pipe fp32: no source", "memory dram: no source"]
    assert doubtful_entries(device) == unsourced
    with_like = Device.load(write(tmp_path, f"{least}like: a100-sxm-80gb\n"))
    assert doubtful_entries(with_like) == [
        *unsourced, "calibration: no expected times without multiprocessors and clocks: boost"
    ]  # fmt: skip


# name of the case, valid text, invalid text, line of the error, texts in the message after file and line
BAD: list[tuple[str, str, str, int, list[str]]] = [
    ("typo in bandwidth", "80 GiB, bandwidth:", "80 GiB, bandwith:", 9,
     ["unknown key 'bandwith'; did you mean 'bandwidth'?"]),
    ("typo in peak", "fp32: {peak:", "fp32: {peek:", 7, ["unknown key 'peek'; did you mean 'peak'?"]),
    ("typo at the top", "memory:", "memry:", 8, ["unknown key 'memry'; did you mean 'memory'?"]),
    ("typo in a pipe", "tensor_fp16:", "tensor_fp61:", 6,
     ["unknown key 'tensor_fp61'; did you mean ", "'tensor_fp16'"]),
    ("typo in a level", "  l2:", "  L3:", 10, ["unknown key 'L3'", "l2"]),
    ("typo in a link", "{bandwidth: 600", "{bandwidht: 600", 13,
     ["unknown key 'bandwidht'; did you mean 'bandwidth'?"]),
    ("typo in a measurement", "{ceiling:", "{cieling:", 15, ["unknown key 'cieling'; did you mean 'ceiling'?"]),
    ("unlike any known key", "fp32: {peak:", "fp32: {zzz: 1, peak:", 7, ["unknown key 'zzz'; known here: peak, "]),
    ("key of another level", "l2: {capacity:", "l2: {bus: 1 bit, capacity:", 10, ["unknown key 'bus'", "bandwidth"]),
    ("capability without a point", "multiprocessors: 100", "compute_capability: 95", 2,
     ["compute_capability is '95'", '"9.0"']),
    ("calibration of an unknown device", "sources:", "like: nosuch\nsources:", 16,
     ["like: unknown device 'nosuch'"]),
    ("peak without a unit", "100 TFLOP/s", "100", 6, ["pipes.tensor_fp16.peak", "'100'", "'312 TFLOP/s'"]),
    ("bandwidth without a unit", "2000 GB/s", "2000", 9, ["memory.dram.bandwidth", "'2000'", "'2039 GB/s'"]),
    ("clock without a unit", "boost: 1000 MHz", "boost: 1000", 4, ["clocks.boost", "'1000'", "'1410 MHz'"]),
    ("peak in bytes", "100 TFLOP/s", "100 TB/s", 6, ["pipes.tensor_fp16.peak", "'100 TB/s'", "B/s", "'312 TFLOP/s'"]),
    ("bandwidth in FLOPs", "2000 GB/s", "2000 GFLOP/s", 9, ["memory.dram.bandwidth", "'2000 GFLOP/s'", "'2039 GB/s'"]),
    ("bandwidth per clock as rate", "5000 B/clock", "5000 B/s", 10, ["'5000 B/s'", "'5120 B/clock'"]),
    ("capacity as rate", "40 MiB", "40 MB/s", 10, ["memory.l2.capacity", "'40 MB/s'", "'80 GiB'"]),
    ("measured in the wrong unit", "1800 GB/s", "1800 GFLOP/s", 15, ["measured[0].value", "'1800 GFLOP/s'"]),
    ("bits for bytes", "80 GiB", "80 Gbit", 9, ["memory.dram.capacity", "'80 Gbit'", "bit", "'80 GiB'"]),
    ("unknown unit", "100 TFLOP/s", "100 TFLOPS", 6, ["'TFLOPS'", "'100 TFLOPS'", "'312 TFLOP/s'"]),
    ("zero", "2000 GB/s", "0 GB/s", 9, ["memory.dram.bandwidth", "'0 GB/s'", "greater than zero"]),
    ("negative", "2000 GB/s", "-2000 GB/s", 9, ["memory.dram.bandwidth", "'-2000 GB/s'"]),
    ("zero clock", "boost: 1000 MHz", "boost: 0 MHz", 4, ["clocks.boost", "'0 MHz'", "greater than zero"]),
    ("less than a byte", "80 GiB", "0.5 B", 9, ["memory.dram.capacity", "'0.5 B'"]),
    ("implausibly large", "100 TFLOP/s", "9" * 400 + " TFLOP/s", 6, ["pipes.tensor_fp16.peak"]),
    ("larger than any float", "100 TFLOP/s", "9" * 400 + ".5 FLOP/s", 6, ["pipes.tensor_fp16.peak"]),
    ("too many digits for Python", "100 TFLOP/s", "9" * 5000 + " TFLOP/s", 6, ["pipes.tensor_fp16.peak"]),
    ("list instead of a quantity", "100 TFLOP/s", "[100 TFLOP/s]", 6, ["pipes.tensor_fp16.peak", "text"]),
    ("null instead of a quantity", "peak: 10 TFLOP/s", "peak: ", 7, ["pipes.fp32.peak"]),
    ("same key twice", "links:", "name: again\nlinks:", 12, ["duplicate key 'name'", "line 1 "]),
    ("same pipe twice", "memory:", "  tensor_fp16: {peak: 1 TFLOP/s}\nmemory:", 8,
     ["duplicate key 'tensor_fp16'", "line 6 "]),
    ("same clock twice", "  boost: 1000 MHz", "  boost: 1000 MHz\n  boost: 1 MHz", 5,
     ["duplicate key 'boost'", "line 4 "]),
    ("no name", "name: A test device\n", "", 1, ["lacks the key 'name'"]),
    ("no peak", "{peak: 10 TFLOP/s, ", "{", 7, ["pipes.fp32 lacks the key 'peak'"]),
    ("no bandwidth", "bandwidth: 2000 GB/s, ", "", 9, ["memory.dram lacks the key 'bandwidth'"]),
    ("no dram", "  dram:", "  l2x:", 9, ["unknown key 'l2x'", "'l2'"]),
    ("no ceiling", "ceiling: dram, ", "", 15, ["measured[0] lacks the key 'ceiling'"]),
    ("empty name", "name: A test device", "name:", 1, ["name must be text"]),
    ("undefined clock", "1000 FLOP/clock, clock: boost", "1000 FLOP/clock, clock: bost", 6,
     ["clock 'bost' is not among clocks: boost"]),
    ("undefined source", "peak: 10 TFLOP/s, source: sheet", "peak: 10 TFLOP/s, source: sheeet", 7,
     ["source 'sheeet' is not defined under 'sources', which has: sheet, bench"]),
    ("undefined source of a level", "40 MiB, bandwidth_per_clock: 5000 B/clock, clock: boost, source: sheet",
     "40 MiB, source: nowhere", 10, ["source 'nowhere' is not defined under 'sources', which has: sheet, bench"]),
    ("unknown ceiling", "ceiling: dram", "ceiling: l3", 15, ["ceiling 'l3'", "dram", "tensor_fp16"]),
    ("multiprocessors as text", "multiprocessors: 100", "multiprocessors: many", 2,
     ["multiprocessors is 'many'", "whole number from 1"]),
    ("multiprocessors zero", "multiprocessors: 100", "multiprocessors: 0", 2, ["is '0'", "whole number from 1"]),
    ("multiprocessors broken", "multiprocessors: 100", "multiprocessors: 1.5", 2, ["is '1.5'", "whole number"]),
    ("multiprocessors a list", "multiprocessors: 100", "multiprocessors: [1]", 2, ["multiprocessors"]),
    ("transfers broken", "transfers_per_clock: 2", "transfers_per_clock: two", 9,
     ["memory.dram.transfers_per_clock is 'two'", "whole number"]),
    ("clocks text", "clocks:\n  boost: 1000 MHz", "clocks: fast", 3, ["clocks must be a mapping"]),
    ("a pipe as text", "fp32: {peak: 10 TFLOP/s, source: sheet}", "fp32: 10 TFLOP/s", 7,
     ["pipes.fp32 must be a mapping"]),
    ("measured a mapping", "  - {ceiling", "  one: {ceiling", 15, ["measured must be a list"]),
    ("bridge of one GPU", "600 GB/s,", "600 GB/s, joins: 1,", 13, ["links.nvlink.joins is 1", "2 or more"]),
    ("a node of none", "600 GB/s,", "600 GB/s, beyond: 0,", 13, ["links.nvlink.beyond", "whole number from 1"]),
    ("link to an unknown end", "600 GB/s,", "600 GB/s, to: network,", 13, ["links.nvlink.to is network", "host"]),
    ("bridge to the host", "600 GB/s,", "600 GB/s, to: host, joins: 2,", 13, ["goes to the host", "neither joins"]),
    ("a bridge between nodes", "600 GB/s,", "600 GB/s, joins: 2, beyond: 8,", 13, ["both joins (2) and beyond (8)"]),
    ("two networks", "  nvlink: {", "  one: {bandwidth: 1 GB/s, beyond: 8}\n  nvlink: {beyond: 8, ", 13,
     ["several networks between nodes, one, nvlink"]),
    ("list as a key", "links:", "? [a, b]\n: c\nlinks:", 12, ["key"]),
    ("list as the name of a clock", "  boost: 1000 MHz", "  boost: 1000 MHz\n  ? [a, b]\n  : 1 MHz", 5, ["key"]),
    ("an unclosed brace", "source: sheet}\n  fp32:", "source: sheet\n  fp32:", 7, ["not YAML ("]),
    ("a tab as indentation", "  boost: 1000 MHz", "\tboost: 1000 MHz", 4, ["not YAML ("]),
    ("an unknown alias", "name: A test device", "name: *unknown", 1, ["not YAML ("]),
    ("two documents", "links:", "---\nlinks:", 12, ["not YAML ("]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "fragments"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_an_error_in_a_device_file_names_line_and_token(
    tmp_path: Path, old: str, new: str, line: int, fragments: list[str]
) -> None:
    assert GOOD.count(old) == 1
    message = refusal(write(tmp_path, GOOD.replace(old, new)))
    assert message.startswith(f":{line}: ")
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert "Node(" not in message  # no class names of the YAML reader


def test_the_documented_message_is_exact(tmp_path: Path) -> None:
    text = "name: x\npipes:\n  fp32: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwith: 1 GB/s}\n"
    assert refusal(write(tmp_path, text, "a100.yaml")) == ":5: unknown key 'bandwith'; did you mean 'bandwidth'?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": expected a device's YAML, got an empty file"),
        ("# only a comment\n", ": expected a device's YAML, got an empty file"),
        ("- a\n- b\n", ":1: the file must be a mapping"),
        ("just some text\n", ":1: the file must be a mapping"),
        ("\n\n[1, 2]\n", ":3: the file must be a mapping"),
        ("{}\n", ":1: the file lacks the key 'name'"),
        ("name: x\npipes: {}\nmemory: {dram: {bandwidth: 1 GB/s}}\n", ":2: pipes is empty"),
        ("name: x\npipes: {fp32: {peak: 1 FLOP/s}}\nmemory: {}\n", ":3: memory lacks the key 'dram'"),
        ("name: x\npipes: {fp32: {peak: 1 FLOP/s}}\n", ":1: the file lacks the key 'memory'"),
        ("name: x\nmemory: {dram: {bandwidth: 1 GB/s}}\n", ":1: the file lacks the key 'pipes'"),
        ("name: x\npipes: [fp32]\nmemory: {dram: {bandwidth: 1 GB/s}}\n", ":2: pipes must be a mapping"),
        ("name: x\npipes:\nmemory: {dram: {bandwidth: 1 GB/s}}\n", ":2: pipes must be a mapping"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_device_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(write(tmp_path, text)).startswith(message)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\xff", b"\xff\xfen\x00a\x00", bytes(range(256))])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    assert "expected a device's YAML, got a file that is not text" in refusal(file)


def test_control_characters_are_refused(tmp_path: Path) -> None:
    assert "not YAML (" in refusal(write(tmp_path, "name: \x00\x01\n"))


def test_unclosed_brackets_are_refused(tmp_path: Path) -> None:
    assert "not YAML (" in refusal(write(tmp_path, "[" * 20))
    assert ":1: more than 50 nested lists and mappings" in refusal(write(tmp_path, "[" * 500))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mine.yaml"
    folder.mkdir()
    with pytest.raises(DeviceError, match=r"mine\.yaml: .*folder; give a device's YAML file"):
        Device.load(str(folder))


@pytest.mark.parametrize("name", ["./missing.yaml", "missing.yml", "no/such/device", "/nonexistent/x.yaml"])
def test_a_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeviceError) as caught:
        Device.load(name)
    assert str(caught.value).startswith(f"{name}: no such file")
    assert "roofmodel.list_hardware()" in str(caught.value)


def test_an_unreadable_file_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(file) == ": cannot be read (Permission denied)"


@pytest.mark.parametrize("name", ["~nosuchuser/mine.yaml", "a" * 5000, "a" * 5000 + ".yaml", ""], ids=lambda n: n[:20])
def test_an_invalid_file_name_is_refused(name: str) -> None:
    with pytest.raises(DeviceError):
        Device.load(name)


# --- Accepted files -------------------------------------------------------------------------------


def test_carriage_returns_and_a_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    plain = Device.load(write(tmp_path, GOOD))
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert Device.load(file) == plain


def test_line_numbers_are_the_same_with_carriage_returns(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(GOOD.replace("fp32: {peak:", "fp32: {peek:").replace("\n", "\r\n").encode())
    assert refusal(file).startswith(":7: unknown key 'peek'")


def test_block_style_reads_like_flow_style(tmp_path: Path) -> None:
    block = GOOD.replace(
        "  fp32: {peak: 10 TFLOP/s, source: sheet}", "  fp32:\n    peak: 10 TFLOP/s\n    source: sheet"
    )
    assert Device.load(write(tmp_path, block)) == Device.load(write(tmp_path, GOOD))


def test_a_clock_may_be_a_value_instead_of_a_name(tmp_path: Path) -> None:
    named = Device.load(write(tmp_path, GOOD))
    inline = Device.load(
        write(tmp_path, GOOD.replace("1000 FLOP/clock, clock: boost", "1000 FLOP/clock, clock: 1 GHz"))
    )
    assert inline.pipes["tensor_fp16"].clock == named.pipes["tensor_fp16"].clock == 10**9


def test_a_stated_bandwidth_takes_precedence_over_bytes_per_clock(tmp_path: Path) -> None:
    stated = GOOD.replace("40 MiB, bandwidth_per_clock", "40 MiB, bandwidth: 4 TB/s, bandwidth_per_clock")
    assert Device.load(write(tmp_path, stated)).levels["l2"].bandwidth == 4 * 10**12


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "100 TFLOP/s",
            "103 TFLOP/s",
            ["pipe tensor_fp16: peak", "103 TFLOP/s", "100 TFLOP/s", "-2.9%"],
        ),  # 100/103
        ("100 TFLOP/s", "200 TFLOP/s", ["pipe tensor_fp16: peak", "200 TFLOP/s", "100 TFLOP/s", "-50.0%"]),
        ("2000 GB/s", "1900 GB/s", ["memory dram: bandwidth", "1.9 TB/s", "2 TB/s", "+5.3%"]),  # 2000/1900 - 1
        ("peak: 10 TFLOP/s, source: sheet", "peak: 10 TFLOP/s", ["pipe fp32: no source"]),
    ],
)
def test_inconsistent_figures_are_accepted_with_a_warning(
    tmp_path: Path, old: str, new: str, finding: list[str]
) -> None:
    (found,) = doubtful_entries(Device.load(write(tmp_path, GOOD.replace(old, new))))
    assert [fragment for fragment in finding if fragment not in found] == []


@pytest.mark.parametrize(
    ("level", "missing"),
    [
        ("l1: {bandwidth_per_clock_per_multiprocessor: 128 B/clock, clock: 1 GHz}", "multiprocessors"),
        ("l1: {capacity_per_multiprocessor: 192 KiB}", "multiprocessors"),
        ("l2: {bandwidth_per_clock: 5120 B/clock}", "clock"),
    ],
)
def test_an_unusable_number_is_reported(tmp_path: Path, level: str, missing: str) -> None:
    text = f"name: x\npipes:\n  fp32: {{peak: 1 TFLOP/s}}\nmemory:\n  dram: {{bandwidth: 1 GB/s}}\n  {level}\n"
    file = write(tmp_path, text)
    try:
        entries = doubtful_entries(Device.load(file))
    except DeviceError as error:
        entries = [str(error).removeprefix(str(file))]
    assert any(level[:2] in line and missing in line for line in entries)


def test_a_device_without_sms_states_the_rate_of_the_whole_device(tmp_path: Path) -> None:
    pipe = "tensor_bf16: {peak: 275 TFLOP/s, per_clock: 262144 FLOP/clock, clock: 1050 MHz, source: sheet}"
    dram = "dram: {bandwidth: 1228 GB/s, source: sheet}"
    text = f"name: A TPU\npipes:\n  {pipe}\nmemory:\n  {dram}\nsources: {{sheet: x}}"
    device = Device.load(write(tmp_path, text))
    assert device.pipes["tensor_bf16"].computed(None) == 262144 * 1050e6
    assert doubtful_entries(device) == []
    (found,) = doubtful_entries(Device.load(write(tmp_path, text.replace("1050 MHz", "950 MHz"))))
    assert "275 TFLOP/s" in found
    both = text.replace("per_clock", "per_multiprocessor: 131072 FLOP/clock, per_clock")
    assert ":3: pipes.tensor_bf16 has both a rate per SM and a rate of the device" in refusal(write(tmp_path, both))


@pytest.mark.parametrize("peak", ["98 TFLOP/s", "102 TFLOP/s"])
def test_rounding_in_a_datasheet_gives_no_warning(tmp_path: Path, peak: str) -> None:
    assert doubtful_entries(Device.load(write(tmp_path, GOOD.replace("100 TFLOP/s", peak)))) == []


# --- The user's folder ------------------------------------------------------------------------------


@pytest.fixture
def users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "roofmodel" / "hardware"
    folder.mkdir(parents=True)
    return folder


def test_a_users_file_takes_precedence_over_the_packaged_one(users_folder: Path) -> None:
    assert Device.load("a100-sxm-80gb").name == "NVIDIA A100 SXM4 80 GB"
    write(users_folder, GOOD, "a100-sxm-80gb.yaml")
    assert Device.load("a100-sxm-80gb").name == "A test device"
    assert Device.load("a100").name == "A test device"  # the alias resolves to the name
    assert library.names().count("a100-sxm-80gb") == 1


def test_the_id_of_a_users_device_is_the_stem_of_its_file(users_folder: Path) -> None:
    write(users_folder, GOOD, "mine.yaml")
    assert Device.load("mine").name == "A test device"
    assert "mine" in library.names()


def test_without_the_variable_the_users_folder_is_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config" / "roofmodel" / "hardware"
    folder.mkdir(parents=True)
    write(folder, GOOD, "mine.yaml")
    assert Device.load("mine").name == "A test device"


def test_a_missing_user_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
    assert Device.load("a100").id == "a100-sxm-80gb"


def test_an_error_in_a_users_file_states_its_path(users_folder: Path) -> None:
    file = write(users_folder, GOOD.replace("peak: 10 TFLOP/s", "peek: 10 TFLOP/s"), "mine.yaml")
    with pytest.raises(DeviceError) as caught:
        Device.load("mine")
    assert str(caught.value).startswith(f"{file}:7: ")


def test_a_path_is_never_read_as_a_name(monkeypatch: pytest.MonkeyPatch, users_folder: Path, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, GOOD, "a100.yaml")
    assert Device.load("a100").id == "a100-sxm-80gb"
    assert Device.load("a100.yaml").name == "A test device"
    assert Device.load(f".{os.sep}a100.yaml").name == "A test device"


POWER = """\
power:
  limit: 500 W
  idle: {value: 100 W, source: bench}
  clock: boost
  energy: {tensor_fp16: 0.5 pJ/FLOP, dram: {value: 50 pJ/B, source: bench}}
  source: sheet
"""


def test_power_is_read_in_watts_and_joules_with_the_source_of_each(tmp_path: Path) -> None:
    power = Device.load(write(tmp_path, GOOD + POWER)).power
    assert power is not None
    assert (power.limit, power.idle, power.budget, power.clock) == (500, 100, 400, 10**9)
    assert power.energy == pytest.approx({"tensor_fp16": 0.5e-12, "dram": 50e-12})
    assert power.sources == {"limit": "sheet", "idle": "bench", "tensor_fp16": "sheet", "dram": "bench"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("500 W", "500", "'500' has no unit"),
        ("500 W", "500 V", "unknown unit 'V'"),
        ("500 W", "90 W", "must be below limit"),
        ("0.5 pJ/FLOP", "0.5 pJ", "unknown unit 'pJ'"),
        ("50 pJ/B", "50 pJ/FLOP", "in J/B"),
        ("tensor_fp16: 0.5", "tensor_fp61: 0.5", "unknown key 'tensor_fp61'"),
        ("value: 50", "vaule: 50", "did you mean 'value'"),
        ("  limit: 500 W\n", "", "lacks the key 'limit'"),
        ("source: bench}}", "source: nobody}}", "'nobody' is not defined"),
    ],
)
def test_an_error_in_power_says_what_would_work(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in refusal(write(tmp_path, GOOD + POWER.replace(old, new)))


def test_a_sustained_rate_is_no_measured_ceiling_of_a_short_kernel(tmp_path: Path) -> None:
    stated = "  - {ceiling: tensor_fp16, by: sustained, value: 50 TFLOP/s, source: bench}\nsources:"
    device = Device.load(write(tmp_path, GOOD.replace("sources:", stated)))
    assert "tensor_fp16" not in measured_ceilings(device)
    assert not any(benchmark == "sustained" for _, benchmark, _ in device.reached)
