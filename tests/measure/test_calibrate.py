"""Calibration: recovered parameters, held-out rows, written device files, transferred parameter sets."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import roofmodel
from roofmodel.devices import parts
from roofmodel.devices.calibration import Fit, Fitted, GemmTiming
from roofmodel.devices.calibration_writer import device_file, sections
from roofmodel.devices.device import Device
from roofmodel.devices.transfer import transferred
from roofmodel.errors import DeviceError, WorkloadError
from roofmodel.measure import calibrate as calibrate_module
from roofmodel.measure import fitting
from roofmodel.measure.calibrate import Calibrated, Sample, calibrate
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.measure.validate import validate
from roofmodel.timing.timing import expect
from tests.printing import printed

pytest.importorskip("scipy", reason="calibrating needs scipy: pip install 'roofmodel[calibrate]'")

A100, H100 = Device.load("a100"), Device.load("h100")


def synthetic_gemms(folder: Path, rows: int = 900, noise: float = 0.05) -> Path:
    """GEMMs with the expected times of the H100's parameters and random noise; a fit should recover them."""
    rng = np.random.default_rng(3)
    shape = {name: np.round(2 ** rng.uniform(0, 14, rows)) for name in ("m", "n", "k")}
    expected = expect(OPERATIONS["gemm"].operator(shape, widths(PRECISIONS["bfloat16"])), H100, "bf16")
    assert expected is not None
    seconds = expected.value * np.exp(rng.normal(0, noise, rows))
    path = folder / "synthetic.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("op", "dtype", "m", "n", "k", "latency_us"))
        writer.writerows(
            ("gemm", "bfloat16", *(int(shape[name][i]) for name in "mnk"), seconds[i] * 1e6) for i in range(rows)
        )
    return path


class SyntheticFit(NamedTuple):
    """A calibration on synthetic measurements of the H100, shared by several tests: a fit takes a minute.

    The device has no calibration, so that the search does not start from the parameters that it should recover.
    """

    found: Calibrated
    table: Path
    too_fast: list[int]  # line numbers in the table
    begun: list[str]  # names of the sets in the order of the fits


@pytest.fixture(scope="module")
def synthetic_fit(tmp_path_factory: pytest.TempPathFactory) -> SyntheticFit:
    """900 GEMMs in 16 bits, 280 in fp8 with random times, too few additions, and one unknown operation.

    The eight longest of the 900 rows take a tenth of their bound, as with a wrong time measurement.
    """
    folder = tmp_path_factory.mktemp("synthetic")
    path = synthetic_gemms(folder)
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    bound = validate(str(path), H100).bound
    longest = sorted(np.argsort(bound)[-8:].tolist())
    for row in longest:
        rows[row] = ",".join((*rows[row].split(",")[:5], str(bound[row] / 10 * 1e6)))
    rng = np.random.default_rng(5)
    random = [f"gemm,fp8,{2**m},4096,4096,{rng.uniform(1e3, 1e6)}" for m in range(14) for _ in range(20)]
    path.write_text("\n".join((header, *rows, *random)), encoding="utf-8")
    sums = folder / "sums.csv"
    sums.write_text("op,dtype,tokens,hidden,latency_us\nadd,half,9,9,9\nsum,half,9,9,9\n")
    begun: list[str] = []
    device = replace(H100, calibration=None)
    found = calibrate([str(path), str(sums)], device, 'a "source"', progress=lambda what, *_: begun.append(what))
    return SyntheticFit(found, path, longest, begun)


