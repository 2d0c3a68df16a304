"""The option `routing` of estimates, sweeps and plans."""

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.steps.routing import read_routing
from tests.profiles.samples import measured, needs_measured

MIXTRAL = "mixtral-8x7b-v0.1"
EXPERT_BYTES = 3 * 4096 * 14336 * 2  # gate, up and down in fp16


def decode(**options: Any) -> dict[str, Any]:
    return roofmodel.estimate(MIXTRAL, "h100", phase="decode", tp=2, **options).to_dict()


def weight_bytes(document: dict[str, Any]) -> int:
    found: int = document["phases"][0]["totals"]["weight_bytes"]
    return found


def written(folder: Path, text: str, name: str = "counts.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_identical_prompts_read_two_experts_per_layer_in_a_decode(batch: int) -> None:
    alone, uniform, same = (
        weight_bytes(decode(batch=n, routing=routing))
        for n, routing in ((1, "uniform"), (batch, "uniform"), (batch, "same"))
    )
    assert same == alone + (batch - 1) * 4096 * 2  # one row of the embedding per sequence
    touched = 8 * (1 - (1 - 2 / 8) ** batch)
    assert uniform - same == pytest.approx(
        32 * (touched - 2) * EXPERT_BYTES / 2
    )  # 32 layers, half of the experts on each GPU


def test_routing_changes_neither_flops_nor_parameters(tmp_path: Path) -> None:
    counts = written(tmp_path, "5\n3\n1\n1\n1\n1\n1\n1\n")
    documents = [decode(batch=8, routing=routing) for routing in ("uniform", "same", counts)]
    assert len({document["phases"][0]["totals"]["matmul_flops"] for document in documents}) == 1
    assert len({document["model"]["active_parameters"] for document in documents}) == 1
    assert [document["workload"]["routing"] for document in documents] == ["uniform", "same", "counts.csv"]
    assert all(any("routing" in note for note in document["notes"]) for document in documents)


def test_a_model_without_experts_ignores_routing() -> None:
    document = roofmodel.estimate("gpt2", "a100", routing="same").to_dict()
    assert document["workload"]["routing"] is None
    assert "routing is ignored: openai-community/gpt2 has no experts" in document["notes"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line.txt", "5 3 1 1\n"),
        ("column.csv", "count\n5\n3\n1\n1\n"),
        ("experts.csv", "expert,count\n1,3\n0,5\n3,1\n2,1\n"),
        ("from_one.csv", "expert;count\n1;5\n2;3\n3;1\n4;1\n"),
        ("list.json", "[0.5, 0.3, 0.1, 0.1]"),
        ("object.json", '{"0": 50, "1": 30, "2": 10, "3": 10}'),
    ],
)
def test_a_distribution_may_be_a_line_a_column_or_json(tmp_path: Path, name: str, text: str) -> None:
    found = read_routing(written(tmp_path, text, name))
    assert found.shares == pytest.approx((0.5, 0.3, 0.1, 0.1))
    assert found.name == name


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("0.3 0.1 0.1 0.1 0.1 0.1 0.1 0.1", "the file gives the probability of each expert in all layers"),
        (
            "0.75 0.1 0.1 0.1 0.1 0.1 0.1 0.1",
            "the file gives the probability of each expert in all layers; the numbers have the sum 1.45 and were "
            "scaled to a sum of 1",
        ),
        (
            "5 3 1 1 1 1 1 1000000",
            "the numbers in the file are taken as counts of tokens (1000013 in total); their shares are the "
            "probabilities of the experts in all layers",
        ),
    ],
)
def test_a_note_states_how_the_numbers_became_probabilities(text: str, note: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    assert f'routing="{path}": {note}' in decode(routing=path)["notes"]
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", text)  # a sweep renames files of the same name
    notes = roofmodel.sweep(MIXTRAL, "h100", phase="decode", tp=2, routing=[path, other]).to_dict()["notes"]
    assert sum(note in line for line in notes) >= 1


@pytest.mark.parametrize("content", ["5 3 1 1".encode("utf-16"), b"\x80\x04\x95\xff"])
def test_a_file_that_is_not_utf_8_is_refused_with_a_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "counts.bin").write_bytes(content)
    with pytest.raises(WorkloadError, match=r"counts\.bin: not text in UTF-8; save it as UTF-8; a file has one prob"):
        read_routing(str(tmp_path / "counts.bin"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no numbers"),
        ("0\n0\n", "the sum of its numbers must be above 0"),
        ("5\n-3\n", "line 2: '-3' is not a number of at least 0"),
        ("5\nmany\n", "line 2: 'many' is not a number of at least 0"),
        ("5\nnan\n", "line 2: 'nan' is not a number of at least 0"),
        ("1,2,3\n4,5,6\n", "line 1 has 3 values"),
        ("expert,count\n0,5\n0,3\n", "line 3: '0' occurs twice"),
        ("expert,count\n0,5\n2,3\n", "expert 1 is missing"),
        ("[5, true]", "value 2: True is not a number of at least 0"),
        ("[5, 3", "invalid JSON"),
    ],
)
def test_an_invalid_distribution_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_routing(written(tmp_path, text))
    assert f"routing: counts.csv: {problem}" in str(error.value).replace(f"{tmp_path}/", "")
    assert "5,3,1,1" in str(error.value)


