"""The GPU kit on the CPU: its torch parts at small size, its ncu parts against a program that answers as ncu does."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the kit needs torch: pip install 'roofmodel[dev]'")
pytest.importorskip("transformers", reason="the kit's models need transformers: pip install 'roofmodel[dev]'")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.collect import ceilings, environment, ncu, one_step, report, scrub, whole_models
from benchmarks.collect.__main__ import main
from benchmarks.collect.models import build, step
from benchmarks.collect.parts import GRACE, SKIPPED, Outcome, Part, parts, run
from benchmarks.collect.workloads import NAMES, config_of, kind, works
from roofmodel.api import estimate
from roofmodel.devices.device import Device
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Evidence
from roofmodel.study import stopwatch
from roofmodel.study.clocks import Reading
from roofmodel.study.measured import kernels
from tests.profiles.samples import measured

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_last_cache", lambda: 2**16)
    monkeypatch.setattr(stopwatch, "REPEATS", 3)
    monkeypatch.setattr(whole_models, "REPEATS", 3)
    monkeypatch.setattr(ceilings, "LAUNCHES", 5)
    monkeypatch.setattr(ceilings, "AGAIN", 4)


# --- From the shell -------------------------------------------------------------------------------------


def test_one_command_leaves_a_folder_and_a_file_to_send(tmp_path: Path) -> None:
    script = [str(ROOT / "benchmarks" / "collect_gpu.sh"), "--small", "-o", "found", "--only"]
    surroundings = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "PATH": f"/usr/bin:/bin:{tmp_path}"}
    done = subprocess.run(
        [*script, "environment,operators-warm,ncu-prefill"],
        cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2/3 ncu-prefill" in done.stdout
    assert "the file to send" in done.stdout
    document = json.loads((tmp_path / "found" / "manifest.json").read_text())
    outcomes = {part["name"]: (part["status"], part["message"][:18]) for part in document["parts"]}
    assert outcomes == {
        "environment": ("done", ""), "ncu-prefill": ("skipped", "there is no ncu on"), "operators-warm": ("done", ""),
    }  # fmt: skip
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert {"found/manifest.json", "found/environment.json", "found/operators-warm.csv"} <= set(archive.getnames())
    for path in (tmp_path / "found").rglob("*.*"):
        assert str(tmp_path) not in path.read_text(errors="replace"), f"{path} tells where it was made"
    again = subprocess.run(
        [*script, "environment"], cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_every_part_that_there_is_can_be_asked_for(tmp_path: Path) -> None:
    every = [part.name for part in parts(tmp_path, small=False)]
    assert len(set(every)) == len(every)
    assert sum(part.limit for part in parts(tmp_path, small=False)) < 15 * 60  # what does not fit is cut off
    with pytest.raises(SystemExit, match=r"no part 'cielings'.*ceilings"):
        main(["--only", "cielings", "-o", str(tmp_path / "x")])


# --- Parts that go wrong --------------------------------------------------------------------------------


def part(code: str, limit: float = 60) -> Part:
    return Part("a part", (sys.executable, "-c", code), limit)


def test_a_part_that_fails_says_why_and_one_that_does_not_apply_is_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    failed = run(part("print('measuring'); raise RuntimeError('CUDA error: 719')"), log, 60)
    assert (failed.status, failed.message) == ("failed", "RuntimeError: CUDA error: 719")
    assert "measuring" in log.read_text()
    skipped = run(part(f"print('no such unit'); raise SystemExit({SKIPPED})"), log, 60)
    assert (skipped.status, skipped.message) == ("skipped", "no such unit")
    assert run(part("import os; os.kill(os.getpid(), 9)"), log, 60).message == "exit status -9, and not a word"


def test_a_part_that_takes_too_long_is_told_to_end_with_what_it_started(tmp_path: Path) -> None:
    code = "import subprocess, time; subprocess.run(['sh', '-c', 'sleep 0.1; echo late; sleep 60; echo never'])"
    begin = time.monotonic()
    outcome = run(part(code), tmp_path / "log.txt", 2)
    assert outcome.status == "cut off"
    assert time.monotonic() - begin < GRACE
    assert "never" not in (tmp_path / "log.txt").read_text()


def test_what_an_interruption_finds_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: Part, log: Path, seconds: float) -> Outcome:
        if one.name != "environment":
            raise KeyboardInterrupt
        log.write_text("told\n")
        return Outcome("done", 1.0)

    monkeypatch.setattr("benchmarks.collect.__main__.run", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small"]) == 130
    statuses = [each["status"] for each in json.loads((tmp_path / "found" / "manifest.json").read_text())["parts"]]
    assert statuses[:2] == ["done", "not begun"]
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert "found/logs/environment.txt" in archive.getnames()


def test_no_part_is_begun_that_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small", "--minutes", "0.1", "--only", "ceilings"]) == 1
    (only,) = json.loads((tmp_path / "found" / "manifest.json").read_text())["parts"]
    assert (only["status"], only["message"]) == ("cut off", "no time left")


def test_names_of_the_machine_are_taken_out_of_packed_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "node0317")
    text = f'{{"traceName": "{tmp_path}/x.json", "host": "node0317", "by": "{ROOT}/benchmarks"}}'
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c.ncu-rep").write_bytes(b"node0317")  # no text: it cannot be changed without breaking it
    scrub.scrub(tmp_path)
    told = '{"traceName": "FOLDER/x.json", "host": "HOST", "by": "ROOFMODEL/benchmarks"}'
    assert (tmp_path / "a.json").read_text() == told
    assert gzip.decompress((tmp_path / "b.json.gz").read_bytes()).decode() == told


# --- The machine, its ceilings --------------------------------------------------------------------------


def test_the_environment_tells_device_and_versions(tmp_path: Path) -> None:
    found = environment.read(tmp_path)
    assert found["packages"]["torch"] == torch.__version__
    assert found["device"]["types"] == ["fp32", "bf16"]
    assert found["hardware"] is None
    assert environment.read(tmp_path) == found


def test_ceilings_are_measured_and_become_lines_of_a_device_file(tmp_path: Path) -> None:
    ceilings.main(tmp_path, small=True)
    found = json.loads((tmp_path / "ceilings.json").read_text())["ceilings"]
    assert {each["ceiling"] for each in found} >= {"dram", "l2", "launch", "fp32", "bf16"}
    assert all(each["value"] > 0 for each in found)
    (tmp_path / "cpu.yaml").write_text(
        "name: A processor\npipes:\n  fp32: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 TB/s}\n"
        + (tmp_path / "measured.yaml").read_text()
        + "sources:\n  collected: by the kit\n"
    )
    device = Device.load(tmp_path / "cpu.yaml")
    triad = next(each for each in found if each["by"] == "triad")
    stated = next(each.value for each in device.measured if each.by == "triad")
    assert stated == pytest.approx(triad["value"], rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "capability", "pipe"),
    [
        ("fp16", "7.0", "tensor_fp16"), ("fp64", "7.0", "fp64"), ("fp64", "8.0", "tensor_fp64"),
        ("fp64", "8.9", "fp64"), ("fp32", "9.0", "fp32"), ("bf16", None, "bf16"),
    ],
)  # fmt: skip
def test_a_product_is_measured_on_the_pipe_that_the_device_has(dtype: str, capability: str | None, pipe: str) -> None:
    assert report.pipe(dtype, capability) == pipe


def test_bytes_and_flops_of_ceilings_are_those_that_must_be_moved(tmp_path: Path) -> None:
    """By a machine on which everything takes a second: what is left are the counts."""

    class Slow(stopwatch.Cpu):
        def time(self, run: Any, cold: bool = True) -> stopwatch.Timing:
            run()
            return stopwatch.Timing(1.0, 1.0, 1)

    kit = ceilings.Kit(Slow(), tmp_path, [], data=4096, cached=1024, rows=(32,))
    ceilings.streams(kit)
    ceilings.cache(kit)
    ceilings.products(kit)
    found = {(each["ceiling"], each["by"]): each["value"] for each in kit.found}
    assert [found["dram", by] for by in ("copy", "read", "write", "triad")] == [8192, 4096, 4096, 12288]
    assert found["l2", "read"] == 4 * 1024
    assert found["fp32", "matmul"] == 2 * 32**3


# --- Whole models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_packaged_config_makes_the_model_that_roof_counts(name: str, tmp_path: Path) -> None:
    config = config_of(name, small=True, memory=None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    built = build(config, "cpu", "fp32")
    counted = estimate(str(tmp_path / "config.json"), "a100").to_dict()["model"]["parameters"]
    assert sum(each.numel() for each in built.model.parameters()) == counted
    assert all(each.p == 0 for each in built.model.modules() if isinstance(each, torch.nn.Dropout))


def test_a_smaller_device_gets_a_smaller_llama() -> None:
    large, small = (config_of("llama", False, memory) for memory in (80 * 2**30, 16 * 2**30))
    assert (large["num_hidden_layers"], small["num_hidden_layers"]) == (32, 16)


class Asks(TorchDispatchMode):
    """Counts what waits for the device: a number taken off a tensor. Within a graph that is not allowed."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(function) or "nonzero" in str(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_asks_the_device_for_nothing_so_that_a_graph_can_hold_it(name: str) -> None:
    """Training's optimizer is the GPU's own there (`capturable`), so only the passes before it are looked at."""
    config = config_of(name, small=True, memory=None)
    built = build(config, "cpu", "fp32")
    for work in works(config, small=True):
        if work.phase != "train":
            ready = step(built, work)
            ready()
            with Asks() as seen:
                ready()
            assert seen.count == 0, work