@pytest.fixture
def quick_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit from one start."""
    monkeypatch.setattr(fitting, "RANDOM_STARTS", 0)


def test_a_fit_recovers_the_parameters_of_synthetic_measurements(synthetic_fit: SyntheticFit) -> None:
    """Noise of 5 % has a mean absolute error of 4 %; the error of the fit may be little larger."""
    fit = synthetic_fit.found.calibration.gemm["any"]["fp16/fp16"].fit
    assert fit.error < 0.055
    assert 0.2 < 1 - fit.rows / 892 < 0.5
    assert 0.9 < fit.low < 0.97
    assert 1.03 < fit.high < 1.12


def test_rows_faster_than_their_bound_are_listed_and_not_fitted(synthetic_fit: SyntheticFit) -> None:
    lines = ", ".join(str(row + 2) for row in synthetic_fit.too_fast[:3])
    assert (
        f"{synthetic_fit.table}: gemm bf16: lines {lines} … (8): not fitted, "
        "because more than 5 % faster than the bound"
    ) in synthetic_fit.found.remarks
    fit = synthetic_fit.found.calibration.gemm["any"]["fp16/fp16"].fit
    assert fit.held_out == 900 - 8


def test_remarks_list_sets_that_were_not_fitted_or_have_a_large_error(synthetic_fit: SyntheticFit) -> None:
    assert synthetic_fit.begun == ["gemm any fp16/fp16: 892 rows", "gemm any fp8/fp8: 280 rows"]
    remarks = "\n".join(synthetic_fit.found.remarks)
    assert re.search(r"gemm any fp8/fp8: error \d+% on held-out rows; other kernels, formats and devices", remarks)
    assert "elementwise add fp16/fp16: not fitted: it has 1 rows; it needs 9" in remarks
    assert "sums.csv: line 3: unknown op 'sum'" in remarks


def test_each_link_is_fitted_to_its_own_rows_and_other_links_keep_their_sets(tmp_path: Path) -> None:
    """All-reduces on 2 and 4 A100 PCIe with bridges between pairs, with twice the expected times of the A100."""
    device = Device.load("a100-pcie-80gb")
    path, lines = tmp_path / "nccl.csv", ["op,dtype,collective,num_gpus,elements,latency_us,kernel"]
    for elements in (int(2 ** (k / 4)) for k in range(32, 112)):
        for gpus in (2, 4):
            columns = {"collective": "all_reduce", "num_gpus": gpus, "elements": elements}
            found = expect(OPERATIONS["nccl"].operator(columns, widths(PRECISIONS["half"])), device, "fp16")
            assert found is not None
            lines.append(f"nccl,half,all_reduce,{gpus},{elements},{2e6 * found.value},NCCL")
    path.write_text("\n".join(lines), encoding="utf-8")
    fitted = calibrate([str(path)], device, "synthetic").calibration.collectives["NCCL"]
    assert device.calibration is not None
    before = device.calibration.collectives["NCCL"]
    assert fitted["any"].fit.held_out == 80
    assert fitted["pcie"].fit.held_out == 80
    for form, steps in (("any", 2), ("pcie", 6)):  # 2 (n - 1) steps; with a single n, only the sum is determined
        smallest = [sets[form].timing.latency + steps * sets[form].timing.hop for sets in (fitted, before)]
        assert smallest[0] == pytest.approx(2 * smallest[1], rel=0.1)
    assert fitted["network"] == before["network"]


def test_16_bit_gemms_have_a_set_for_each_framework_and_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two frameworks with 30 rows each, and 12 rows in fp8. The set for all frameworks comes first."""

    def fit(_: object, samples: list[Sample], start: GemmTiming, *__: object) -> Fitted[GemmTiming]:
        return Fitted(start, Fit(sum(len(s.measured) for s in samples), 0, 0.0, 1.0, 1.0, "", ""))

    monkeypatch.setattr(calibrate_module._Fitter, "fit", fit)
    table = tmp_path / "two.csv"
    rows = [("bfloat16", "ours")] * 30 + [("bfloat16", "theirs")] * 30 + [("fp8", "theirs")] * 12
    lines = [f"gemm,{dtype},{i + 1},64,64,9,{kernel}" for i, (dtype, kernel) in enumerate(rows)]
    table.write_text("\n".join(("op,dtype,m,n,k,latency_us,kernel", *lines)))
    found = calibrate([str(table)], replace(H100, calibration=None), "synthetic").calibration.gemm
    rows_of_sets = {name: {form: one.fit.rows for form, one in forms.items()} for name, forms in found.items()}
    assert rows_of_sets == {
        "any": {"fp16/fp16": 60},
        "theirs": {"fp16/fp16": 30, "fp8/fp8": 12},
        "ours": {"fp16/fp16": 30},
    }
    assert next(iter(found)) == "any"