def test_a_distribution_has_a_number_for_each_expert(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"counts\.csv: 4 numbers, but mistralai/Mixtral-8x7B-v0\.1 has 8 experts"):
        decode(routing=written(tmp_path, "5,3,1,1"))
    with pytest.raises(WorkloadError, match=r"1 numbers above 0, but a token of .* uses 2 experts"):
        decode(routing=written(tmp_path, "5,0,0,0,0,0,0,0"))


def test_an_unknown_routing_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match=r"'sane' is neither a known value nor a file; did you mean 'same'\? known"):
        read_routing("sane")


def test_a_sweep_has_a_row_for_each_routing(tmp_path: Path) -> None:
    counts = written(tmp_path, "5\n3\n1\n1\n1\n1\n1\n1\n")
    rows = roofmodel.sweep(
        MIXTRAL, "h100", phase="decode", tp=2, batch=8, routing=["uniform", "same", counts]
    ).to_dict()
    found = {row["routing"]: row["bound_seconds"] for row in rows["rows"]}
    assert found["same"] < found["counts.csv"] < found["uniform"]


def test_files_with_the_same_name_and_a_mode_each_have_a_row_of_a_sweep(tmp_path: Path) -> None:
    files = []
    for folder, name, first in (("a", "s.csv", 5), ("b", "s.csv", 2), ("a", "same", 1)):
        (tmp_path / folder).mkdir(exist_ok=True)
        files.append(written(tmp_path / folder, f"{first} 3 1 1 1 1 1 1\n", name))
    rows = roofmodel.sweep(
        MIXTRAL, "h100", phase="decode", batch=8, tp=2, ep=2, routing=[*files, "same", "uniform"]
    ).to_dict()["rows"]
    assert [row["routing"] for row in rows] == [*files, "same", "uniform"]
    assert len({row["bound_seconds"] for row in rows}) == 5


def test_a_file_given_twice_has_one_row_of_a_sweep(tmp_path: Path) -> None:
    counts = written(tmp_path, "5 3 1 1 1 1 1 1\n")
    rows = roofmodel.sweep(MIXTRAL, "h100", phase="decode", tp=2, routing=[counts, Path(counts)]).to_dict()["rows"]
    assert [row["routing"] for row in rows] == ["counts.csv"]


