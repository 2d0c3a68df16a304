"""The GPU benchmark kit, run on the CPU: torch parts at small size, ncu parts with a test double of ncu."""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the kit needs torch: pip install 'roofmodel[dev]'")
pytest.importorskip("transformers", reason="the kit's models need transformers: pip install 'roofmodel[dev]'")

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.collect import __main__ as kit_main
from benchmarks.collect import ceilings, environment, models, ncu, one_step, report, scrub, whole_models
from benchmarks.collect.__main__ import main
from benchmarks.collect.models import build, step
from benchmarks.collect.parts import SKIPPED, KitPart, Outcome, parts, run
from benchmarks.collect.workloads import NAMES, Work, config_of, kind, works
from roofmodel import estimate
from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.measure import stopwatch
from roofmodel.measure.stopwatch import Reading
from roofmodel.plot.measured import kernels
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Evidence
from tests.profiles.samples import measured

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_last_cache", lambda: 2**16)
    monkeypatch.setattr(stopwatch, "REPEATS", 3)
    monkeypatch.setattr(whole_models, "REPEATS", 3)
    monkeypatch.setattr(ceilings, "LAUNCHES", 5)
    monkeypatch.setattr(ceilings, "L2_READS", 4)


# --- From the shell -------------------------------------------------------------------------------------


def test_one_command_writes_a_folder_and_an_archive(tmp_path: Path) -> None:
    script = [str(ROOT / "benchmarks" / "collect_gpu.sh"), "--small", "-o", "found", "--only"]
    environment_variables = {
        **os.environ,
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "PATH": f"/usr/bin:/bin:{tmp_path}",
    }
    done = subprocess.run(
        [*script, "environment,operators-warm,ncu-prefill"],
        cwd=tmp_path, env=environment_variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2/3 ncu-prefill" in done.stdout
    assert "the file to send" in done.stdout
    document = json.loads((tmp_path / "found" / "manifest.json").read_text())
    outcomes = {part["name"]: (part["status"], part["message"][:18]) for part in document["parts"]}
    assert outcomes == {
        "environment": ("done", ""), "ncu-prefill": ("skipped", "ncu is not on the "), "operators-warm": ("done", ""),
    }  # fmt: skip
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert {"found/manifest.json", "found/environment.json", "found/operators-warm.csv"} <= set(archive.getnames())
    for path in (tmp_path / "found").rglob("*.*"):
        assert str(tmp_path) not in path.read_text(errors="replace"), f"{path} contains the folder of the run"
    again = subprocess.run(
        [*script, "environment"], cwd=tmp_path, env=environment_variables, capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_every_part_can_be_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [part.name for part in parts(tmp_path, small=False)]
    assert len(set(names)) == len(names)
    assert sum(part.limit for part in parts(tmp_path, small=False)[:7]) < 9 * 60  # the most important ones fit for sure
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "cielings", "-o", str(tmp_path / "x")])
    assert re.search("unknown part 'cielings'.*ceilings", capsys.readouterr().err)
    with pytest.raises(SystemExit, match="2"):
        main(["--pack", "-o", str(tmp_path)])
    assert "not a folder of the kit" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["file/found", "/proc/found", "blocked"])
def test_an_unwritable_output_is_an_error_before_measuring(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "blocked.tar.gz.part").mkdir()  # blocks the temporary file of the archive
    assert main(["--small", "-o", str(tmp_path / name)]) == 2
    assert re.search(f"-o .*{name}: .* cannot be written .*; name a folder", capsys.readouterr().err)
    assert not (tmp_path / name).exists()


# --- Failing parts --------------------------------------------------------------------------------


def part(code: str, limit: float = 60) -> KitPart:
    return KitPart("a part", (sys.executable, "-c", code), limit)


def test_a_failed_part_has_a_reason_and_an_inapplicable_part_is_not_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    failed = run(part("print('measuring'); raise RuntimeError('CUDA error: 719')"), log, 60)
    assert (failed.status, failed.message) == ("failed", "RuntimeError: CUDA error: 719")
    assert "measuring" in log.read_text()
    skipped = run(part(f"print('no such unit'); raise SystemExit({SKIPPED})"), log, 60)
    assert (skipped.status, skipped.message) == ("skipped", "no such unit")
    assert run(part("import os; os.kill(os.getpid(), 9)"), log, 60).message == "ended by signal 9 (Killed)"
    advice = "CUDA error: no kernel image is available\\nCompile with `TORCH_USE_CUDA_DSA`\\n"
    failed = run(part(f"raise RuntimeError('{advice}')"), log, 60)
    assert failed.message == "RuntimeError: CUDA error: no kernel image is available"
    failed_with_message = run(part("print('error: measuring needs torch\\nmore'); raise SystemExit(2)"), log, 60)
    assert failed_with_message.message == "error: measuring needs torch"