@pytest.mark.parametrize(
    ("missing", "stated"),
    [("multiprocessors: 108", "clocks: {boost: 1 GHz}"), ("clocks: {boost: 1410 MHz}", "multiprocessors: 4")],
)
def test_a_device_without_multiprocessors_or_boost_clock_cannot_be_calibrated(
    tmp_path: Path, missing: str, stated: str
) -> None:
    toy = "name: Toy\npipes:\n  tensor_bf16: {peak: 9 TFLOP/s}\nmemory:\n  dram: {bandwidth: 9 GB/s}\n"
    (tmp_path / "toy.yaml").write_text(f"{toy}{stated}\n")
    with pytest.raises(DeviceError, match=f"toy: the timing model needs .* such as '{re.escape(missing)}'"):
        calibrate([str(synthetic_gemms(tmp_path, rows=90))], Device.load(tmp_path / "toy.yaml"), "synthetic")
    (tmp_path / "complete.yaml").write_text(f"{toy}{stated}\n{missing}\n")  # the line in the message
    assert Device.load(tmp_path / "complete.yaml").multiprocessors


def test_the_fit_finds_the_tiles_of_an_moe(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    ranges = {
        "tokens": (0, 12),
        "hidden": (9, 13),
        "inter": (8, 12),
        "topk": (0, 3),
        "experts": (5, 8),
        "moe_ep": (0, 4),
    }
    shape = {name: np.round(2 ** rng.uniform(*span, 300)) for name, span in ranges.items()}
    operator = OPERATIONS["moe"].operator(shape | {"distribution": "balanced"}, widths(PRECISIONS["bfloat16"]))
    expected = expect(operator, H100, "bf16", "sglang_fused_moe_triton")
    assert expected is not None
    with (tmp_path / "moe.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("op", "dtype", "kernel", "distribution", *ranges, "latency_us"))
        cells = zip(*shape.values(), expected.value * 1e6, strict=True)
        writer.writerows(("moe", "bfloat16", "mine", "balanced", *row) for row in cells)
    found = calibrate([str(tmp_path / "moe.csv")], H100, "synthetic").calibration.experts["mine"]["fp16/fp16"]
    assert found.timing.tile_rows == 64
    assert found.fit.error < 0.03


def test_a_device_file_changes_only_in_the_kinds_that_were_fitted(synthetic_fit: SyntheticFit, tmp_path: Path) -> None:
    assert H100.calibration is not None
    calibration = H100.calibration._replace(gemm=synthetic_fit.found.calibration.gemm)
    text = Path(parts.__file__).parents[2].joinpath("hardware/h100-sxm.yaml").read_text()
    path = tmp_path / "h100-sxm.yaml"
    path.write_text(device_file(text, calibration))
    reread = Device.load(path)
    assert reread.pipes == H100.pipes
    assert reread.calibration is not None
    assert reread.calibration.gemm == calibration.gemm
    assert reread.calibration.prefill_attention == H100.calibration.prefill_attention
    assert reread.calibration.experts == H100.calibration.experts
    assert reread.calibration.collectives == H100.calibration.collectives
    assert device_file(path.read_text(), calibration) == path.read_text()


def test_a_written_calibration_reads_back_unchanged(tmp_path: Path) -> None:
    a100 = Device.load("a100")
    assert a100.calibration is not None
    text = Path(parts.__file__).parents[2].joinpath("hardware/a100-sxm-80gb.yaml").read_text()
    section = [line for kind in sections(a100.calibration).values() for line in kind]
    path = tmp_path / "a100-sxm-80gb.yaml"
    path.write_text(text + "\ncalibration:\n" + "\n".join(section) + "\n")
    assert Device.load(path).calibration == a100.calibration._replace(transferred={})  # written into the file


def test_sets_without_source_and_date_have_those_of_their_kind(tmp_path: Path) -> None:
    timing = "latency: 1 us, dram: 0.8, l2: 0.2"
    fit = "rows: 9, held_out: 4, error: 0.1, low: 0.9, high: 1.1"
    text = Path(parts.__file__).parents[2].joinpath("hardware/h100-sxm.yaml").read_text()
    path = tmp_path / "h100-sxm.yaml"

    def streams(*lines: str) -> dict[str, tuple[str, str]]:
        path.write_text("\n    ".join((f"{text}\ncalibration:\n  elementwise:", *lines)) + "\n")
        calibration = Device.load(path).calibration
        assert calibration is not None
        return {name: forms["fp16/fp16"].fit[-2:] for name, forms in calibration.elementwise.items()}

    with_default = f"add: {{fp16/fp16: {{{timing}, fit: {{{fit}}}}}}}"
    with_own = f"norm: {{fp16/fp16: {{{timing}, fit: {{{fit}, source: theirs, date: 2025-01-02}}}}}}"
    default = streams("fit: {source: ours, date: 2026-01-02}", with_default, with_own)
    assert default == {"add": ("ours", "2026-01-02"), "norm": ("theirs", "2025-01-02")}
    assert streams(with_own) == {"norm": default["norm"]}  # files of earlier versions
    with pytest.raises(DeviceError, match=r"calibration\.elementwise\.add\.fp16/fp16\.fit lacks the key 'source'"):
        streams(with_default, with_own)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "like: examples/toy-gpu.yaml",
            "like: examples/toy-gpu.yaml has no fitted parameters; calibrated devices: a100",
        ),
        ("like: mine", "like refers back to this file: mine"),
        ("like: [a100]", ": like must be text"),
        ("like: nothing", "unknown device 'nothing'"),
        ("calibration:\n  gemm: {any: {fp16/fp16: {latency: 3}}}", "lacks the key 'split'"),
    ],
)
def test_an_invalid_calibration_is_refused(tmp_path: Path, section: str, message: str) -> None:
    text = Path(parts.__file__).parents[2].joinpath("hardware/h100-sxm.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(f"{text.partition(chr(10) + 'like:')[0]}\n{section}\n")
    with pytest.raises(DeviceError) as caught:
        Device.load(path)
    assert message in str(caught.value)
    assert str(caught.value).count("mine.yaml") == 1


def test_a_table_with_too_few_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        WorkloadError, match="nothing to fit; gemm any fp16/fp16: not fitted: it has 20 rows; it needs 27"
    ):
        calibrate([str(synthetic_gemms(tmp_path, rows=20))], H100, "synthetic")


