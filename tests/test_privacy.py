"""No output contains data about people and machines, and outputs show the names of kernels as plain text.

Files of every tool contain command lines, paths, host names and environment variables; the tests put a secret into
each. Names of kernels come from unknown programs: they may be markup, escape sequences or ten kilobytes long.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from roofmodel.profiles.signatures import NCU_REPORT
from roofmodel.report.table import as_csv
from tests.command_line import Roof, run
from tests.profiles import test_nsys, test_nvprof, test_torch_trace
from tests.profiles.ncu import samples as ncu
from tests.profiles.ncu import test_reader as test_ncu

SECRET = "hush-hush"
PICTURES = ("png", "svg", "pdf", "html")


@pytest.fixture
def roof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return lambda *arguments: run(arguments, monkeypatch, capsys)


# --- secrets ----------------------------------------------------------------------------------------------------

FLOPS = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", "1000000") for op in ("fadd", "fmul", "ffma")}
METRICS = {"dram__bytes.sum": ("byte", "12582912"), "gpu__time_duration.sum": ("us", "41.6")} | FLOPS
AROUND = f"==PROF== Connected to process 11 (/home/{SECRET}/bin/python3)\nHOSTNAME={SECRET}\n==WARNING== {SECRET}\n"


def of_ncu(text: str) -> bytes:
    table = text.replace('"secret-host"', f'"{SECRET}"').replace('"host"', f'"{SECRET}"')
    table = table.replace('"python3"', f'"/home/{SECRET}/bin/python3"')
    return (AROUND + table + AROUND).encode()


def export() -> bytes:
    """An SQLite export with the tables in which nsys stores data about the machine."""
    made = test_nsys.export(
        test_nsys.RUNTIME,
        test_nsys.NVTX,
        test_nsys.GPU,
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, value TEXT)",
        "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)",
        "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)",
        "CREATE TABLE TARGET_INFO_NIC_INFO (GUID TEXT, name TEXT)",
    )
    made.kernel("gemm", launched=10).range("step", 0, 900).add("TARGET_INFO_GPU", id=0, **test_nsys.A100)
    made.string(f"/home/{SECRET}/train.py")
    made.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=SECRET, devStateName=SECRET)
    made.add("META_DATA_CAPTURE", name="ENVIRONMENT", value=f"USER={SECRET}")
    made.add("PROCESSES", globalPid=test_nsys.PROCESS, pid=test_nsys.PID, name=f"/home/{SECRET}/python")
    made.add("TARGET_INFO_NIC_INFO", name=SECRET)
    return made.bytes()


def trace() -> bytes:
    secret = {"Call stack": f"/home/{SECRET}/train.py(1): main", "hostname": SECRET}
    kernel = test_torch_trace.kernel("gemm")
    kernel["args"] |= secret
    stack = test_torch_trace.event("python_function", f"/home/{SECRET}/train.py(1)", 0, 300, pid=42, tid=50, **secret)
    process = dict(ph="M", name="process_name", pid=42, args=dict(name=f"/home/{SECRET}/python", labels=SECRET))
    more = dict(distributedInfo=dict(hostname=SECRET), traceName=f"/home/{SECRET}/trace.json", username=SECRET)
    return test_torch_trace.trace(kernel, test_torch_trace.call(90), stack, process, **more, env=secret).encode()


LONG = ncu.HEADER + "".join(ncu.row(name, unit, value) for name, (unit, value) in METRICS.items())
TELLING = {
    "ncu-long": of_ncu(LONG),
    "ncu-wide": of_ncu(test_ncu.wide(METRICS)),
    "ncu-summary": of_ncu(
        test_ncu.SUMMARY + "".join(test_ncu.mean(name, unit, value) for name, (unit, value) in METRICS.items())
    ),
    "ncu-damaged": of_ncu(LONG)[:-300] + b'"0","11",' + of_ncu(LONG),
    "ncu-rep": NCU_REPORT + SECRET.encode(),
    "nvprof": test_nvprof.TRACE.replace("secret-host", SECRET).replace("someone", SECRET).encode(),
    "nvprof-metrics": test_nvprof.METRICS.replace("./app", f"/home/{SECRET}/app").encode(),
    "nvprof-with-output": (test_nvprof.TRACE + f"\n7 workers on {SECRET}\n").encode(),
    "nvprof-text-with-output": (test_nvprof.TEXT_TRACE + f"\n7 workers on {SECRET}\n").encode(),
    "nvprof-text-metrics-with-output": (test_nvprof.TEXT_METRICS + f"\n 7 workers on {SECRET}\n").encode(),
    "nsys": export(),
    "nsys-damaged": export().replace(b"CREATE TABLE PROCESSES", f"CREATE TABLE {SECRET}".encode()),
    "nsys-stats": test_nsys.SUM.replace("/opt/reports", f"/home/{SECRET}").replace("report.", f"{SECRET}.").encode(),
    "torch": trace(),
    "torch-damaged": trace()[:-5],
}
COUNTED = ("ncu-long", "ncu-wide", "ncu-summary", "nvprof-metrics")


def readable(path: Path) -> bytes:
    """The bytes of a file, those that a PDF compresses among them."""
    raw = path.read_bytes()
    streams = re.findall(rb"/FlateDecode.*?stream\r?\n(.*?)endstream", raw, re.DOTALL)
    return raw + b"".join(zlib.decompressobj().decompress(stream) for stream in streams)


@pytest.mark.parametrize("name", TELLING)
def test_names_of_users_and_machines_reach_no_output(name: str, roof, tmp_path: Path) -> None:
    Path("profile").write_bytes(TELLING[name])
    Path("counted.csv").write_text(LONG, encoding="utf-8")
    assert SECRET.encode() in TELLING[name]
    for form in ("table", "json", "csv"):
        assert SECRET not in "".join(map(str, roof("kernels", "profile", "--hw", "a100", "--format", form)))
    files = ["profile"] if name in COUNTED else ["counted.csv", "--times", "profile"]
    for form in PICTURES:
        ran = roof("plot", *files, "--hw", "a100", "-o", f"out.{form}", "--format", "json")
        assert ran.status in (0, 2)
        assert SECRET not in ran.out + ran.err
    for path in tmp_path.glob("out.*"):
        assert SECRET.encode() not in readable(path)


# --- names ------------------------------------------------------------------------------------------------------

HOSTILE = {
    "markup": "</script><script>alert(1)</script><img src=x onerror=alert(1)>-->]]>",
    "quotes": "\"a\" 'b' `c` ${d} $e$ {{f}} [bold]g[/bold] &amp; \\n %s",
    "escapes": "\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J \x08\x7f",
    "directions": "\u202egemm\u2066 \u200f \u2028 \ufeff",
    "lines": "one\ntwo\rthree\tfour",
    "letters": "größe 数据 🚀 ﷽",
    "length": "f<" + "x, " * 3400 + ">",
}


class Elements(HTMLParser):
    """The names and attributes of a page's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, tuple(name for name, _ in attrs)))