@pytest.mark.parametrize(("routing", "ignored"), [("uniform", False), ("same", True), (["uniform", "same"], True)])
def test_a_sweep_of_a_model_without_experts_states_that_it_ignores_a_routing(routing: Any, ignored: bool) -> None:
    notes = roofmodel.sweep("gpt2", "a100", phase="decode", routing=routing).to_dict()["notes"]
    assert any("routing is ignored" in note for note in notes) == ignored


def test_a_path_with_the_name_of_a_mode_is_read_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "50 3 1 1 1 1 1 1\n", "same")
    rows = roofmodel.sweep(MIXTRAL, "h100", phase="decode", tp=2, routing=["same", Path("same")]).to_dict()["rows"]
    assert [row["routing"] for row in rows] == ["same", "./same"]


def test_a_long_value_that_is_no_file_is_refused() -> None:
    with pytest.raises(WorkloadError, match="is neither a known value nor a file"):
        read_routing(",".join(["1"] * 200))


def test_messages_state_the_given_path(tmp_path: Path) -> None:
    counts = written(tmp_path, "5,3,1,1")
    with pytest.raises(WorkloadError) as error:
        decode(routing=counts)
    assert f"{counts}: 4 numbers" in str(error.value)


def test_a_derivation_of_counts_refuses_a_file(tmp_path: Path) -> None:
    counts = written(tmp_path, "5 3 1 1 1 1 1 1\n")
    for ep in (1, 2):
        with pytest.raises(WorkloadError, match=r"counts\.csv.?: a derivation has no symbols .* routing=.?uniform"):
            roofmodel.explain(MIXTRAL, "h100", phase="decode", tp=2, ep=ep, routing=counts)


def test_a_crossover_uses_the_distribution_of_a_file(tmp_path: Path) -> None:
    counts = written(tmp_path, "5 3 1 1 1 1 1 1\n")
    options: dict[str, Any] = {"over": "batch", "phase": "decode", "tp": 2, "ep": 2, "routing": counts}
    assert roofmodel.crossover(MIXTRAL, "h100", **options).to_markdown()


def test_a_plan_of_identical_prompts_serves_more_tokens_in_time() -> None:
    common: dict[str, Any] = {"gpus": 2, "isl": 64, "osl": 8, "tp": 2, "tpot": "12ms", "dtype": "bf16", "kv": "bf16"}
    uniform, same = (roofmodel.plan(MIXTRAL, "h100", **common, routing=name).to_dict() for name in (None, "same"))
    assert (uniform["workload"]["routing"], same["workload"]["routing"]) == ("uniform", "same")
    assert same["candidates"][0]["tokens_per_second"] > 1.5 * uniform["candidates"][0]["tokens_per_second"]


@needs_measured
def test_served_batches_of_mixtral_are_slower_than_the_bound_of_the_same_experts() -> None:
    """Prompts of TensorRT-LLM's benchmark use few experts: measured times are below the bound of uniform routing."""
    devices = {"A100-SXM-80GB": "a100", "H200": "h200", "L40S": "l40s"}
    with gzip.open(measured("ops/trtllm_e2e.csv.gz"), "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "ixtral" in row["model"] and row["gpu_norm"] in devices]
    rows = [row for row in rows if row["precision"] == "fp16" and row["batch"] in ("1", "8", "32")]
    faster_than_uniform = 0
    for row in rows[::4]:
        batch, prompt, tp = (int(float(row[name])) for name in ("batch", "input_len", "tp"))
        common: dict[str, Any] = {"batch": batch, "seq": prompt, "tp": tp, "engine": "vllm"}
        device = devices[row["gpu_norm"]]
        for measured_ms, phase in ((row["ttft_ms"], "prefill"), (row["tpot_ms"], "decode")):
            uniform, same = (
                roofmodel.estimate(MIXTRAL, device, phase=phase, routing=name, **common).totals[phase]["bound_seconds"]
                for name in ("uniform", "same")
            )
            assert float(measured_ms) / 1e3 > same
            faster_than_uniform += float(measured_ms) / 1e3 < uniform
    assert faster_than_uniform > 0