def test_a_device_with_like_uses_the_parameters_of_the_other_device_with_wider_intervals() -> None:
    h200 = Device.load("h200")
    assert not h200.calibrated
    assert H100.calibrated
    assert h200.calibration is not None
    assert H100.calibration is not None
    transferred_sets, source_sets = h200.calibration.gemm["any"]["fp16/fp16"], H100.calibration.gemm["any"]["fp16/fp16"]
    assert transferred_sets.timing == source_sets.timing
    assert transferred_sets.fit.low < source_sets.fit.low
    assert transferred_sets.fit.high > source_sets.fit.high


def test_sets_transferred_twice_within_a_design_have_the_interval_of_sets_transferred_once() -> None:
    """h100-nvl takes its sets from h100-pcie, which takes them from h100-sxm: one chip design."""
    once, twice = Device.load("h100-pcie").calibration, Device.load("h100-nvl").calibration
    assert once is not None
    assert twice is not None
    assert twice.gemm["any"]["fp16/fp16"].fit == once.gemm["any"]["fp16/fp16"].fit


def test_sets_of_links_between_machines_keep_their_intervals_on_other_devices() -> None:
    """They were fitted to other GPUs; the interval is that of a machine that was left out of the fit."""
    l40s, a100 = Device.load("l40s").calibration, Device.load("a100").calibration
    assert l40s is not None
    assert a100 is not None
    for form in ("pcie", "sockets", "network"):
        assert l40s.collectives["NCCL"][form].fit == a100.collectives["NCCL"][form].fit
    assert l40s.collectives["NCCL"]["any"].fit.high > a100.collectives["NCCL"]["any"].fit.high


def test_intervals_of_transferred_parameters_grow_with_the_difference_of_the_designs() -> None:
    """From the H100 to: the same design (H200), other tensor instructions (B200), another memory too (L40S)."""
    source_sets = H100.calibration
    assert source_sets is not None
    fits = [transferred(Device.load(name), H100).gemm["any"]["fp16/fp16"].fit for name in ("h200", "b200", "l40s")]
    for nearer, farther in pairwise([source_sets.gemm["any"]["fp16/fp16"].fit, *fits]):
        assert farther.low < nearer.low
        assert farther.high > nearer.high


