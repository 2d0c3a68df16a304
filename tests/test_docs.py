"""The pages of docs/ agree with the program. scripts/docs writes their outputs; scripts/site checks their links."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import roofmodel
from roofmodel.cli import app
from roofmodel.options.workload import DECLARED, key_of
from tests import command_line
from tests.compare import traces
from tests.profiles import test_rocprof, test_rocprof_database

ROOT = Path(__file__).parents[1]
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "reference" / "commands.md"})
JSON = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
DOCUMENTS = [section.split("\n```\n", 1) for section in JSON.split("\n$ roof ")[1:]]
COG_OUTPUT = re.compile(r"<!-- \[\[\[cog.*?\[\[\[end\]\]\] -->", re.DOTALL)


def commands(text: str) -> set[str]:
    """The `roof` commands that a page shows, without comments and redirections."""
    lines = re.findall(r"^\$ (roof .*)$", text, re.MULTILINE)
    return {re.split(r" +[|#] | 2>", line)[0].strip() for line in lines}


SHOWN = sorted({command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})
HOWTO = ("estimate", "explain", "sweep", "explore", "read-a-profile", "plot-a-profile", "compare", "homework")
# These need a cluster, files of a real run, or a terminal.
NOT_RUN = ("tcp://", "run.sqlite", "run_*.sqlite", "counters.csv", "--clock measured", "homework practice")
RUN = sorted(
    command
    for name in HOWTO
    for command in commands(COG_OUTPUT.sub("", (ROOT / "docs" / "howto" / f"{name}.md").read_text(encoding="utf-8")))
    if not any(text in command for text in NOT_RUN)
)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """`rows[].name` of every leaf; a list of plain values, or of none, is a leaf."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from keys(inside, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(inside, dict) for inside in value):
        for inside in value:
            yield from keys(inside, f"{path}[]")
    else:
        yield path