def test_a_decode_takes_a_token_a_sequence_after_its_context() -> None:
    config = config_of("gpt2-xl", small=True, memory=None)
    decode = next(work for work in works(config, small=True) if work.phase == "decode")
    built = build(config, "cpu", "fp32")
    output: Any = step(built, decode)()
    assert output.logits.shape == (decode.batch, 1, 512)
    assert output.past_key_values.get_seq_length() == decode.context + 1


@pytest.mark.parametrize("name", ["gpt2-xl", "resnet-50"])
def test_whole_models_are_timed_traced_and_predicted(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_models.main(tmp_path, name, small=True)
    with (tmp_path / f"model-{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    config = config_of(name, small=True, memory=None)
    assert [row["phase"] for row in rows] == [work.phase for work in works(config, small=True)]
    for row in rows:
        assert row["status"] == "done", row
        assert float(row["seconds"]) > 0
        per = float(row["images_per_second" if kind(config) == "vision" else "tokens_per_second"])
        new = int(row["batch"]) * (1 if row["image"] or row["phase"] == "decode" else int(row["seq"]))
        assert per * float(row["seconds"]) == pytest.approx(new)
        predicted = report.predicted(row, tmp_path, Device.load("a100"))
        assert float(predicted.bound_seconds) < float(row["seconds"])  # an A100 against this processor
    traces = sorted(tmp_path.glob("trace-*.json.gz"))
    assert len(traces) == len({row["phase"] for row in rows})
    for trace in traces:
        names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
        assert "step" in names
        assert names & {"transformer.h.0.attn", "resnet.encoder.stages.0"}
        assert reading.read([str(trace)]).tool == "torch"


class Pretended(stopwatch.Gpu):
    """A processor that runs what only a GPU is asked for: graphs, memory in use."""

    device, dtypes = "cpu", ("fp32", "bf16")

    def __init__(self) -> None:
        self.evidence, self.framework = Evidence(name="A pretended GPU", dram_bytes=80 * 2**30), "torch"

    def elapsed(self, run: Any) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def capture(self, run: Any, launches: int) -> Any:
        return SimpleNamespace(replay=lambda: [run() for _ in range(launches)], reset=lambda: None)

    def read_clocks(self) -> Reading:
        return Reading(1410, 1593, 300, 60)

    def _flush(self) -> None:
        pass

    def recover(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ceilings, whole_models, one_step):
        monkeypatch.setattr(module, "machine", Pretended)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**20)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.filterwarnings("ignore:CUDA is not available, disabling CUDA profiling")
@pytest.mark.usefixtures("pretended")
def test_on_a_gpu_each_step_is_also_a_graph_and_memory_and_clocks_are_told(tmp_path: Path) -> None:
    whole_models.main(tmp_path, "llama", small=True)
    with (tmp_path / "model-llama.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["phase"], row["runtime"]) for row in rows] == [
        (phase, runtime) for phase in ("prefill", "decode", "train") for runtime in ("eager", "graph")
    ]
    assert {(row["status"], row["peak_bytes"], row["sm_mhz"]) for row in rows} == {("done", str(2**20), "1410")}


@pytest.mark.usefixtures("pretended")
def test_on_a_gpu_all_four_times_of_a_launch_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "SUSTAINED", 0.05)
    ceilings.main(tmp_path, small=True)
    found = json.loads((tmp_path / "ceilings.json").read_text())["ceilings"]
    launches = [each["by"] for each in found if each["ceiling"] == "launch"]
    assert launches == ["eager", "within a graph", "of a graph", "and waiting for it"]
    assert all(each["sm_mhz"] == 1410 for each in found)
    assert found[-1]["by"] == "matmul, sustained"