def test_a_part_that_exceeds_its_time_limit_is_terminated_with_its_child_processes(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.run(['sh', '-c', 'echo $$; sleep 600; echo never'])"
    outcome = run(part(code), tmp_path / "log.txt", 2)
    assert outcome.status == "cut off"
    assert not alive(int((tmp_path / "log.txt").read_text()))  # the number of the child process, and nothing else


def test_an_interruption_packs_the_collected_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(one: KitPart, log: Path, seconds: float) -> Outcome:
        if one.name != "environment":
            raise KeyboardInterrupt
        log.write_text("output\n")
        return Outcome("done", 1.0)

    monkeypatch.setattr("benchmarks.collect.__main__.run", interrupted)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small"]) == 130
    done, begun, *rest = json.loads((tmp_path / "found" / "manifest.json").read_text())["parts"]
    assert (done["status"], begun["status"], rest[0]["status"]) == ("done", "cut off", "not begun")
    assert begun["message"] == "interrupted; its results so far remain"
    assert datetime.fromisoformat(done["began"]) <= datetime.fromisoformat(begun["began"])
    assert "began" not in rest[0]
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert "found/logs/environment.txt" in archive.getnames()


def test_no_part_starts_without_enough_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small", "--minutes", "0.1", "--only", "ceilings"]) == 1
    (only,) = json.loads((tmp_path / "found" / "manifest.json").read_text())["parts"]
    assert (only["status"], only["message"]) == ("cut off", "no time left")


def test_a_full_disk_affects_neither_other_parts_nor_existing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    started = []
    monkeypatch.setattr("benchmarks.collect.__main__.run", lambda one, *_: started.append(one.name) or full())
    monkeypatch.setattr("benchmarks.collect.__main__.write_text", full)
    monkeypatch.setattr(tarfile, "open", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small", "--only", "environment,ceilings"]) == 1
    output = capsys.readouterr().out
    assert started == ["environment", "ceilings"]
    assert output.count("failed in 0 s: [Errno 28] No space left on device") == 2
    assert "found could not be packed (No space left on device); it contains all results" in output
    assert not list(tmp_path.glob("*.part"))


DRIVER = """\
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the test runner may ignore SIGHUP; the kit then ignores it too
from benchmarks.collect import __main__ as kit
from benchmarks.collect.parts import KitPart
code = "import os, time; open({pid!r}, 'w').write(str(os.getpid()) + chr(10)); time.sleep(60)"
kit.parts = lambda folder, small: [KitPart("sleeps", (sys.executable, "-c", code), 60)]
sys.exit(kit.main(["-o", "found", "--small"]))
"""


@pytest.mark.parametrize("signals", ["SIGTERM", "SIGHUP", "SIGINT SIGINT SIGTERM", "SIGKILL"])
def test_after_any_signal_the_files_are_packed_and_no_process_is_left(signals: str, tmp_path: Path) -> None:
    """A second signal arrives while the kit handles the first; nvidia-smi ignores both."""
    smi = tmp_path / "nvidia-smi"
    ignore_sigterm = "" if signals == "SIGKILL" else "trap '' TERM\n"
    smi.write_text(
        f"#!/bin/sh\ncase $* in *' -l '*) ;; *) exit;; esac\n{ignore_sigterm}"
        "echo $$ > smi\nwhile :; do sleep 0.1; done\n"
    )
    smi.chmod(0o755)
    program = DRIVER.format(pid=str(tmp_path / "pid"))
    environment_variables = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment_variables,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as kit:
        pids = [int(wait_for_text(tmp_path / name)) for name in ("pid", "smi")]
        for name in signals.split():
            os.kill(kit.pid, getattr(signal, name))
            time.sleep(0.02)
        output = kit.communicate(timeout=30)[0].decode()
    deadline = time.monotonic() + 10
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, "a process was left"
        time.sleep(0.05)
    (only,) = json.loads((tmp_path / "found" / "manifest.json").read_text())["parts"]
    if signals == "SIGKILL":
        assert only["status"] == "begun"
        assert main(["--pack", "-o", str(tmp_path / "found")]) == 0
    else:
        assert (kit.returncode, only["status"]) == (130, "cut off"), output
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        assert "found/logs/sleeps.txt" in archive.getnames()


def wait_for_text(file: Path, end: str = "\n") -> str:
    """Wait until a file ends with this text; return its content."""
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().endswith(end)):
        assert time.monotonic() < deadline, f"no {file.name}"
        time.sleep(0.02)
    return file.read_text()


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- Privacy --------------------------------------------------------------------------------------------


def test_names_of_the_machine_are_replaced_in_compressed_and_binary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "node0317")
    text = f'{{"traceName": "{tmp_path}/x.json", "host": "node0317", "by": "{ROOT}/benchmarks"}}'
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c.ncu-rep").write_bytes(
        b"\0\x08node0317\0"
    )  # binary: the length of a text may precede it, so the replacement is equally long
    scrub.scrub(tmp_path)
    assert (tmp_path / "c.ncu-rep").read_bytes() == b"\0\x08HOST____\0"
    replaced = '{"traceName": "FOLDER/x.json", "host": "HOST", "by": "ROOFMODEL/benchmarks"}'
    assert (tmp_path / "a.json").read_text() == replaced
    assert gzip.decompress((tmp_path / "b.json.gz").read_bytes()).decode() == replaced


