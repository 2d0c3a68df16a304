"""`roof measure` on the CPU: a valid table for `roof validate` and `roof calibrate`, also after errors."""

from __future__ import annotations

import csv
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import OutputError
from roofmodel.measure import cases as cases_module
from roofmodel.measure import measure, stopwatch
from roofmodel.measure.cases import KERNELS, BenchmarkCase, Limits, sweep
from roofmodel.measure.measured_table import CsvWriter
from roofmodel.measure.stopwatch import MeasuredTime, Reading
from roofmodel.measure.torch_calls import prepare
from roofmodel.measure.validate import validate
from roofmodel.profiles.kernel import Evidence
from tests.command_line import Done, run

torch = pytest.importorskip("torch", reason="measuring needs torch: pip install 'roofmodel[torch]'")

CPU = """\
name: A processor
multiprocessors: 2
clocks: {boost: 3 GHz}
pipes:
  fp32: {peak: 2 TFLOP/s}
  bf16: {peak: 2 TFLOP/s}
memory:
  dram: {bandwidth: 200 GB/s}
  l2: {capacity: 32 MiB, bandwidth: 1 TB/s}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cpu.yaml").write_text(CPU)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopwatch, "_last_cache", lambda: 2**16)
    monkeypatch.setattr(stopwatch, "REPEATS", 3)
    monkeypatch.setattr(stopwatch.Cpu, "largest", (1e7, 2.0**20))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # of the process that tests run in
    return tmp_path


def roof(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Done:
    return run(line.split(), monkeypatch, capsys)


def rows(file: str) -> list[dict[str, str]]:
    with Path(file).open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def test_a_table_is_measured_validated_and_calibrated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy", reason="calibrating needs scipy: pip install 'roofmodel[calibrate]'")
    status, out, err = roof("measure -o table.csv --ops add,softmax --device cpu --budget 60", monkeypatch, capsys)
    assert status == 0, err
    assert "torch_softmax" in out
    assert "measured the CPU" in err
    assert "next: roof validate table.csv --hw DEVICE.yaml" in err
    table = rows("table.csv")
    assert {(row["op"], row["dtype"], row["l2"]) for row in table} == {
        (op, dtype, "cold") for op in ("add", "softmax") for dtype in ("fp32", "bf16")
    }
    assert all(0 < float(row["latency_min_us"]) <= float(row["latency_us"]) for row in table)
    assert all(row["gpu"] and row["framework"].startswith(f"torch {torch.__version__}") for row in table)
    found = validate("table.csv", Device.load("cpu.yaml"))
    assert found.skipped == {}
    assert set(found.by_op) == {"add", "softmax"}
    status, out, err = roof("calibrate table.csv --hw cpu.yaml -o fitted.yaml", monkeypatch, capsys)
    assert status == 0, err
    part = validate("table.csv", Device.load("fitted.yaml")).by_op["add"]
    assert part.expected
    assert part.expected.median_ape < part.bound.median_ape


def test_every_operation_runs_and_roof_validate_reads_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One case of each operation and type that a CPU supports."""
    monkeypatch.setattr(cases_module, "sweep", lambda *a: _one_of_each(a[1]))
    status, _, err = roof("measure -o all.csv --device cpu --l2 warm --dtype fp32,bf16,fp16", monkeypatch, capsys)
    assert status == 0, err
    assert {row["op"] for row in rows("all.csv")} == set(KERNELS)
    assert {row["kernel"] for row in rows("all.csv") if row["op"] == "attn_context"} == {"torch_flash", "torch_math"}
    assert validate("all.csv", Device.load("cpu.yaml")).skipped.keys() <= {
        "A processor has no pipe for 'fp16'; supported: bf16, fp32"
    }
    assert "attn_generation fp16 torch_cudnn" in err  # GPUs only


def _one_of_each(dtypes: tuple[str, ...]) -> list[BenchmarkCase]:
    kinds: dict[tuple[str, str, str], BenchmarkCase] = {}
    for case in sweep(KERNELS, dtypes, Limits(1e7, 2.0**20)):
        kinds.setdefault(case.kind, case)
    return list(kinds.values())


ON_A_PROCESSOR = [c for c in _one_of_each(("fp32",)) if c.kernel not in ("torch_efficient", "torch_cudnn")]