def elements(page: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Elements()
    parser.feed(page)
    return parser.seen


def named(name: str) -> str:
    return LONG.replace('"gemm"', '"' + name.replace('"', '""') + '"')


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_is_escaped_in_every_output(kind: str, roof, tmp_path: Path) -> None:
    name = HOSTILE[kind]
    for title, text in (("plain", named("gemm")), ("hostile", named(name))):
        Path(f"{title}.csv").write_text(text, encoding="utf-8", newline="")
        assert roof("plot", f"{title}.csv", "--hw", "a100", "-o", f"{title}.html").status == 0
    assert elements(Path("hostile.html").read_text("utf-8")) == elements(Path("plain.html").read_text("utf-8"))
    for command in ("kernels", "plot -o hostile.svg", "plot -o hostile.png --by base --format json"):
        ran = roof(*command.split(), "hostile.csv", "--hw", "a100")
        assert ran.status == 0
        assert all(line.isprintable() for line in (ran.out + ran.err).split("\n"))
    (kernel,) = json.loads(roof("kernels", "hostile.csv", "--format", "json").out)["kernels"]
    (row,) = csv.DictReader(io.StringIO(roof("kernels", "hostile.csv", "--format", "csv").out))
    assert kernel["name"] == row["name"]
    if name.isprintable():
        assert kernel["name"] == name
    ElementTree.parse(tmp_path / "hostile.svg")


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_of_devices_and_models_are_harmless(kind: str, roof, tmp_path: Path) -> None:
    name = HOSTILE[kind]
    device = (Path(__file__).parents[1] / "hardware" / "a100-sxm-80gb.yaml").read_text("utf-8")
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in name)
    Path("device.yaml").write_text(re.sub(r"(?m)^name: .*", lambda _: f'name: "{escaped}"', device, count=1), "utf-8")
    folder = tmp_path / name.replace("/", "_")[:60]
    folder.mkdir()
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    for command in ("estimate", "explain", "sweep"):
        for form in ("table", "csv") if command == "sweep" else ("table", "markdown"):
            ran = roof(command, str(folder), "--hw", "device.yaml", "--format", form)
            assert ran.status == 0, ran.err
            assert not [line for line in (ran.out + ran.err).split("\n") if not line.isprintable()]
    rows = "op,dtype,m,n,k,latency_us,kernel\ngemm,fp16,64,64,64,10," + '"' + name.replace('"', '""') + '"\n'
    Path("table.csv").write_text(rows, encoding="utf-8", newline="")
    ran = roof("validate", "table.csv", "--hw", "device.yaml")
    assert ran.status == 0, ran.err
    assert not [line for line in (ran.out + ran.err).split("\n") if not line.isprintable()]