def test_names_that_are_also_words_of_the_results_are_replaced_only_in_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host named h100 and a user named cuda: names of devices and types stay unchanged."""
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "h100.example.org")
    monkeypatch.setattr(scrub, "_user", lambda: "cuda")
    file = tmp_path / "environment.json"
    file.write_text(
        '{"hardware": "h100-sxm", "torch": "2.9, CUDA", "cat": "cuda", "at": "/data/cuda/x", "on": "h100.example.org"}'
    )
    scrub.scrub(tmp_path)
    assert (
        file.read_text()
        == '{"hardware": "h100-sxm", "torch": "2.9, CUDA", "cat": "cuda", "at": "/data/USER/x", "on": "HOST"}'
    )


@pytest.fixture
def user_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """User `qi`, started by `bossman` with sudo, on a host with a domain."""
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "node0317")
    monkeypatch.setattr(scrub.socket, "getfqdn", lambda: "node0317.cluster.example.org")
    monkeypatch.setattr(scrub, "_user", lambda: "qi")
    for name in scrub.USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUDO_USER", "bossman")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932,MIG-1f3a")


@pytest.mark.usefixtures("user_and_host")
@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("/scratch/qi/x.py", "/scratch/USER/x.py"),
        ('"/data/shared/qi"', '"/data/shared/USER"'),
        ("/qi/qi/qi/", "/USER/USER/USER/"),
        ("qi@login1", "USER@login1"),
        ('{"user": "qi", "LOGNAME": "qi"}', '{"user": "USER", "LOGNAME": "USER"}'),
        ("SUDO_USER=bossman LOGNAME=qi", "SUDO_USER=USER LOGNAME=USER"),
        ("/tmp/bossman.log of bossman", "/tmp/USER.log of USER"),
        ("login1.cluster.example.org, mail.example.org", "login1.DOMAIN, mail.DOMAIN"),
        ("node0317.cluster.example.org node0317", "HOST HOST"),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-UUID"),
        ("CUDA_VISIBLE_DEVICES=GPU-8932,MIG-1f3a", "CUDA_VISIBLE_DEVICES=GPU-UUID,GPU-UUID"),
        ("12 qi/s, a qi of qi, path/to/lib, /usr/lib/qi.so", "12 qi/s, a qi of qi, path/to/lib, /usr/lib/qi.so"),
        ("GPU-bound GPU-0", "GPU-bound GPU-0"),
    ],
)
def test_names_of_people_hosts_and_gpus_are_replaced(text: str, after: str, tmp_path: Path) -> None:
    for name in ("a.log", "no-suffix", "b.json"):
        (tmp_path / name).write_text(text)
    assert scrub.scrub(tmp_path) == []
    assert {path.read_text() for path in tmp_path.iterdir()} == {after}


@pytest.mark.usefixtures("user_and_host")
def test_names_are_replaced_in_file_names_and_targets_of_links(tmp_path: Path) -> None:
    for name in ("node0317_12.pt.trace.json", "HOST_12.pt.trace.json", "log-qi.txt", "bossman/x.csv", "ncu-qi.csv.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    (tmp_path / "link").symlink_to("/scratch/qi/node0317/data")
    (tmp_path / "inner").symlink_to("log-qi.txt")
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.write_text("node0317")
    (tmp_path / "out").symlink_to(outside)
    assert scrub.scrub(tmp_path) == []
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        "HOST_12.pt.trace.json", "2-HOST_12.pt.trace.json", "log-USER.txt", "USER", "USER/x.csv", "ncu-USER.csv.gz",
        "link", "inner", "out",
    }  # fmt: skip
    assert os.readlink(tmp_path / "link") == "/scratch/USER/HOST/data"
    assert outside.read_text() == "node0317"  # outside the folder: unchanged


def test_truncated_archives_are_not_packed_and_unfinished_text_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unfinished(one: KitPart, log: Path, seconds: float) -> Outcome:
        (log.parents[1] / "unfinished-trace-x.json.gz").write_bytes(gzip.compress(b"node0317" * 999)[:-9])
        (log.parents[1] / "operators-cold.csv.part").write_text("gpu\nnode0317\n")
        return Outcome("failed", 1.0)

    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "node0317")
    monkeypatch.setattr("benchmarks.collect.__main__.run", unfinished)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["-o", str(tmp_path / "found"), "--small", "--only", "ceilings"]) == 1
    assert re.search("not packed, .*unfinished-trace-x.json.gz", capsys.readouterr().out)
    with tarfile.open(tmp_path / "found.tar.gz") as archive:
        names = set(archive.getnames())
        assert {(each.uid, each.gid, each.uname, each.gname) for each in archive} == {(0, 0, "", "")}
    assert "found/operators-cold.csv.part" in names
    assert "found/unfinished-trace-x.json.gz" not in names
    assert (tmp_path / "found" / "operators-cold.csv.part").read_text() == "gpu\nHOST\n"


# --- Environment and ceilings --------------------------------------------------------------------------


def test_the_environment_file_has_device_and_versions(tmp_path: Path) -> None:
    found = environment.read(tmp_path, small=True)
    assert found["packages"]["torch"] == torch.__version__
    assert found["device"]["types"] == ["fp32", "bf16"]
    assert found["hardware"] is None
    assert environment.read(tmp_path, small=True) == found


def test_without_a_gpu_the_reason_is_printed_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except with --small: 8 billion parameters take too long on a CPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert environment.main(tmp_path, small=False) == 1
    assert re.search("^error: torch .*; for a trial without a GPU, use --small$", capsys.readouterr().out)
    found = json.loads((tmp_path / "environment.json").read_text())
    assert found["packages"]["torch"] == torch.__version__
    assert found["problem"].startswith("torch ")
    for measure in (ceilings.main, lambda *_: whole_models.main(tmp_path, "llama", small=False)):
        with pytest.raises(WorkloadError, match='device="cuda"'):
            measure(tmp_path, False)
    assert all("--device cuda" in " ".join(p.command) for p in parts(tmp_path, False) if "operators" in p.name)


SMI = """\
#!/bin/sh
for word in "$@"; do case $word in --query-gpu=*) asked=${word#*=};; esac; done
case $asked in *persistence_mode*) echo 'Field "persistence_mode" is not a valid field to query.'; exit 2;; esac
echo "$asked" | sed 's/,/, /g'
"""


def test_a_field_unknown_to_the_driver_does_not_affect_other_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    state = environment.read(tmp_path, small=True)["state"]
    assert state.pop("persistence_mode") == 'Field "persistence_mode" is not a valid field to query.'
    assert state == {name: name for name in environment.STATE if name != "persistence_mode"}
    program.write_text(SMI.replace("persistence_mode", "clocks_throttle_reasons"))
    assert environment._state() == {name: name for name in environment.STATE}
    clocks = kit_main._start_clock_log(tmp_path / "clocks.csv")
    assert clocks is not None
    clocks.wait()
    assert (tmp_path / "clocks.csv").read_text().strip().endswith("clocks_event_reasons.active")


def test_versions_and_device_are_written_before_queries_that_may_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(*_: object) -> Any:
        raise KeyboardInterrupt  # as in a part that receives SIGINT

    monkeypatch.setattr(environment, "_state", hangs)
    with pytest.raises(KeyboardInterrupt):
        environment.main(tmp_path, small=True)
    assert json.loads((tmp_path / "environment.json").read_text())["device"]["types"] == ["fp32", "bf16"]
    monkeypatch.setattr(environment, "machine", hangs)
    with pytest.raises(KeyboardInterrupt):
        environment.main(tmp_path, small=True)
    assert json.loads((tmp_path / "environment.json").read_text())["packages"]["torch"] == torch.__version__


def test_measured_ceilings_can_be_pasted_into_a_device_file(tmp_path: Path) -> None:
    ceilings.main(tmp_path, small=True)
    found = json.loads((tmp_path / "ceilings.json").read_text())["ceilings"]
    assert {each["ceiling"] for each in found} >= {"dram", "l2", "launch", "fp32", "bf16"}
    assert all(each["value"] > 0 for each in found)
    (tmp_path / "cpu.yaml").write_text(
        "name: A processor\npipes:\n  fp32: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 TB/s}\n"
        + (tmp_path / "measured.yaml").read_text()
    )
    device = Device.load(tmp_path / "cpu.yaml")
    triad = next(each for each in found if each["by"] == "triad")
    stated = next(each.value for each in device.measured if each.by == "triad")
    assert stated == pytest.approx(triad["value"], rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "capability", "pipe"),
    [
        ("fp16", "7.0", "tensor_fp16"), ("fp64", "7.0", "fp64"), ("fp64", "8.0", "tensor_fp64"),
        ("fp64", "8.9", "fp64"), ("fp64", "10.0", "fp64"), ("fp32", "9.0", "fp32"), ("bf16", None, "bf16"),
    ],
)  # fmt: skip
def test_a_gemm_is_measured_on_the_pipe_of_the_device(dtype: str, capability: str | None, pipe: str) -> None:
    assert report.pipe(dtype, capability) == pipe


def test_ceilings_count_the_bytes_moved_and_the_flops_computed(tmp_path: Path) -> None:
    """Every call takes one second on the simulated machine, so the rates equal the counts."""

    class OneSecondPerCall(stopwatch.Cpu):
        def time(self, run: Any, cold: bool = True) -> stopwatch.MeasuredTime:
            run()
            return stopwatch.MeasuredTime(1.0, 1.0, 1)

    kit = ceilings.CeilingRun(OneSecondPerCall(), tmp_path, [], data=4096, cached=1024, rows=(32,))
    ceilings.dram_bandwidths(kit)
    ceilings.l2_bandwidth(kit)
    ceilings.gemm_rates(kit)
    found = {(each["ceiling"], each["by"]): each["value"] for each in kit.figures}
    assert [found["dram", by] for by in ("copy", "read", "write", "triad")] == [8192, 4096, 4096, 12288]
    assert found["l2", "read"] == 4 * 1024
    assert found["fp32", "matmul"] == 2 * 32**3


@pytest.mark.parametrize(
    ("capability", "types", "expected"),
    [
        ("7.0", ("fp32", "fp16"), {"fp64", "fp32", "fp16"}),  # V100: no bf16, tf32, int8 on its tensor cores
        ("8.0", ("fp32", "fp16", "bf16", "tf32"), {"fp64", "fp32", "fp16", "bf16", "tf32", "int8"}),
        *(
            (newer, ("fp32", "fp16", "bf16", "tf32", "fp8"), {"fp64", "fp32", "fp16", "bf16", "tf32", "int8", "fp8"})
            for newer in ("8.9", "9.0", "10.0", "12.0")
        ),
    ],
)
def test_gemms_of_unsupported_types_are_not_measured(
    capability: str, types: tuple[str, ...], expected: set[str], tmp_path: Path
) -> None:
    """torch computes GEMMs of unsupported types in fp32, which does not measure their peak. Each device file has the
    pipes of all measured types, so the measured lines can be pasted into it."""

    class CpuWithTypes(stopwatch.Cpu):
        def __init__(self) -> None:
            self.evidence, self.framework, self.dtypes = Evidence(compute_capability=capability), "torch", types

        def time(self, run: Any, cold: bool = True) -> stopwatch.MeasuredTime:
            run()
            return stopwatch.MeasuredTime(1.0, 1.0, 1)

    kit = ceilings.CeilingRun(CpuWithTypes(), tmp_path, [], data=4096, cached=1024, rows=(32,))
    ceilings.gemm_rates(kit)
    assert {each["ceiling"] for each in kit.figures} == expected
    text = (tmp_path / "measured.yaml").read_text()
    pipes = {report.pipe(dtype, capability) for dtype in expected}
    assert set(re.findall(r"ceiling: (\w+)", text)) == pipes
    devices = [device for device in map(Device.load, library.names()) if device.compute_capability == capability]
    assert devices
    for device in devices:
        assert pipes <= set(device.pipes), device.id


# --- Whole models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_built_model_has_the_parameters_that_roof_counts_and_no_dropout(name: str, tmp_path: Path) -> None:
    config = config_of(name, small=True, memory=None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    built = build(config, "cpu", "fp32")
    counted = estimate(str(tmp_path / "config.json"), "a100").to_dict()["model"]["parameters"]
    assert sum(each.numel() for each in built.model.parameters()) == counted
    assert all(each.p == 0 for each in built.model.modules() if isinstance(each, torch.nn.Dropout))


def test_a_gpu_with_less_memory_runs_a_llama_with_fewer_layers() -> None:
    large, small = (config_of("llama", False, memory) for memory in (80 * 2**30, 16 * 2**30))
    assert (large["num_hidden_layers"], small["num_hidden_layers"]) == (32, 16)


class SynchronizationCounter(TorchDispatchMode):
    """Counts synchronizations, such as reading a number from a tensor. A CUDA graph cannot contain any."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(function) or "nonzero" in str(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_does_not_synchronize_and_can_be_captured_in_a_graph(name: str) -> None:
    """Without training: the optimizer is `capturable` only on a GPU."""
    config = config_of(name, small=True, memory=None)
    built = build(config, "cpu", "fp32")
    for work in works(config, small=True):
        if work.phase != "train":
            run_step = step(built, work)
            run_step()
            with SynchronizationCounter() as counter:
                run_step()
            assert counter.count == 0, work