@pytest.mark.parametrize("case", ON_A_PROCESSOR, ids=str)
def test_the_measured_operation_equals_the_counted_one(case: BenchmarkCase) -> None:
    """Compares GEMMs with torch's FLOP counter, and all operations with the output's shape."""
    run = prepare(case, "cpu")
    result = run()
    written = sum(tensor.elements(case.operator.sizes) for tensor in case.operator.writes)
    assert isinstance(result, torch.Tensor)
    assert result.numel() == written
    if case.op == "gemm":
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == case.operator.matmul_flops


def test_causal_attention_is_causal() -> None:
    """Without the mask, twice the counted FLOPs would run. With it, the first query attends to one key only."""
    shape = dict(batch=1, heads=2, kv_heads=1, head_dim=16, seq=8, kv_len=8, window=0)
    output = prepare(BenchmarkCase("attn_context", "fp32", "torch_math", tuple(shape.items())), "cpu")()
    assert isinstance(output, torch.Tensor)
    assert output.shape == (1, 2, 8, 16)
    assert torch.allclose(output[:, 0, 0], output[:, 1, 0])  # both heads of a group read the same first value
    assert not torch.allclose(output[:, 0, 1], output[:, 1, 1])


def test_the_shapes_of_a_model_are_measured_and_other_operators_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "measure -o m.csv --model pythia-14m --batch 2 --seq 16 --phase prefill --l2 warm --dtype fp32 --ops gemm"
    status, _, err = roof(line, monkeypatch, capsys)
    assert status == 0, err
    # width 128: QKV and output; width 512: up and down; logits of the last tokens of two sequences
    found = {(row["m"], row["n"], row["k"]) for row in rows("m.csv")}
    assert found == {("32", "384", "128"), ("32", "128", "128"), ("32", "512", "128"), ("32", "128", "512"),
                     ("2", "50304", "128")}  # fmt: skip
    assert "attention.rotary" in err


# --- Interruptions and failures ------------------------------------------------------------------------------------


class Script:
    """A simulated machine."""

    device, framework, dtypes, largest = "cpu", "torch", ("fp32",), (1e7, 2.0**20)
    evidence = Evidence(name="A script")

    def __init__(self, *acts: object, dies: bool = False) -> None:
        self.acts, self.dies, self.closed, self.now = iter(acts), dies, False, 0.0

    def time(self, run: object, cold: bool = True) -> MeasuredTime:
        act = next(self.acts)
        if isinstance(act, BaseException):
            raise act
        assert isinstance(act, float)
        self.now += act
        return MeasuredTime(1e-5, 9e-6, 3)

    def read_clocks(self) -> Reading:
        return Reading(1410, 1593)

    def recover(self) -> None:
        if self.dies:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def close(self) -> None:
        self.closed = True


def scripted(monkeypatch: pytest.MonkeyPatch, *acts: object, dies: bool = False) -> Script:
    script = Script(*acts, dies=dies)
    monkeypatch.setattr(stopwatch, "machine", lambda _: script)
    return script