def test_links_in_names_are_text_in_markdown(roof, tmp_path: Path) -> None:
    folder = tmp_path / "[l](javascript:alert(1))"
    folder.mkdir()
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    for command in ("estimate", "explain"):
        shown = roof(command, str(folder), "--hw", "a100", "--format", "markdown").out
        assert "&#91;l](javascript:" in shown
        assert "[l]" not in shown


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3+cmd", "@SUM(1)"])
def test_no_cell_of_a_csv_file_is_a_formula(name: str, roof) -> None:
    Path("k.csv").write_text(named(name), encoding="utf-8", newline="")
    for command in ("kernels k.csv --hw a100", "plot k.csv --hw a100 -o x.svg"):
        (row,) = csv.DictReader(io.StringIO(roof(*command.split(), "--format", "csv").out))
        assert row["name"] == f"'{name}"
    (kernel,) = json.loads(roof("kernels", "k.csv", "--format", "json").out)["kernels"]
    assert kernel["name"] == name


def test_negative_numbers_of_a_csv_file_stay_numbers() -> None:
    record = {"number": -1.5, "text": "-1.5", "exponent": "-1e-05", "infinite": "-inf", "plus": "+3"}
    assert as_csv(list(record), [record]).splitlines()[1] == "-1.5,-1.5,-1e-05,-inf,+3"


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_of_all_tools_are_harmless(kind: str, roof) -> None:
    name = HOSTILE[kind]
    made = test_nsys.traced().kernel(name, launched=10).range(name, 0, 900)
    traced = test_torch_trace.trace(
        test_torch_trace.kernel(name), test_torch_trace.call(90), test_torch_trace.annotation(name, 0, 900)
    )
    one_line = re.sub(r"[\r\n\u2028]", " ", name).replace('"', '""')
    files = {
        "sqlite": made.bytes(),
        "json": traced.encode(),
        "nvprof": test_nvprof.TRACE.replace("void f<int=4, float>(float*, int)", one_line).encode(),
        "stats": test_nsys.SUM.replace("void f<(int)4, float>(float *, int)", one_line).encode(),
    }
    for path, content in files.items():
        Path(path).write_bytes(content)
        for form in ("table", "json", "csv"):
            ran = roof("kernels", path, "--hw", "a100", "--format", form)
            assert ran.status == 0, ran.err
            assert all(line.isprintable() for line in (ran.out + ran.err).split("\n"))


# --- folders ----------------------------------------------------------------------------------------------------