def test_a_decode_computes_one_token_per_sequence_after_its_context() -> None:
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
        rate = float(row["images_per_second" if kind(config) == "vision" else "tokens_per_second"])
        processed = int(row["batch"]) * (1 if row["image"] or row["phase"] == "decode" else int(row["seq"]))
        assert rate * float(row["seconds"]) == pytest.approx(processed)
        predicted = report.predicted(row, tmp_path, Device.load("a100"))
        assert float(predicted.bound_seconds) < float(row["seconds"])  # bound of an A100, time of this CPU
    traces = sorted(tmp_path.glob("trace-*.json.gz"))
    assert len(traces) == len({row["phase"] for row in rows})
    for trace in traces:
        names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
        assert "step" in names
        assert names & {"transformer.h.0.attn", "resnet.encoder.stages.0"}
        assert reading.read([str(trace)]).tool == "torch"


class SimulatedGpu(stopwatch.Gpu):
    """A CPU that simulates GPU functions: graphs, memory in use."""

    device, dtypes, buffer = "cpu", ("fp32", "bf16"), 2**12

    def __init__(self) -> None:
        self.evidence, self.framework = Evidence(name="A simulated GPU", dram_bytes=80 * 2**30), "torch"

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
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ceilings, whole_models, one_step):
        monkeypatch.setattr(module, "machine", lambda _: SimulatedGpu())
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**20)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.filterwarnings("ignore:CUDA is not available, disabling CUDA profiling")
@pytest.mark.usefixtures("simulated_gpu")
def test_on_a_gpu_each_step_also_runs_as_a_graph_with_memory_and_clocks(tmp_path: Path) -> None:
    whole_models.main(tmp_path, "llama", small=True)
    with (tmp_path / "model-llama.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["phase"], row["runtime"]) for row in rows] == [
        (phase, runtime) for phase in ("prefill", "decode", "train") for runtime in ("eager", "graph")
    ]
    peak = str(2**20 - 2**12)  # without the buffer of the stopwatch
    assert {(row["status"], row["peak_bytes"], row["sm_mhz"]) for row in rows} == {("done", peak, "1410")}