def test_what_a_model_cannot_do_is_a_row_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(built: Any, work: Any) -> Any:
        if work.phase == "train":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nGPU 0 has ...")
        return step(built, work)

    monkeypatch.setattr(whole_models, "step", full)
    whole_models.main(tmp_path, "bert-large", small=True)
    with (tmp_path / "model-bert-large.csv").open(newline="") as file:
        statuses = {row["phase"]: row["status"] for row in csv.DictReader(file)}
    assert statuses == {"forward": "done", "train": "CUDA out of memory. Tried to allocate 20 GiB"}


# --- Nsight Compute -------------------------------------------------------------------------------------

FAKE = """\
#!{python}
import os, sys
from pathlib import Path
words = sys.argv[1:]
mode = os.environ.get("FAKE_NCU", "new")
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.1.0.0 (build 35237751)")
    sys.exit()
with open({calls!r}, "a") as calls:
    calls.write("\\0".join(words) + "\\n")
if "--import" in words:
    pages = Path({pages!r})
    kind = "summary" if "--print-summary" in words else "raw" if "raw" in words else "details"
    text = pages / (kind + (".csv" if "--csv" in words else ".txt"))
    sys.stdout.write(text.read_text())
elif mode == "old" and "--set" in words:
    print("==ERROR== Cannot find any section matching set 'roofline'")
    sys.exit(1)
elif mode == "forbidden":
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
    sys.exit(1)
else:
    Path(words[words.index("-o") + 1] + ".ncu-rep").write_bytes(b"NVR\\0")
    print("==PROF== Connected to process 11\\n==PROF== Disconnected from process 11")
"""
RAW = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__bytes.sum","gpu__time_duration.sum","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"\n'
    '"","","","","","","","","","","","byte","nsecond","inst"\n'
    '"0","11","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(64, 2, 1)","0","8.0","12000000","10000","1000000"\n'
)
SUMMARY = (
    '"Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    '"11","python3","127.0.0.1","gemm","1","7","(256, 1, 1)","(64, 2, 1)","0","8.0","1",'
    '"Command line profiler metrics","gpu__time_duration.sum","nsecond","10000","10000","10000"\n'
)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ncu whose every line of words is kept in a file, which is what is returned."""
    pages, calls = tmp_path / "pages", tmp_path / "calls"
    pages.mkdir()
    (pages / "raw.csv").write_text(RAW)
    (pages / "summary.csv").write_text(SUMMARY)
    (pages / "details.csv").write_text((ROOT / "examples" / "ncu_by_hand.csv").read_text())
    (pages / "details.txt").write_text("  gemm (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n")
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable, calls=str(calls), pages=str(pages)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    (tmp_path / "found").mkdir()
    return calls


def words_of(calls: Path) -> list[list[str]]:
    return [line.split("\0") for line in calls.read_text().splitlines()]


def test_ncu_collects_its_roofline_and_our_metrics_and_every_layout_is_read(fake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    assert ncu.main(folder, "gpt2-xl", "prefill", small=True) == 0
    line, *imports = words_of(fake)
    assert line[line.index("--set") + 1] == "roofline"
    assert line[line.index("--profile-from-start") + 1] == "off"
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in line[line.index("--metrics") + 1]
    assert "--nvtx" in line
    assert not {"--csv", "--log-file"} & set(line)
    assert line[line.index("benchmarks.collect.one_step") + 2 :] == ["prefill", "--small"]
    assert len(imports) == len(ncu.PAGES)
    for layout in ("raw.csv", "raw-base.csv", "details.csv", "summary.csv"):
        found = kernels([str(folder / f"ncu-gpt2-xl-prefill.{layout}")], "a100", [])
        assert found.kernels, layout
    config = json.loads((folder / "configs" / "gpt2-xl-2-layers.json").read_text())
    assert config["n_layer"] == 2
    assert (folder / "ncu-gpt2-xl-prefill.txt").read_text().startswith("$ ncu --metrics")


def test_an_ncu_without_that_set_collects_the_metrics(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "old")
    assert ncu.main(tmp_path / "found", "gpt2-xl", "decode", small=True) == 0
    first, second, *_ = words_of(fake)
    assert "--set" in first
    assert "--set" not in second
    assert (tmp_path / "found" / "ncu-gpt2-xl-decode.raw.csv").exists()


def test_counters_for_administrators_only_are_no_failure(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_NCU", "forbidden")
    assert ncu.main(tmp_path / "found", "gpt2-xl", "train", small=True) == SKIPPED
    assert "administrators" in capsys.readouterr().out.splitlines()[-1]


def test_ncu_is_asked_for_what_the_chip_has(tmp_path: Path) -> None:
    """Volta counts instructions of its tensor cores, and knows no bf16."""
    line = ncu.line(["python", "x.py"], "v100-sxm2-16gb", tmp_path / "r.ncu-rep", roofline=True)
    metrics = line[line.index("--metrics") + 1]
    assert "sm__inst_executed_pipe_tensor.sum" in metrics
    assert "bf16" not in metrics
    assert line[-4:] == ["-o", str(tmp_path / "r"), "python", "x.py"]


def test_recorded_layouts_are_read_as_the_kit_names_them(tmp_path: Path) -> None:
    """ncu's own export of an A100, under the name that the kit would have given it."""
    recorded = measured("ncu/a100_40_resnet18_raw_wide.csv")
    (tmp_path / "ncu-resnet-18-prefill.raw.csv").write_bytes(Path(recorded).read_bytes())
    found = kernels([str(tmp_path / "ncu-resnet-18-prefill.raw.csv")], "a100-sxm-40gb", [])
    assert len(found.kernels) == 235