def test_a_run_stops_in_time_and_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases of 2, 3, 2, ... seconds and a budget of 10: the fourth may take 3 and end at 10; a fifth does not start."""
    script = scripted(monkeypatch, 2.0, 3.0, 2.0, 2.0, 2.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: script.now))
    status, _, err = roof("measure -o t.csv --ops gemm --budget 10", monkeypatch, capsys)
    assert (status, script.closed) == (0, True), err
    assert (script.now, len(rows("t.csv"))) == (9.0, 4)
    assert rows("t.csv")[0]["sm_mhz"] == "1410"


def test_an_interrupted_run_keeps_its_rows_and_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, 0.0, 0.0, KeyboardInterrupt())
    status, _, err = roof("measure -o t.csv --ops gemm", monkeypatch, capsys)
    assert status == 130
    assert "t.csv: 2 rows" in err
    assert "--resume" in err
    before = rows("t.csv")
    scripted(monkeypatch, 0.0, KeyboardInterrupt())
    roof("measure -o t.csv --ops gemm --resume", monkeypatch, capsys)
    after = rows("t.csv")
    assert after[:2] == before
    assert len({(row["m"], row["n"], row["k"]) for row in after}) == 3
    assert sorted(path.name for path in Path().iterdir()) == ["cpu.yaml", "t.csv"]


def table_of(machine: Script, count: int, file: str) -> list[dict[str, str]]:
    """A table with this number of rows, as this machine writes them."""
    table = CsvWriter(file, machine)
    try:
        for case in sweep(["gemm"], ("fp32",), Limits(1e9, 2.0**28))[:count]:
            done = measure.Done(case, MeasuredTime(1e-5, 9e-6, 3), Reading())
            table.add(measure.row(done, measure.MeasurementPlan(machine, [], "cold", 1, "a test")))
    finally:
        table.close()
    return rows(file)


def test_a_full_disk_loses_no_measured_row() -> None:
    script = Script()
    before = table_of(script, 100, "t.csv")
    Path("t.csv").rename("t.csv.part")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # limits the size of files
    try:
        with pytest.raises(OutputError, match="cannot be written"):
            CsvWriter("t.csv", script, resume=True)
        with pytest.raises(OutputError, match=r"cannot be written .*resume continues from 'u.csv.part'"):
            table_of(script, 100, "u.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert rows("t.csv.part") == before
    resumed = CsvWriter("u.csv", script, resume=True)
    assert 10 < len(resumed.identities) < 100  # complete rows within 4096 bytes
    resumed.close()
    assert rows("u.csv") == before[: len(resumed.identities)]


def test_a_linked_table_is_written_to_the_link_target() -> None:
    Path("there").mkdir()
    Path("t.csv").symlink_to("there/real.csv")
    table_of(Script(), 2, "t.csv")
    assert Path("t.csv").is_symlink()
    assert len(rows("there/real.csv")) == 2


def test_measured_rows_are_replaced_only_with_force() -> None:
    before = table_of(Script(), 3, "t.csv")
    with pytest.raises(OutputError, match=r"t.csv: the file exists; resume .*, force .*, or give another name"):
        CsvWriter("t.csv", Script())
    assert rows("t.csv") == before
    CsvWriter("t.csv", Script(), force=True).close()
    assert rows("t.csv") == before  # nothing was measured
    again = CsvWriter("t.csv", Script(), resume=True)
    again.close()
    assert len(again.identities) == 3


@pytest.mark.parametrize("what", ["gpu", "framework"])
def test_rows_of_another_machine_are_not_continued(what: str) -> None:
    table_of(Script(), 3, "t.csv")
    before, other = Path("t.csv").read_bytes(), Script()
    other.evidence = Evidence(name="Another" if what == "gpu" else "A script")
    other.framework = "torch" if what == "gpu" else "torch 2"
    with pytest.raises(OutputError, match=r"t.csv: measured on A script with torch, not on A.* with torch"):
        CsvWriter("t.csv", other, resume=True)
    assert Path("t.csv").read_bytes() == before
    assert not Path("t.csv.part").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00op", b'op,"dtype\nx', b"", b"op\n"])
def test_a_file_that_is_not_a_table_is_not_continued(content: bytes) -> None:
    Path("t.csv").write_bytes(content)
    with pytest.raises(OutputError, match=r"t.csv: .*resume cannot continue"):
        CsvWriter("t.csv", Script(), resume=True)
    assert Path("t.csv").read_bytes() == content


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
            "CUDA out of memory. Tried to allocate 2 GiB\n",
        ),
        # an argument that this torch version lacks
        (TypeError("_other() got an unexpected keyword argument"), "_other() got an unexpected"),
    ],
)
def test_a_failure_is_reported_and_the_rest_continues(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, error, 0.0, KeyboardInterrupt())
    _, _, err = roof("measure -o t.csv --ops gemm", monkeypatch, capsys)
    assert f"failed in all or some cases: gemm fp32 torch_linear: {message}" in err
    assert len(rows("t.csv")) == 1


def test_fp8_gemms_support_the_signature_of_torch_2_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """In torch 2.4, the scales come after other arguments and the result is two tensors."""
    new = torch._scaled_mm

    def old(
        a: object, b: object, *, out_dtype: object = None, scale_a: object = None, scale_b: object = None
    ) -> object:
        return new(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype), torch.ones(())

    monkeypatch.setattr(torch, "_scaled_mm", old)
    result, _ = prepare(BenchmarkCase("gemm", "fp8", "torch_scaled_mm", (("m", 16), ("n", 32), ("k", 16))), "cpu")()  # type: ignore[misc]
    assert result.shape == (16, 32)


def test_a_failed_device_ends_the_run_and_keeps_the_measured_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, 0.0, RuntimeError("CUDA error: an illegal memory access"), dies=True)
    status, _, err = roof("measure -o t.csv --ops gemm", monkeypatch, capsys)
    assert status == 2
    assert "the device has stopped working" in err
    assert len(rows("t.csv")) == 1


def test_an_operation_that_always_fails_is_no_longer_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = sweep(["attn_generation"], ("fp32",), Limits(1e7, 2.0**22))
    machine = stopwatch.machine("cpu")
    found = [*measure.measure(measure.MeasurementPlan(machine, cases, "warm", 60, "a test"))]
    started = [each.case for each in found if isinstance(each, measure.Failed)]
    assert {case.kernel for case in started} == {"torch_efficient", "torch_cudnn"}
    assert len(started) == 2 * measure.MAX_FAILURES < sum(case.kernel == "torch_cudnn" for case in cases)


def test_without_measurements_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, KeyboardInterrupt())
    status, _, err = roof("measure -o t.csv --ops gemm", monkeypatch, capsys)
    assert status == 2
    assert re.search(r"t\.csv is not written: none of \d+ cases was measured", err)
    assert not [*Path().glob("t.csv*")]


def test_a_killed_run_keeps_its_rows_for_the_next_run(folder: Path) -> None:
    """SIGKILL, as from a batch system."""
    command = [sys.executable, "-m", "roofmodel", "measure", "-o", "k.csv", "--device", "cpu", "--l2", "warm"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment) as run:
        part = folder / "k.csv.part"
        end = time.monotonic() + 60
        while not (part.exists() and part.read_text().count("\n") > 2):
            assert time.monotonic() < end
            time.sleep(0.05)
        run.kill()
    with part.open("a") as interrupted:
        interrupted.write("AMD,gemm,fp")
    resumed = [*command, "--resume", "--budget", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert refused.returncode == 2
    assert "'k.csv.part'; --resume" in refused.stderr
    assert subprocess.run(resumed, capture_output=True, env=environment, check=False).returncode == 0
    assert validate("k.csv", Device.load("cpu.yaml")).all_rows
    assert not part.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    {
        "--ops conv": "--ops: unknown 'conv'",
        "--dtype int3": "--dtype: unknown 'int3'",
        "--ops softmax --dtype fp8": "softmax is measured in fp32, fp16, bf16 only",
        "--l2 hot": "--l2: unknown value 'hot'",
        "--budget 0": "--budget is 0.0; give a number of seconds greater than 0",
        "--model no-such": "no-such",
        "--model gpt2 --batch 0": "batch",
        "--device tpu": "--device: unknown value 'tpu'; known: cuda, cpu",
    }.items(),
)
def test_invalid_requests_are_refused(
    options: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = roof(f"measure -o t.csv {options}", monkeypatch, capsys)
    assert (status, words in err) == (2, True), err
    assert not [*Path().glob("t.csv*")]


def test_a_workload_without_a_model_is_ignored_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = roof("measure -o t.csv --ops add --dtype fp32 --budget 1 --batch 4 --seq 9", monkeypatch, capsys)
    assert status == 0, err
    assert "note: --batch is ignored: it needs --model" in err
    assert "note: --seq is ignored" in err


def test_a_table_with_other_columns_is_not_continued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text("op,dtype,latency_us\ngemm,fp16,3\n")
    status, _, err = roof("measure -o t.csv --ops gemm --resume", monkeypatch, capsys)
    assert status == 2
    assert "t.csv: not a table of roof measure" in err
    assert Path("t.csv").read_text().startswith("op,dtype,latency_us\ngemm")


def test_without_torch_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    status, _, err = roof("measure -o t.csv", monkeypatch, capsys)
    assert (status, err) == (2, "error: measuring needs torch; pip install torch brings it\n")


# --- Rows of a warm L2 ----------------------------------------------------------------------------------


def test_rows_with_warm_l2_have_its_bound_and_no_expected_time(tmp_path: Path) -> None:
    """1 MiB in and out fit in the A100's L2 of 40 MiB (5120 bytes per clock at 1.41 GHz); 64 MiB come from DRAM."""
    header = "op,dtype,m,n,latency_us,l2\n"
    (tmp_path / "warm.csv").write_text(
        f"{header}gelu,fp16,512,512,3,warm\ngelu,fp16,4096,4096,60,warm\ngelu,fp16,512,512,5,cold\n"
    )
    found = validate(str(tmp_path / "warm.csv"), Device.load("a100-sxm-80gb"))
    small, large = 2 * 512 * 512 * 2, 2 * 4096 * 4096 * 2
    assert found.bound.tolist() == pytest.approx([small / (5120 * 1.41e9), large / 2039e9, small / 2039e9], rel=1e-3)
    assert [expected > 0 for expected in found.expected.tolist()] == [False, True, True]
    toy = validate(
        str(tmp_path / "warm.csv"), Device.load(str(Path(__file__).parents[2] / "examples" / "toy-gpu.yaml"))
    )
    assert toy.skipped == {}  # without an L2, everything comes from DRAM