@pytest.mark.usefixtures("simulated_gpu")
def test_the_peak_memory_of_a_decode_excludes_its_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("llama", small=True, memory=None)
    built, log = build(config, "cpu", "fp32"), []
    built.model.register_forward_pre_hook(lambda _, __, k: log.append(k["input_ids"].shape[1]), with_kwargs=True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: log.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: log.append("read") or 0)
    list(whole_models.rows(built, Work("decode", 2, context=16), SimulatedGpu()))
    for runtime in " ".join(map(str, log)).split("read")[:2]:
        assert re.fullmatch(r" ?16 reset( 1)+ ", runtime)


@pytest.mark.usefixtures("simulated_gpu")
def test_on_a_gpu_all_four_launch_times_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "SUSTAINED_SECONDS", 0.05)
    ceilings.main(tmp_path, small=True)
    found = json.loads((tmp_path / "ceilings.json").read_text())["ceilings"]
    launches = [each["by"] for each in found if each["ceiling"] == "launch"]
    assert launches == ["eager", "within a graph", "of a graph", "and waiting for it"]
    assert all(each["sm_mhz"] == 1410 for each in found)
    assert found[-1]["by"] == "matmul, sustained"


def test_a_step_that_runs_out_of_memory_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(built: Any, work: Any) -> Any:
        if work.phase == "train":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nGPU 0 has ...")
        return step(built, work)

    monkeypatch.setattr(whole_models, "step", out_of_memory)
    whole_models.main(tmp_path, "bert-large", small=True)
    with (tmp_path / "model-bert-large.csv").open(newline="") as file:
        statuses = {row["phase"]: row["status"] for row in csv.DictReader(file)}
    assert statuses == {"forward": "done", "train": "CUDA out of memory. Tried to allocate 20 GiB"}