def test_the_program_that_is_profiled_runs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama", small=True, memory=None, layers=1)))
    one_step.main(tmp_path / "config.json", "decode", small=True)


# --- The report -----------------------------------------------------------------------------------------


def test_the_report_tells_parts_ceilings_models_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "environment.json").write_text(
        '{"device": {"name": "NVIDIA A100-SXM4-80GB"}, "hardware": "a100-sxm-80gb"}'
    )
    (tmp_path / "manifest.json").write_text(
        '{"parts": [{"name": "ceilings", "status": "done", "seconds": 31.2},'
        ' {"name": "ncu-train", "status": "not begun"}]}'
    )
    (tmp_path / "ceilings.json").write_text(
        '{"ceilings": [{"ceiling": "dram", "by": "copy", "value": 1.8e12, "unit": "B/s", "sm_mhz": 1410},'
        ' {"ceiling": "fp64", "by": "matmul", "value": 1.9e13, "unit": "FLOP/s"},'
        ' {"ceiling": "launch", "by": "eager", "value": 5e-6, "unit": "s"}]}'
    )
    (tmp_path / "configs" / "gpt2-xl.json").write_text(json.dumps(config_of("gpt2-xl", False, None)))
    columns = ",".join(whole_models.COLUMNS)
    (tmp_path / "model-gpt2-xl.csv").write_text(
        f"{columns}\n"
        "A100,gpt2-xl,configs/gpt2-xl.json,prefill,eager,1,1024,,,bf16,0.02,0.02,7,51200,,,,,done,torch\n"
        "A100,gpt2-xl,configs/gpt2-xl.json,train,graph,1,1024,,,bf16,,,,,,,,,CUDA out of memory,torch\n"
    )
    (tmp_path / "operators-cold.csv").write_text("op\n")
    (tmp_path / "operators-warm.csv").write_text("op\n")
    (tmp_path / "trace-gpt2-xl-prefill.json.gz").touch()
    (tmp_path / "ncu-gpt2-xl-train.raw-base.csv").touch()
    report.main(tmp_path)
    said = capsys.readouterr().out
    assert "ceilings             done in 31 s" in said
    assert "ncu-train            not begun" in said
    assert "88% of 2.04 TB/s" in said  # 1800 of 2039 GB/s
    assert "97% of 19.5 TFLOP/s" in said  # the tensor cores', on an A100
    prefill = next(line for line in said.splitlines() if "prefill" in line)
    assert "20 ms" in prefill
    assert "11.7 ms" in prefill  # the bound that the README shows
    assert "CUDA out of memory" in said
    assert f"roof calibrate {tmp_path}/operators-cold.csv --hw a100-sxm-80gb" in said
    assert "operators-warm.csv --hw a100-sxm-80gb -o" not in said
    step = "--hw a100-sxm-80gb --phase {} --batch 1 --seq 1024 --dtype bf16\n"
    trace, counters = tmp_path / "trace-gpt2-xl-prefill.json.gz", tmp_path / "ncu-gpt2-xl-train.raw-base.csv"
    assert f"roof compare {tmp_path}/configs/gpt2-xl.json {trace} {step.format('prefill')}" in said
    assert f"roof compare {tmp_path}/configs/gpt2-xl-2-layers.json {counters} {step.format('train')}" in said


def test_a_folder_that_was_cut_off_early_is_reported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.main(tmp_path)
    assert "a device that is not told" in capsys.readouterr().out