def test_a_transferred_gemm_set_is_scaled_to_the_fraction_of_peak_that_the_device_achieves() -> None:
    """One benchmark of 16-bit GEMMs on both devices gives the fractions, in TFLOP/s."""
    l40s, a100 = transferred(Device.load("l40s"), Device.load("a100")), Device.load("a100").calibration
    assert a100
    fp16 = (264.02 / 362.05) / (258.74 / 312)
    bf16 = (269.15 / 362.05) / (264.53 / 312)
    scaled, source = l40s.gemm["any"]["fp16/fp16"].timing, a100.gemm["any"]["fp16/fp16"].timing
    assert scaled.pipe == pytest.approx(source.pipe * (fp16 + bf16) / 2)
    assert scaled == source._replace(pipe=scaled.pipe)
    decode, source = (each.decode_attention["flash_attention"]["fp16/fp16"].timing for each in (l40s, a100))
    assert decode == source._replace(pipe=decode.pipe)


def test_kinds_that_are_not_fitted_keep_the_sets_of_the_source_device(
    synthetic_fit: SyntheticFit, tmp_path: Path
) -> None:
    calibration = synthetic_fit.found.calibration
    text = Path(parts.__file__).parents[2].joinpath("hardware/h200.yaml").read_text()
    path = tmp_path / "h200.yaml"
    path.write_text(device_file(text, calibration))
    reread = Device.load(path).calibration
    assert reread is not None
    assert reread.device == "h200"
    assert reread.gemm == calibration.gemm
    assert "gemm" not in reread.transferred["h100-sxm"]
    assert "prefill_attention" in reread.transferred["h100-sxm"]


@pytest.mark.usefixtures("quick_fit")
def test_sets_that_the_tables_do_not_measure_keep_their_parameters(tmp_path: Path) -> None:
    before, found = A100.calibration, calibrate([str(synthetic_gemms(tmp_path))], A100, "synthetic").calibration
    assert before is not None
    assert found.gemm["any"]["fp16/fp16"] != before.gemm["any"]["fp16/fp16"]
    for name, forms in before.gemm.items():
        for form, one in forms.items():
            assert (name, form) == ("any", "fp16/fp16") or found.gemm[name][form] == one
    assert found.prefill_attention == before.prefill_attention


def test_two_devices_that_refer_to_each_other_are_refused(tmp_path: Path) -> None:
    text = Path(parts.__file__).parents[2].joinpath("examples/toy-gpu.yaml").read_text()
    first, second = tmp_path / "one.yaml", tmp_path / "other.yaml"
    first.write_text(f"{text}\nlike: {second}\n")
    second.write_text(f"{text}\nlike: {first}\n")
    with pytest.raises(DeviceError, match=rf"^{first}:\d+: like refers back to this file: {second}$"):
        Device.load(first)


@pytest.mark.usefixtures("quick_fit")
def test_the_table_lists_the_fitted_sets_and_counts_those_of_the_devices_file(tmp_path: Path) -> None:
    assert H100.calibration
    sets = sum(len(by_key) for by_key in H100.calibration.gemm.values())
    report = roofmodel.calibrate(synthetic_gemms(tmp_path), "h100")
    file = report.save(tmp_path / "mine.yaml")
    for found in (report, roofmodel.calibrate(synthetic_gemms(tmp_path), file)):  # the file then has the fitted set
        text = printed(found)
        assert re.findall(r"^(?:kind|gemm) +(\S+) +(\S+)", text, flags=re.MULTILINE)[1:] == [("any", "fp16/fp16")]
        assert f"\nfrom the device's file: {sets - 1} other sets of these kinds\n" in text


def test_a_file_that_cannot_be_extended_is_refused_before_the_fit(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{name: mine, pipes: {tensor_fp16: {peak: 1 TFLOP/s}}, memory: {dram: {bandwidth: 1 GB/s}}}\n")
    begun: list[str] = []
    with pytest.raises(DeviceError, match="in braces"):
        roofmodel.calibrate(synthetic_gemms(tmp_path), file, progress=lambda what, *_: begun.append(what))
    assert begun == []