def test_a_step_that_raises_an_error_is_a_row_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_step(built: Any, work: Any) -> Any:
        if work.phase == "decode":
            raise TypeError("__init__() missing 1 required positional argument")
        return step(built, work)

    monkeypatch.setattr(whole_models, "step", failing_step)
    whole_models.main(tmp_path, "llama", small=True)
    with (tmp_path / "model-llama.csv").open(newline="") as file:
        statuses = {row["phase"]: row["status"] for row in csv.DictReader(file)}
    missing = "TypeError: __init__() missing 1 required positional argument"
    assert statuses == {"prefill": "done", "decode": missing, "train": "done"}
    assert [path.name for path in sorted(tmp_path.glob("*.json.gz"))] == [
        "trace-llama-prefill.json.gz", "trace-llama-train.json.gz"
    ]  # fmt: skip


def test_a_trace_that_cannot_be_written_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(profiler: Any, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", full)
    whole_models.main(tmp_path, "bert-large", small=True)
    assert not list(tmp_path.glob("*trace*"))
    assert (tmp_path / "model-bert-large.csv").read_text().count("done") == 2


def test_a_model_that_always_computes_all_logits_is_refused_for_a_prefill() -> None:
    """GPT-2 until transformers 4.51 is such a model."""
    built = build(config_of("gpt2-xl", small=True, memory=None), "cpu", "fp32")
    built.model.forward = lambda input_ids, use_cache: None
    with pytest.raises(NotImplementedError, match=r"cannot compute logits of the last position only; use >=4\.57"):
        step(built, Work("prefill", 2, 16))


def test_an_incompatible_transformers_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.utils, "is_torch_available", lambda: False)
    with pytest.raises(ImportError, match=r"transformers .* does not support torch .*'transformers>=4.57,<5'"):
        importlib.reload(models)


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
elif mode == "silent":
    sys.exit(1)