TINY = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100}
CACHED = "some-organization/some-model"
HARDWARE = Path(__file__).parents[1] / "hardware" / "a100-sxm-80gb.yaml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, named after a secret, with models, a device file, profiles and tables."""
    home = tmp_path / "home" / SECRET
    snapshot = home / ".cache/huggingface/hub" / f"models--{CACHED.replace('/', '--')}" / "snapshots" / "1"
    for folder in (home, home / "models/tiny", snapshot, snapshot.parents[1] / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    (snapshot.parents[1] / "refs/main").write_text("1", encoding="utf-8")
    (home / "own.yaml").write_text(HARDWARE.read_text(encoding="utf-8"), encoding="utf-8")
    for rank in "01":
        (home / rank).mkdir()
        (home / rank / "profile.csv").write_text(LONG, encoding="utf-8")
    header, row = "op,dtype,latency_us,m,n,k,gpu\n", "gemm,float16,10,64,64,64,NVIDIA H100\n"
    (home / "table.csv").write_text(header + row, encoding="utf-8")
    (home / "my.py").write_text("import torch\ndef make(): return torch.nn.Linear(8, 8)\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


MODELS = (CACHED, "~/models/tiny", "~/config.json", "{home}/models/../models/tiny/config.json")
COMMANDS = (
    *(f"estimate {model} --hw ~/own.yaml -o out.svg -o out.html -o out.json -o out.md" for model in MODELS),
    *(f"plot --model {model} --hw ~/own.yaml -o out.svg -o out.html -o out.json --format csv" for model in MODELS),
    "plot {home}/0/profile.csv --hw v100 -o out.svg -o out.html -o out.json",
    "plot {home}/0/profile.csv {home}/1/profile.csv@v100 --hw a100 -o out.svg -o out.html -o out.json",
    "kernels {home}/0/profile.csv --hw v100 --format json",
    "kernels {home}/0/profile.csv {home}/1/profile.csv --hw v100 --format csv",
    *(f"explain {model} --hw ~/own.yaml -o out.md -o out.tex -o out.json" for model in MODELS),
    *(f"crossover {model} --hw ~/own.yaml --explain -o out.md -o out.json" for model in MODELS),
    f"sweep {' '.join(MODELS)} --hw a100,~/own.yaml -o out.svg -o out.csv -o out.json",
    f"models show {MODELS[1]} --format json",
    "hw show ~/own.yaml --format json",
    "validate {home}/table.csv --hw ~/own.yaml -o out.csv -o out.json -o out.svg",
    "count {home}/my.py:make --input 1x8 --format json",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_folders_above_the_last_one_reach_no_output(command: str, home: Path, roof, tmp_path: Path) -> None:
    ran = roof(*command.replace("{home}", str(home)).split())
    assert ran.status == 0, ran.err
    assert SECRET not in ran.out
    assert not [line for line in ran.err.splitlines() if SECRET in line]
    for path in tmp_path.glob("out.*"):
        assert SECRET.encode() not in readable(path), path.name


def test_files_with_equal_names_are_distinguished_by_their_folders(home: Path, roof) -> None:
    files = [str(home / rank / "profile.csv") for rank in "01"]
    document = json.loads(roof("kernels", *files, "--hw", "a100", "--format", "json").out)
    assert document["source"]["files"] == ["0/profile.csv", "1/profile.csv"]
    assert {kernel["file"] for kernel in document["kernels"]} == {"0/profile.csv"}  # one run: the files are joined
    assert json.loads(roof("kernels", files[0], "--format", "json").out)["source"]["files"] == ["profile.csv"]


@pytest.mark.skipif(sys.platform != "linux", reason="not applicable: other systems have no such names")
@pytest.mark.parametrize("suffix", ["svg", "png", "html", "json", "csv"])
def test_names_that_are_not_utf_8_are_shown_with_replacement_characters(suffix: str, roof, tmp_path: Path) -> None:
    odd = b"\xff".decode("utf-8", "surrogateescape")
    Path(odd).mkdir()
    Path(odd, "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    Path(f"{odd}.csv").write_text(LONG, encoding="utf-8")
    Path(f"{odd}.yaml").write_text(HARDWARE.read_text(encoding="utf-8"), encoding="utf-8")
    for line in (f"estimate ./{odd} --hw ./{odd}.yaml", f"plot {odd}.csv --hw a100"):
        ran = roof(*line.split(), "-o", f"{odd}-out.{suffix}", "--format", "csv" if suffix == "csv" else "json")
        assert ran.status == 0, ran.err
        assert ran.out.encode("utf-8")
        assert Path(f"{odd}-out.{suffix}").stat().st_size > 0


def test_texts_in_csv_files_have_no_control_characters() -> None:
    """ESC [ 2 J clears a terminal that shows the file; an override of the direction of text reverses a name."""
    assert as_csv(["name"], [{"name": "a\x1b[2J\u202eb\nc"}]).splitlines()[1:] == ["a\ufffd[2J\ufffdb c"]