def run(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What `roof` prints in this folder; its status must be 0."""
    monkeypatch.chdir(folder)
    done = command_line.run(arguments, monkeypatch, capsys)
    assert done.status == 0, done.err
    return done.out


def documented(section: str) -> tuple[dict[str, re.Pattern[str]], list[re.Pattern[str]]]:
    """The keys that a section names by hand, and those of its tables `keys of ROWS`, which replace `ROWS.*`."""
    table, *generated = re.split(r"^\| keys of ", section, flags=re.MULTILINE)
    options = f"({'|'.join(map(key_of, DECLARED))})"
    by_hand = {
        key: re.compile(re.escape(key).replace(r"\*", ".+").replace("OPTION", options))
        for keys, meaning in _lines(table)
        for key in keys
        if not (key.endswith(".*") and "below" in meaning)
    }
    inside = []
    for text in generated:
        place = text.split("`")[1]
        inside += [re.compile(re.escape(f"{place}.{key}") + r"([.\[].+)?") for keys, _ in _lines(text) for key in keys]
    return by_hand, inside


def _lines(table: str) -> Iterator[tuple[list[str], str]]:
    """The keys and the meaning of each line of a Markdown table."""
    for line in table.splitlines():
        if line.startswith("| `"):
            keys, _, meaning = line.partition(" | ")
            yield re.findall(r"`(.+?)`", keys), meaning


def write_class(folder: Path) -> None:
    """The key of a class, the answers of one of its students, and a ruling on another one."""
    roofmodel.homework_class(ROOT / "examples" / "homework" / "roster.csv", folder / "sheets")
    (folder / "answers").mkdir()
    (folder / "answers" / "1001.yaml").write_text("answers:\n  stream:\n    intensity: 0.08\n    time: 3 or 4\n")
    (folder / "rulings.csv").write_text("student,question,points\n1002,stream.time,1\n")


def write_amd_profiles(folder: Path) -> None:
    """The databases of three runs under rocprofv3, and a workload folder of rocprof-compute."""
    mops, sizes = {"SQ_INSTS_VALU_MFMA_MOPS_F16": [1e6]}, {"FETCH_SIZE": [1e3], "WRITE_SIZE": [1e3]}
    for name, counters in {"times": None, "flops": mops, "bytes": sizes}.items():
        (folder / name / "node").mkdir(parents=True)
        test_rocprof_database.rocpd(folder / name / "node" / "70_results.db", counters)
    workload = folder / "workloads" / "train" / "MI300X"
    workload.mkdir(parents=True)
    test_rocprof.workload_folder(workload)


@pytest.mark.parametrize(("command", "section"), DOCUMENTS, ids=[command.split()[0] for command, _ in DOCUMENTS])
def test_the_page_on_json_has_the_keys_that_are_printed(
    command: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("count "):
        pytest.importorskip("torch", reason="roof count needs torch: pip install 'roofmodel[torch]'")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "table.csv").write_text(
        "op,dtype,m,n,k,latency_us,source\ngemm,fp16,64,64,64,10,ours\ngemm,odd,64,64,64,10,ours\n"
    )
    (tmp_path / "answers.yaml").write_text("answers:\n  stream:\n    intensity: 0.08\n")
    if "grade" in command:
        write_class(tmp_path)
    printed = set(keys(json.loads(run(shlex.split(command), tmp_path, monkeypatch, capsys))))
    by_hand, generated = documented(section)
    patterns = [*by_hand.values(), *generated]
    assert not {key for key in printed if not any(p.fullmatch(key) for p in patterns)}, "not on the page"
    assert not {key for key, p in by_hand.items() if not any(map(p.fullmatch, printed))}, "not printed"


@pytest.mark.parametrize("line", SHOWN)
def test_the_program_accepts_a_command_that_a_page_shows(line: str) -> None:
    words = shlex.split(line)
    command: Any = typer.main.get_command(app)
    context = command.make_context(words.pop(0), words[:1], resilient_parsing=True)
    while hasattr(command, "get_command"):
        command = command.get_command(context, words.pop(0))
    command.make_context(command.name, words)  # raises UsageError


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_a_howto_page_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("profile.csv", "one.csv", "other.csv"):
        shutil.copy(ROOT / "examples" / "ncu_by_hand.csv", tmp_path / name)
    with_shapes = [traces.Launch("gemm", 20.0, "mlp.up", call=("aten::mm", ((512, 512), (512, 512))))]
    traces.write(tmp_path / "trace.json", with_shapes if "plot" in command else traces.gpt2_eager(12))
    write_amd_profiles(tmp_path)
    if "grade" in command:
        write_class(tmp_path)
    if "check" in command:
        (tmp_path / "sheet.md").write_text("# Sheet\n\n```\nanswers:\n  stream:\n    time: 1\n```\n")
    arguments = shlex.split(command)[1:]
    printed = run(arguments, tmp_path, monkeypatch, capsys)
    assert printed or "-o" in arguments


def test_the_modules_that_the_page_on_numbers_names_exist() -> None:
    page = (ROOT / "docs" / "reference" / "numbers.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:roofmodel|hardware)/[^`]+?)`", page)
    assert len(paths) > 10
    assert not [path for path in paths if not list(ROOT.glob(path))]


def test_the_page_on_families_shows_the_cases_that_are_tested() -> None:
    pytest.importorskip("transformers", reason="the table reads the classes: pip install 'roofmodel[dev]'")
    from tests import guarantee

    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    assert "\n".join((f"{guarantee.summary()}:\n", *guarantee.table())) in page, "outdated; run scripts/docs"


def test_the_pages_for_beginners_link_terms_of_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", glossary, re.MULTILINE)
    anchors = {re.sub(r"[^a-z ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert headings == sorted(headings, key=str.lower)
    for page in ("README.md", "docs/tutorial.md", "docs/howto/explain.md"):
        linked = set(re.findall(r"glossary\.md#([a-z-]+)", (ROOT / page).read_text(encoding="utf-8")))
        assert linked <= anchors
        assert {"prefill-and-decode", "kv-cache", "sdpa", "flash-attention", "arithmetic-intensity"} <= linked


def test_the_page_on_python_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert not [name for name in roofmodel.__all__ if not re.search(rf"\b{name}\b", page)]


def test_the_trace_of_the_tutorial_is_the_one_that_the_tests_use(tmp_path: Path) -> None:
    trace = gzip.decompress((ROOT / "examples" / "gpt2_trace_by_hand.json.gz").read_bytes())
    written = traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    assert json.loads(trace) == json.loads(Path(written).read_text(encoding="utf-8"))


def test_the_package_map_has_each_folder() -> None:
    """A line for each folder, in which `; families/: …` is a folder inside it."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(roofmodel|  [a-z_]+)/ +(\S.*)", contributing, re.MULTILINE)
    package = ROOT / "roofmodel"
    folders = {path.parent.relative_to(package) for path in package.rglob("*") if path.suffix in (".py", ".json")}
    listed = [Path("." if name == "roofmodel" else name.strip()) for name, _ in lines]
    listed += [Path(name.strip(), inside) for name, text in lines for inside in re.findall(r"; (\w+)/:", text)]
    assert sorted(listed) == sorted(folders)
    root = re.findall(r"\w+", re.split(r"\n  [a-z]", contributing[contributing.index("\nroofmodel/  ") :])[0])
    assert {path.stem for path in package.glob("[a-z]*.py")} <= set(root)


def test_the_modules_that_contributing_names_exist() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`(roofmodel/[^`]+)`", contributing)
    assert len(paths) > 15
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_folders_have_at_most_16_modules_and_modules_at_most_600_lines() -> None:
    """Families have a module each; `__init__` and `__main__` are not counted."""
    modules = [path for path in (ROOT / "roofmodel").rglob("*.py") if not path.stem.startswith("__")]
    sizes = Counter(path.parent for path in modules if path.parent.name != "families")
    assert {folder.name: size for folder, size in sizes.items() if size > 16} == {}
    assert [path.name for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > 600] == []