elif mode == "broken":
    print("Traceback (most recent call last):\\nImportError: transformers 5 does not support torch 2.4")
    print("==ERROR== The application returned an error code (1).")
    sys.exit(1)
elif mode == "hangs":
    print("==PROF== Profiling gemm", flush=True)
    import time
    time.sleep(60)
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
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test double of ncu that logs its commands to the returned file."""
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


def logged_commands(calls: Path) -> list[list[str]]:
    return [line.split("\0") for line in calls.read_text().splitlines()]


def test_ncu_collects_the_roofline_set_and_our_metrics_and_all_exported_layouts_are_read(
    fake_ncu: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "found"
    assert ncu.main(folder, "gpt2-xl", "prefill", small=True) == 0
    command, *imports = logged_commands(fake_ncu)
    assert command[command.index("--set") + 1] == "roofline"
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in command[command.index("--metrics") + 1]
    assert "--nvtx" in command
    assert not {"--csv", "--log-file"} & set(command)
    assert command[command.index("benchmarks.collect.one_step") + 2 :] == ["prefill", "--small"]
    assert len(imports) == len(ncu.PAGES)
    for layout in ("raw.csv", "raw-base.csv", "details.csv", "summary.csv"):
        found = kernels([str(folder / f"ncu-gpt2-xl-prefill.{layout}")], "a100", [])
        assert found.kernels, layout
    config = json.loads((folder / "configs" / "gpt2-xl-2-layers.json").read_text())
    assert config["n_layer"] == 2
    assert (folder / "ncu-gpt2-xl-prefill.txt").read_text().startswith("$ ncu --metrics")


def test_an_ncu_without_the_roofline_set_collects_only_the_metrics(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "old")
    assert ncu.main(tmp_path / "found", "gpt2-xl", "decode", small=True) == 0
    first, second, *_ = logged_commands(fake_ncu)
    assert "--set" in first
    assert "--set" not in second
    assert (tmp_path / "found" / "ncu-gpt2-xl-decode.raw.csv").exists()


def test_counters_restricted_to_administrators_skip_the_part(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_NCU", "forbidden")
    assert ncu.main(tmp_path / "found", "gpt2-xl", "train", small=True) == SKIPPED
    assert "administrators" in capsys.readouterr().out.splitlines()[-1]


def test_the_output_of_an_interrupted_ncu_is_kept(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hangs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "found"
    environment.main(folder, small=True)
    arguments = ("benchmarks.collect.ncu", str(folder), "gpt2-xl", "train", "--small")
    with subprocess.Popen([sys.executable, "-m", *arguments], start_new_session=True) as process:
        output = wait_for_text(folder / "ncu-gpt2-xl-train.txt", "==PROF== Profiling gemm\n")
        os.killpg(process.pid, signal.SIGTERM)
    assert output.startswith("$ ncu --metrics")


@pytest.mark.parametrize(
    ("mode", "reason"), [("silent", "no output"), ("broken", "ImportError: transformers 5 does not support torch 2.4")]
)
def test_the_reason_of_an_ncu_failure_is_reported(
    mode: str,
    reason: str,
    fake_ncu: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ncu's message does not contain the error of the profiled program."""
    monkeypatch.setenv("FAKE_NCU", mode)
    assert ncu.main(tmp_path / "found", "gpt2-xl", "train", small=True) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"error: ncu ended with status 1: {reason}"


def test_without_a_gpu_ncu_is_not_run(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert ncu.main(tmp_path / "found", "gpt2-xl", "train", small=False) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("error: torch ")
    assert not fake_ncu.exists()


def test_ncu_collects_only_metrics_that_the_gpu_has(tmp_path: Path) -> None:
    """Volta counts tensor-core instructions and has no bf16."""
    command = ncu.ncu_command(["python", "x.py"], "v100-sxm2-16gb", tmp_path / "r.ncu-rep", roofline=True)
    metrics = command[command.index("--metrics") + 1]
    assert "sm__inst_executed_pipe_tensor.sum" in metrics
    assert "bf16" not in metrics
    assert command[-4:] == ["-o", str(tmp_path / "r"), "python", "x.py"]


def test_a_recorded_export_is_read_under_the_file_name_of_the_kit(tmp_path: Path) -> None:
    """The export was recorded by ncu on an A100."""
    recorded = measured("ncu/a100_40_resnet18_raw_wide.csv")
    (tmp_path / "ncu-resnet-18-prefill.raw.csv").write_bytes(Path(recorded).read_bytes())
    found = kernels([str(tmp_path / "ncu-resnet-18-prefill.raw.csv")], "a100-sxm-40gb", [])
    assert len(found.kernels) == 235


def test_the_profiled_program_runs_without_ncu(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama", small=True, memory=None, layers=1)))
    one_step.main(tmp_path / "config.json", "decode", small=True)


# --- The report -----------------------------------------------------------------------------------------


def test_the_report_lists_parts_ceilings_models_and_next_commands(
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
    output = capsys.readouterr().out
    assert "ceilings             done in 31 s" in output
    assert "ncu-train            not begun" in output
    assert "88% of 2.04 TB/s" in output  # 1800 of 2039 GB/s
    assert "97% of 19.5 TFLOP/s" in output  # of the A100's tensor cores
    prefill = next(line for line in output.splitlines() if "prefill" in line)
    assert "20 ms" in prefill
    assert "11.7 ms" in prefill  # the bound in the README
    assert "CUDA out of memory" in output
    assert f"roof calibrate {tmp_path}/operators-cold.csv --hw a100-sxm-80gb" in output
    assert "operators-warm.csv --hw a100-sxm-80gb -o" not in output
    options = "--hw a100-sxm-80gb --phase {} --batch 1 --seq 1024 --dtype bf16\n"
    trace, counters = tmp_path / "trace-gpt2-xl-prefill.json.gz", tmp_path / "ncu-gpt2-xl-train.raw-base.csv"
    assert f"roof compare {tmp_path}/configs/gpt2-xl.json {trace} {options.format('prefill')}" in output
    assert f"roof compare {tmp_path}/configs/gpt2-xl-2-layers.json {counters} {options.format('train')}" in output


def test_an_incomplete_collection_is_reported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text('{"parts": []}')
    (tmp_path / "model-gpt2-xl.csv").write_text("model,phase,seconds\ngpt2-xl,pre")  # the disk was full
    assert report.command([str(tmp_path)]) == 0
    assert "unknown device" in capsys.readouterr().out


def test_an_unknown_folder_or_device_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "found.tar.gz").touch()
    for name, message in (("found.tar.gz", "unpack it with tar xzf"), ("nowhere", "not a folder of the kit")):
        assert report.command([str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text('{"parts": []}')
    assert report.command([str(tmp_path), "a1000"]) == 2
    assert "error: " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        report.command([])
