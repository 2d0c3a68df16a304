"""Homework: answers derived by hand, answer keys that pass the check, hints for common mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import AnswerError, WorkloadError
from roofmodel.homework import answer as views
from roofmodel.homework import homework
from roofmodel.homework.generator import packaged
from roofmodel.homework.homework import Graded, Sheet, is_right, is_within_tolerance
from roofmodel.homework.problem import Problem, Question, unit_of
from roofmodel.models import hub
from roofmodel.report.base import Derivation, as_json
from roofmodel.report.markdown import markdown
from roofmodel.steps.estimate import estimate, totals
from tests.command_line import Done, run

STUDENTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


def fixed(name: str, **chosen: Any) -> Problem:
    """The problem with the given options, or else the first ones."""

    def draw(drawn: str, options: Any) -> Any:
        wanted = chosen.get(drawn)
        named = (option for option in options if isinstance(option, dict) and option[drawn] == wanted)
        return next(named, options[0] if wanted is None else wanted)

    return packaged().problem(name, draw)


def problem(name: str, **chosen: Any) -> dict[str, float | str]:
    """The answers to a problem, in the requested units."""
    return {
        q.id: q.value if isinstance(q.value, str) else pytest.approx(q.in_unit(q.value), rel=1e-4)
        for q in fixed(name, **chosen).questions
    }


def checked(text: str, tmp_path: Path, student: str = "ada", **options: Any) -> dict[str, Graded]:
    """The graded answers of a file, by problem and question."""
    path = tmp_path / "answers.yaml"
    path.write_text(text, encoding="utf-8")
    found = homework.check(str(path), student, **options)
    return {f"{p.id}.{graded.question.id}": graded for p, answers in found.problems for graded in answers}


# --- By hand ----------------------------------------------------------------------------------------


def test_a_triad_has_the_answers_derived_by_hand() -> None:
    # 50 M elements of 8 bytes, three vectors, 2 FLOPs each, at 2039 GB/s of an A100 with 80 GB
    found = problem("stream", kernel="triad", dtype="fp64", device="a100-sxm-80gb", millions=50)
    assert found == {
        "intensity": 1 / 12,  # as in the lecture
        "time": 1200e6 / 2039e9 * 1e6,
        "rate": 2039 / 12,
    }


def test_the_compute_bound_size_of_a_gemm_has_the_answers_derived_by_hand() -> None:
    # 2 n^3 / (3 n^2 2 B) = n/3 = 312 / 1.555; in fp64 2 n^3 / (4 n^2 8 B) = n/16 = 19.5 / 1.555
    found = problem("matmul", kernel="matmul-accumulate", device="a100-sxm-40gb")
    assert found == {"ridge": 312000 / 1555, "fp16": 803, "fp64": 201}  # as in lecture 1
    assert problem("matmul", kernel="matmul", device="a100-sxm-40gb")["fp16"] == 602


def test_a_stencil_has_the_answers_derived_by_hand() -> None:
    found = problem("stencil", dtype="fp32", device="v100-sxm2-32gb", n=500)
    assert found == {"cached": 7 / 8, "uncached": 7 / 32, "time": 500**3 * 8 / 900e9 * 1e3}


def test_a_block_of_gpt2_xl_has_the_answers_derived_by_hand() -> None:
    found = problem("block", model="gpt2-xl", B=2, S=512)
    tokens, hidden = 2 * 512, 1600
    assert found == {
        "flops": (tokens * 24 * hidden**2 + 2 * 4 * 512**2 * hidden) / 1e9,
        "causal": 2 * 2 * 2 * (512 * 513 // 2) * hidden / 1e9,  # two GEMMs of 2 FLOPs, for two prompts
    }


def test_prefill_and_decode_have_the_answers_derived_by_hand() -> None:
    found = problem("phases", model="llama-3.1-8b", device="a100-sxm-80gb", B=4, S=512, U=4)
    d, f, t = 4096, 14336, 4 * 512
    assert found == {
        "prefill": t * d * f / (t * d + d * f + t * f),
        "prefill_bound": "compute",  # above 153
        "decode": 4 * d * f / (4 * d + d * f + 4 * f),
        "decode_bound": "memory",
        "batch": 161,  # 160.7: 1 / (2039/312000 - 1/4096 - 1/14336)
    }


def test_a_kv_cache_has_the_answers_derived_by_hand() -> None:
    found = problem("kv", model="llama-3.1-8b", device="a100-sxm-40gb", dtype="fp16", B=8, S=2048)
    token = 2 * 32 * 8 * 128 * 2  # K and V, layers, heads, elements, fp16
    assert found == {
        "token": token / 1000,
        "batch": token * 8 * 2048 / 1e9,
        "fits": (40 * 2**30 - 2 * 8_030_261_248) // (token * 2048),
    }


def test_a_decode_has_the_answers_derived_by_hand() -> None:
    found = problem("decode", model="llama-3.1-8b", device="h100-sxm", B=16, C=2048)
    weights = 2 * (8_030_261_248 - 128_256 * 4096 + 16 * 4096)  # all of the head, and 16 rows of the embedding table
    cache = 16 * 2049 * 131_072
    assert found == {"weights": weights / 1e9, "cache": cache / 1e9, "rate": 16 / ((weights + cache) / 3.35e12)}


def test_counters_have_the_answers_derived_by_hand() -> None:
    counts = dict(fadd=100, fmul=200, ffma=300, hadd=10, hmul=20, hfma=400)
    found = problem("counters", **counts, bytes=1000)
    assert found == {"fp32": 0.9, "fp16": 1.66, "intensity": 2.56 / 10}  # 100 + 200 + 600; 20 + 40 + 1600; 10 GB


def test_the_achieved_fraction_has_the_answers_derived_by_hand() -> None:
    # 2 x 4096^3 / 312 TFLOP/s = 440.51 us; half of it was achieved: 881.0 us
    found = problem("achieved", device="a100-sxm-80gb", n=4096, share=50)
    assert found == {"bound": 440.509, "rate": 2 * 4096**3 / 881.0e-6 / 1e12, "fraction": 50.001}


def test_a_convolution_has_the_answers_derived_by_hand() -> None:
    found = problem("convolution", layer="stage2.spatial", device="v100-sxm2-32gb", B_img=8)
    results, filters = 8 * 28**2 * 128, 9 * 128 * 128  # 3 x 3 filter, 128 to 128 channels, 28 x 28 pixels
    assert found == {
        "flops": 2 * results * 9 * 128 / 1e9,
        "intensity": 2 * results * 9 * 128 / (2 * (2 * results + filters)),  # input and output have equal sizes
        "bound": "compute",  # 527 FLOP/B; ridge point 139 FLOP/B
    }


def test_a_data_loader_has_the_answers_derived_by_hand() -> None:
    # 4 089 184 256 multiply-adds (4.09 in torchvision's table): 2292.6 images/s at 15 % of 125 TFLOP/s
    found = problem("loader", model="resnet-50", device="v100-sxm2-32gb", share=15, decode=10, w=8)
    rate = 0.15 * 125e12 / (2 * 4_089_184_256)
    assert found == {"images": rate, "workers": 23, "busy": 100 * 8 / (rate / 100)}


@pytest.mark.parametrize("device", ["v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200"])
def test_the_stated_achieved_fraction_is_below_the_bound(device: str) -> None:
    found = totals(estimate(hub.load("resnet-50"), Device.load(device), batch=128).phases[0])
    peak = Device.load(device).matmul_pipe("fp16").peak
    assert found["matmul_flops"] / found["bound_seconds"] / peak > 16 / 100


def test_a_tensor_parallel_mlp_has_the_answers_derived_by_hand() -> None:
    found = problem("shared", model="llama-2-7b-hf", device="h100-sxm", n_gpu=8, T=2048)
    sent = 2 * 7 / 8 * (2048 * 4096 * 2)  # twice around a ring of 8
    work = 3 * 2 * 2048 * 4096 * (11008 // 8)
    assert found == {"sent": sent / 1e6, "talk": sent / 450e9 * 1e6, "work": work / 989.4e12 * 1e6}


def test_data_parallel_training_has_the_answers_derived_by_hand() -> None:
    found = problem("replicas", model="gpt2-xl", device="a100-sxm-80gb", n_gpu=8)
    parameters = 1_557_611_200
    assert found == {
        "state": 16 * parameters / 1e9,
        "sent": 2 * 7 / 8 * 2 * parameters / 1e9,
        "tokens": 2 / 3 * 7 / 8 * 312e12 / 300e9,  # independent of the model
    }


def test_expert_parallelism_has_the_answers_derived_by_hand() -> None:
    # two all-reduces of 64 tokens; 8 tokens with 2 experts each, of which 7/8 are sent to other GPUs and back
    found = problem("experts", n_gpu=8, B=64)
    assert found == {"matrices": 2 * 2 * 7 / 8 * 64 * 8.192, "experts": 2 * 8 * 2 * 7 / 8 * 8.192}


def test_busy_time_and_exposed_communication_have_the_answers_derived_by_hand() -> None:
    # GEMMs from 0 to 300 and 340 to 840 us, an all-reduce from 340 + 0.6 x 500 = 640 to 840 + 100 = 940 us
    found = problem("timeline", first=300, pause=40, second=500, percent=60, tail=100)
    assert found == {"summed": 300 + 500 + 300, "busy": 300 + 600, "exposed": 100, "idle": 100 * 40 / 940}


def test_a_step_that_waits_for_its_loader_has_the_answers_derived_by_hand() -> None:
    # steps of 176 ms, 69 ms of which are loading: one worker prepares a batch in less than the other 107 ms
    found = problem("stall", B_img=32, compute=107, load=69)
    assert found == {"images": 32 / 0.176, "lost": 100 * 69 / 176, "workers": 1, "faster": 32 / 0.107}
    assert problem("stall", B_img=32, compute=100, load=250)["workers"] == 3


def test_a_late_rank_has_the_answers_derived_by_hand() -> None:
    # rank 2 starts 1000 us after the other ranks (40 000 us); the transfer takes 400 us
    found = problem("late", **LATE)
    assert found == {"transfer": 400, "recorded": 1400, "wait": 1000, "gain": 100 * 750 / 41_400}


def test_a_late_launch_has_the_answers_derived_by_hand() -> None:
    # all-reduces start at 2500 + 40 + 800 = 3340 us on two ranks, 300 us later on rank 2 (240 us of gap)
    found = problem("gaps", **GAPS)
    assert found == {"gap": 280, "waiting": 600, "lateness": 200, "share": 80}
    given = fixed("gaps", **GAPS).given
    assert "Rank 2: the first GEMM from 0 to 2500 us, the second launched at 2760 us, from 2780 to 3640 us" in given
    assert "ends on all ranks at 3840 us" in given


def test_slow_kernels_are_not_counted_as_a_late_launch() -> None:
    # of 300 us, 60 us are in the gap and 240 us in the second GEMM of rank 0
    found = problem("gaps", **GAPS | dict(late=0, percent=20))
    assert found == {"gap": 100, "waiting": 600, "lateness": 200, "share": 20}


SLIDE = dict(
    wrong=1, off=540, drift=2400, gap_0=12900, gap_1=11000, gap_2=9800, first_0=9200, first_1=10600, first_2=8200,
    wait_0=80000, wait_1=95000, wait_2=91000, second_0=3500, second_1=6500, second_2=4400,
)  # fmt: skip


def test_the_slide_on_a_stencil_has_the_answers_derived_by_hand() -> None:
    # 7 FLOPs in fp64: 8 numbers of 8 bytes without a cache, 2 with one; the slide says 5 times, not 4
    found = fixed("slide_stencil", q=7, dtype="fp64")
    assert problem("slide_stencil", q=7, dtype="fp64") == {"without": 7 / 64, "with": 7 / 16, "times": 4}
    assert "5 x the FLOP rate" in found.given


def test_the_slide_on_jitter_has_the_answers_derived_by_hand() -> None:
    found = problem("slide_means", **SLIDE)
    mean = (12900 + 11000 + 9800 + 9200 + 10600 + 8200) / 3  # 20567; the slide has 2400 more, with five digits: 22967
    assert found == {"sum": 540, "mean": pytest.approx(mean), "late": pytest.approx(22967 - mean)}
    given = fixed("slide_means", **SLIDE).given
    assert f"{12900 + 9200 + 80000 + 3500}, {11000 + 10600 + 95000 + 6500 - 540} and " in given


# --- Every sheet ------------------------------------------------------------------------------------


@settings(max_examples=4, deadline=None)
@given(student=STUDENTS, name=st.sampled_from(sorted(homework.SHEETS)), seed=st.text(max_size=5))
@example(student="w೭", name="training", seed="1000")  # its exact answer has six digits: 256256
def test_an_answer_key_passes_the_check(student: str, name: str, seed: str, tmp_path_factory: Any) -> None:
    sheet = homework.sheet(student, name, seed)
    for form in ("markdown", "latex", "yaml"):
        path = tmp_path_factory.mktemp("key") / f"key.{form}"
        document = views.document(sheet, key=True)
        code = document.blocks[-1].text
        path.write_text(code if form == "yaml" else Derivation(document).text(form), encoding="utf-8")
        assert homework.check(str(path), student, seed=seed).score == 1


@pytest.fixture(scope="module")
def sheets() -> list[Sheet]:
    return [homework.sheet(f"student {number}", name) for name in sorted(homework.SHEETS) for number in range(2)]


def questions(sheets: list[Sheet]) -> list[tuple[Problem, Question]]:
    return [(each, question) for sheet in sheets for each in sheet.problems for question in each.questions]


def test_sympy_reads_the_formula_of_the_answer(sheets: list[Sheet]) -> None:
    for _, question in questions(sheets):
        expression = question.expression
        found = expression.subs({symbol: question.values[symbol.name] for symbol in expression.free_symbols})
        if isinstance(question.value, str):
            assert question.value == ("compute" if found > 0 else "memory")
        else:
            assert is_within_tolerance(float(found), question.value, 1e-9), question


def test_no_common_mistake_passes() -> None:
    for number in range(40):
        for name in ("lectures", "scaling", "training", "runs"):
            for _, question in questions([homework.sheet(str(number), name, "class")]):
                for mistake in question.mistakes:
                    assert not isinstance(question.value, str)
                    if not is_within_tolerance(mistake.result, question.value, 1e-6):  # with 2 GPUs, n/(n - 1) = 2
                        assert not is_right(question, mistake.result), (question, mistake)


def test_the_embedding_table_is_outside_the_tolerance_of_the_bytes_of_a_decode_step() -> None:
    for number in range(40):
        found = next(p for p in homework.sheet(str(number), "transformers").problems if p.id == "decode")
        for id in ("weights", "rate"):
            question = next(q for q in found.questions if q.id == id)
            whole_table = next(each.result for each in question.mistakes if each.hint.startswith("close"))
            assert abs(whole_table / question.value - 1) > 1.8 * question.tolerance


def test_questions_vary_in_a_class_of_thirty() -> None:
    for name in ("lectures", "scaling", "training", "runs"):
        sheets = [homework.sheet(f"{number}", name, "fall") for number in range(30)]
        for each in zip(*(questions([sheet]) for sheet in sheets), strict=True):
            answers = [question.value for _, question in each]
            where = f"{each[0][0].id}.{each[0][1].id}"
            if isinstance(answers[0], str):
                assert 6 <= answers.count("compute") <= 24, where
            else:
                fewest = 2 if where.startswith("stencil") or where == "stream.intensity" else 6
                assert len(set(answers)) >= fewest, where


def test_a_sheet_contains_no_answer(sheets: list[Sheet]) -> None:
    for sheet in sheets:
        document = views.document(sheet)
        assert '"answer"' not in as_json(document.data())
        assert '"formula"' not in as_json(document.data())
        shown = set(re.findall(r"[\d.]+", markdown(document)))
        keyed = views.document(sheet, key=True).data()["problems"]
        for answer in (question["answer"] for each in keyed for question in each["questions"]):
            if (
                isinstance(answer, float) and len(f"{answer:.4g}") > 3
            ):  # numbers with few digits, such as 0.5 or 32, may be given
                assert not {f"{answer:.{digits}g}" for digits in (4, 5, 6)} & shown


STREAM = dict(kernel="triad", dtype="fp64", device="a100-sxm-80gb", millions=50)  # 1200 MB at 2039 GB/s, 100 MFLOP
LLAMA = dict(model="llama-3.1-8b", device="a100-sxm-40gb", dtype="fp16", B=8, S=2048)  # 32 layers, 8 of 32 heads of 128
H100 = dict(model="llama-3.1-8b", device="h100-sxm", B=16, C=2048)
# 3 x 3 filter, 128 to 128 channels, 28 x 28 pixels
CONVOLUTION = dict(layer="stage2.spatial", device="v100-sxm2-32gb", B_img=8)
LOADER = dict(model="resnet-50", device="v100-sxm2-32gb", share=15, decode=10, w=8)
SHARED = dict(model="llama-2-7b-hf", device="h100-sxm", n_gpu=8, T=2048)
TIMELINE = dict(first=300, pause=40, second=500, percent=60, tail=100)
LATE = dict(late=2, delay=1000, transfer=400) | {f"rank_{rank}": 0 for rank in range(4)}
GAPS = dict(late=2, delay=300, percent=80, transfer=200)
REPLICAS = dict(model="gpt2-xl", device="a100-sxm-80gb", n_gpu=8)


@pytest.mark.parametrize(
    ("name", "drawn", "asked", "wrong", "hint"),
    [
        ("stream", STREAM, "intensity", 50e6 / 1200e6, "a multiply-add is two FLOPs"),
        ("stream", STREAM, "intensity", 100e6 / 800e6, "three move: two are read, one is written"),
        (
            "stream",
            STREAM,
            "intensity",
            2.0 / 3,
            "FLOPs per element",
        ),  # 2 FLOPs / 3 elements, without bytes per element
        ("stream", STREAM, "time", 1200e6 / (2039 * 2**30) * 1e6, "not 2^30"),
        ("stream", STREAM, "time", 100e6 / 9.7e12 * 1e6, "the time of the FLOPs"),  # 9.7 TFLOP/s in fp64
        ("stream", STREAM, "rate", 9700, "the memory limits the rate"),
        ("matmul", dict(kernel="matmul", device="a100-sxm-40gb"), "fp16", 803, "4 moved matrices; here there"),
        # 8 bytes and 312 TFLOP/s, as on a slide
        ("matmul", dict(kernel="matmul-accumulate", device="a100-sxm-40gb"), "fp64", 3211, "which no kernel can"),
        ("stencil", dict(dtype="fp32", device="v100-sxm2-32gb", n=500), "cached", 7 / 4, "the write is missing"),
        ("kv", LLAMA, "token", 32 * 8 * 128 * 2 / 1000, "keys and values"),
        ("kv", LLAMA, "token", 2 * 8 * 128 * 2 / 1000, "for one layer"),
        ("kv", LLAMA, "token", 2 * 32 * 32 * 128 * 2 / 1000, "the query heads"),
        ("kv", LLAMA, "token", 2 * 32 * 8 * 128 * 2 / 1024, "KiB"),
        ("kv", LLAMA, "batch", 2 * 32 * 8 * 128 * 2 * 2048 / 1e9, "for one sequence"),
        ("kv", LLAMA, "fits", 40 * 2**30 // (131072 * 2048), "the weights need memory"),
        ("kv", LLAMA, "fits", (40 * 10**9 - 2 * 8_030_261_248) // (131072 * 2048), "memory is in GiB"),
        ("decode", H100, "weights", 2 * 8_030_261_248 / 1e9, "only a few rows"),
        ("decode", H100, "cache", 2049 * 131072 / 1e9, "for one sequence"),
        (
            "block",
            dict(model="gpt2-xl", B=2, S=512),
            "flops",
            1024 * 24 * 1600**2 / 1e9,
            "GEMMs without weights",
        ),
        ("convolution", CONVOLUTION, "flops", 2 * 8 * 28**2 * 128 * 128 / 1e9, "over all positions of the filter"),
        ("convolution", CONVOLUTION, "flops", 2 * 28**2 * 128 * 128 * 9 / 1e9, "for one image"),
        ("loader", LOADER, "images", 0.15 * 125e12 / 4_089_184_256, "a multiply-add is two FLOPs"),
        ("loader", LOADER, "busy", 8 / 22.926, "this is a fraction"),
        ("shared", SHARED, "sent", 7 / 8 * 2048 * 4096 * 2 / 1e6, "goes around twice"),
        ("shared", SHARED, "sent", 2048 * 4096 * 2 / 1e6, "the size of the tensor"),
        ("shared", SHARED, "work", 2 * 2 * 2048 * 4096 * 11008 / 8 / 989.4e12 * 1e6, "there are three"),
        ("replicas", REPLICAS, "state", 4 * 1_557_611_200 / 1e9, "the optimizer state is missing"),
        ("replicas", REPLICAS, "tokens", 2 * 7 / 8 * 312e12 / 300e9, "for the forward pass alone"),
        ("timeline", TIMELINE, "busy", 300 + 500 + 300, "counts once"),
        ("timeline", TIMELINE, "exposed", 300, "the whole all-reduce"),
        ("timeline", TIMELINE, "idle", 100 * 40 / 900, "not by the busy time"),
        ("stall", dict(B_img=32, compute=107, load=69), "images", 32 / 0.107, "leaves out the loading time"),
        ("stall", dict(B_img=32, compute=100, load=250), "workers", 1, "the shorter step"),
        ("late", LATE, "transfer", 1400, "waiting time"),
        ("late", LATE, "recorded", 400, "while it waits"),
        ("gaps", GAPS, "gap", 260, "the gap ends with the start"),
        ("gaps", GAPS, "waiting", 2 * 500 + 200, "includes the transfer"),
        ("gaps", GAPS, "lateness", 300, "use the mean"),
        ("gaps", GAPS, "share", 100 * 280 / 200, "the whole gap"),
        ("gaps", GAPS, "share", 20, "the share of the kernels"),
        ("slide_crossover", dict(device="a100-sxm-40gb"), "crossover", 16 * 312e12 / 1.555e12, "the slide's number"),
        ("slide_crossover", dict(device="a100-sxm-40gb"), "crossover", 4 * 312e12 / 1.555e12, "C is written"),
        ("slide_stencil", dict(q=7, dtype="fp64"), "times", 5, "the slide's number"),
        ("slide_parameters", dict(model="gpt2"), "matrices", 12 * 12 * 768**2, "the table of words is missing"),
        ("slide_means", SLIDE, "mean", 22967, "the slide's number"),
        ("experts", dict(n_gpu=8, B=64), "experts", 2 * 64 * 2 * 7 / 8 * 8.192, "for the tokens of all users"),
        ("achieved", dict(device="a100-sxm-80gb", n=4096, share=50), "bound", 2 * 4096**3 / 624e12 * 1e6, "sparse"),
        ("achieved", dict(device="a100-sxm-80gb", n=4096, share=50), "fraction", 881.0 / 440.509 * 100, "invert it"),
    ],
)
def test_a_common_mistake_is_recognized(name: str, drawn: dict[str, Any], asked: str, wrong: float, hint: str) -> None:
    """`wrong` is the result of the mistake, derived by hand."""
    question = next(q for q in fixed(name, **drawn).questions if q.id == asked)
    answer = float(wrong * unit_of(question.unit).factor)
    assert not isinstance(question.value, str)
    assert not is_within_tolerance(answer, question.value, question.tolerance)
    assert hint in homework.hint_for(question, answer)


def hint(name: str, asked: str, answer: float, **drawn: Any) -> str | None:
    """The hint for a number in base units; None for the right answer."""
    question = next(q for q in fixed(name, **drawn).questions if q.id == asked)
    assert not isinstance(question.value, str)
    return (
        None if is_within_tolerance(answer, question.value, question.tolerance) else homework.hint_for(question, answer)
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (270, "the GPU still waits"),
        (542, "a multiply-add is two FLOPs"),
        (1694, "at 100 % of the peak"),
        (275, "not a common mistake"),  # close to the right answer
    ],
)
def test_the_number_of_workers_must_be_exact(answer: float, expected: str) -> None:
    # 0.16 x 989.4 TFLOP/s / (2 x 4 089 184 256 multiply-adds) x 14 ms = 270.99
    drawn = dict(model="resnet-50", device="h100-sxm", share=16, decode=14)
    assert hint("loader", "workers", 271, **drawn) is None
    assert expected in str(hint("loader", "workers", answer, **drawn))


def test_a_mistake_that_gives_the_right_answer_has_no_hint() -> None:
    # 8 workers deliver 8 / 14 ms = 571 images/s; at 16 % of its peak, a V100 processes 569 (ViT) or 2445 (ResNet-50)
    waits = dict(device="v100-sxm2-32gb", share=16, decode=14, w=8)
    waiting = "this is the fraction of the time that it waits"
    assert waiting in str(hint("loader", "busy", 1 - 571.43 / 2445.5, model="resnet-50", **waits))
    assert waiting not in str(hint("loader", "busy", 0, model="vit-base-patch16-224", **waits))
    # with two GPUs, an all-reduce sends as many bytes as the tensor has
    assert hint("shared", "sent", 2048 * 4096 * 2, **SHARED | dict(n_gpu=2)) is None


def test_a_hint_names_only_quantities_of_the_formula(sheets: list[Sheet]) -> None:
    # the size of the KV cache for one token, 2 x 2 L K h, does not depend on batch and prompt
    assert hint("kv", "token", 32.8e3, **LLAMA) == (
        "not a common mistake; the answer depends on: layers; key-value heads; the head size; bytes per element"
    )
    key = markdown(views.document(sheets[0], key=True))
    assert {"n", "b", "L", "K"} <= set(re.findall(r"(\w+) is ", key.partition("Symbols: ")[2].partition("\n")[0]))
    for _, question in questions(sheets):
        assert set(question.used) == {symbol.name for symbol in question.expression.free_symbols}


def test_a_sheet_is_reproducible_and_differs_between_students_and_seeds(sheets: list[Sheet]) -> None:
    assert homework.sheet("student 0") == sheets[0]
    fingerprints = {sheet.fingerprint for sheet in [*sheets, homework.sheet("student 0", seed="x")]}
    assert len(fingerprints) == len(sheets) + 1


def test_draws_are_stable() -> None:
    # coreutils: printf '["s", "ada", "n"]' | b2sum -l 64; distributed sheets must stay reproducible
    assert homework.hashed_draw("s", "ada")("n", range(1000)) == 0x7BCF89A7754394E8 % 1000


# --- A check ----------------------------------------------------------------------------------------


def scaled_answer(sheet: Sheet, of: str, factor: float) -> str:
    """The right answer to a question, times a factor."""
    name, _, which = of.partition(".")
    found = next(q for p, q in questions([sheet]) if (p.id, q.id) == (name, which))
    assert not isinstance(found.value, str)
    return f"answers:\n  {name}:\n    {which}: {factor * found.in_unit(found.value):.6g}\n"


@pytest.mark.parametrize(
    ("asked", "factor", "hint"),
    [
        ("stream.intensity", 0.5, "a multiply-add is two FLOPs"),
        ("block.flops", 0.5, "a multiply-add is two FLOPs"),
        ("achieved.rate", 0.5, "a multiply-add is two FLOPs"),
        ("kv.batch", 1e9 / 2**30, "this is in GiB"),
        ("kv.token", 8, "bits and bytes"),
        ("kv.token", 0.5, "keys and values"),
        ("block.causal", 1.998, "S(S+1)/2"),
        ("stencil.time", 1000, "wrong by a power of 1000"),
        ("stencil.time", 1.3, "the answer depends on: the size"),
    ],
)
def test_a_wrong_answer_has_a_hint(asked: str, factor: float, hint: str, sheets: list[Sheet], tmp_path: Path) -> None:
    found = checked(scaled_answer(sheets[0], asked, factor), tmp_path, "student 0")[asked]
    assert not found.right
    assert found.hint is not None
    assert hint in found.hint


@pytest.mark.parametrize("factor", [0.985, 1, 1.015])
def test_an_answer_within_the_tolerance_is_right(factor: float, sheets: list[Sheet], tmp_path: Path) -> None:
    assert checked(scaled_answer(sheets[0], "kv.batch", factor), tmp_path, "student 0")["kv.batch"].right


def test_a_formula_without_the_factor_two_of_hfma_is_recognized(tmp_path: Path) -> None:
    sheet = homework.sheet("ada", "measuring")
    values = next(q.values for p, q in questions([sheet]) if (p.id, q.id) == ("counters", "fp16"))
    wrong = 2 * sum(values.values()) / 1e9  # the formula of a slide: twice all instructions
    text = f"sheet: measuring\nanswers: {{counters: {{fp16: {wrong} GFLOP}}}}\n"
    hint = checked(text, tmp_path)["counters.fp16"].hint
    assert hint is not None
    assert "a factor of two is missing" in hint


BAD = [
    ("", "answers.yaml: expected a homework sheet with answers, got an empty file"),
    ("answers: [1, 2]\n", "answers.yaml:1: answers must be a mapping"),
    ("student: ada\n", "it has no line 'answers:'"),
    ("answers:\n  srm:\n    time: 1\n", "answers.yaml:2: unknown key 'srm'; did you mean 'stream'?"),
    ("answers:\n  stream:\n    tm: 1\n", "answers.yaml:3: unknown key 'tm'; did you mean"),
    ("answers: {stream: {tme: 1}}\n", "answers.yaml:1: unknown key 'tme'; did you mean 'time'?"),
    ("answers: {stream: 3}\n", "answers.yaml:1: answers.stream must be a mapping"),
    ("student: bob\nanswers:\n", "answers.yaml:1: these are answers of student 'bob', not of 'ada'; check student"),
    ("sheet: lecture\nanswers:\n", "answers.yaml:1: unknown sheet 'lecture'; did you mean 'lectures'?"),
    ("made: 12345678\nanswers:\n", "answers.yaml:1: made is '12345678', but"),
    ("answers: {\n", "not YAML"),
    (
        "# Problems: lectures, ada\n\nA: b\n* c\n",
        "the block of answers is missing; it belongs under 'Your answers', between ``` lines",
    ),
    ("# Mine\n\n| a |\n|---|\n\nstream:\n  time: 3\n", "the block of answers is missing"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_an_invalid_file_of_answers_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    if text.endswith("answers:\n"):
        text = text.replace("answers:\n", "answers: {}\n")
    with pytest.raises(AnswerError) as raised:
        checked(text, tmp_path)
    assert message in str(raised.value)


def test_unusable_answers_are_marked_and_the_others_are_graded(tmp_path: Path) -> None:
    sheet = homework.sheet("ada")
    right = next(q.value for p, q in questions([sheet]) if (p.id, q.id) == ("achieved", "rate"))
    assert isinstance(right, float)
    text = f"""\
# Sheet
```
answers:
  stream: {{intensity: many, time: "3;5", rate: 1e308}}
  matmul: {{fp16: "1,23,7", fp64: [1, 2], ridge: 3 ms}}
  phases: {{prefill: nan, decode: 1/0, decode_bound: memroy}}
  achieved: {{rate: {right / 1e12} TFLOP/s}}
```
"""
    found = checked(text, tmp_path)
    unusable = {name for name, graded in found.items() if not graded.understood}
    assert unusable == {
        "stream.intensity", "stream.time", "stream.rate", "matmul.fp16", "matmul.fp64", "matmul.ridge",
        "phases.prefill", "phases.decode", "phases.decode_bound",
    }  # fmt: skip
    assert [name for name, graded in found.items() if graded.right] == ["achieved.rate"]
    assert found["matmul.fp16"].answer == "1,23,7"
    assert "give a number in rows" in (found["matmul.fp16"].hint or "")
    document = views.report(homework.check(str(tmp_path / "answers.yaml"), "ada"))
    table = markdown(document)
    assert "| matmul.fp16 | 1,23,7 | rows | unread |" in table
    assert "phases.decode_bound: it must be one of compute, memory" in table
    assert "| phases.decode_bound | memroy | compute or memory | unread |" in table


def test_answers_are_a_dictionary_too() -> None:
    key = views.document(homework.sheet("ada", "measuring"), key=True).data()
    answers = {p["id"]: {q["id"]: q["answer"] for q in p["questions"]} for p in key["problems"]}
    assert homework.check(answers, "ada", "measuring").score == 1
    blank = views.document(homework.sheet("ada", "measuring")).data()  # as `--format json` prints it
    assert homework.check({**blank, "answers": answers}, "ada").score == 1
    answers["stream"]["time"] *= 3
    assert homework.check(answers, "ada", "measuring").score == pytest.approx(8 / 9)
    with pytest.raises(AnswerError, match=r"unknown key 'strem'; did you mean 'stream'\?"):
        homework.check({"strem": {}}, "ada", "measuring")


def test_an_answer_closer_to_a_common_mistake_is_wrong() -> None:
    # Llama-2-13b: 26.0 GB of weights; without the table of 32000 x 5120 that a decode step does not read, 25.7
    question = next(
        q for q in fixed("decode", model="llama-2-13b-hf", device="h200", B=2).questions if q.id == "weights"
    )
    wide = question._replace(tolerance=0.02)
    assert is_right(wide, 25.71e9)
    assert is_right(wide, 25.4e9)
    assert not is_right(wide, 26.03e9)
    assert "only a few rows" in homework.hint_for(wide, 26.03e9)


@pytest.mark.parametrize("student", ["", "a\nb", "x" * 101])
def test_an_unusable_student_is_refused(student: str) -> None:
    with pytest.raises(WorkloadError, match="student is"):
        homework.sheet(student, "lectures")


# --- The commands -----------------------------------------------------------------------------------


def roof(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Done:
    return run(("homework", *arguments), monkeypatch, capsys)


def test_a_sheet_is_written_filled_in_and_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sheet, command = str(tmp_path / "sheet.md"), ("--student", "ada", "--seed", "secret of a class")
    status, out, err = roof(
        capsys, monkeypatch, "new", *command, "--sheet", "rooflines", "-o", sheet, "--format", "json"
    )
    assert (status, err) == (0, f"wrote {sheet}\n")
    assert [each["id"] for each in json.loads(out)["problems"]] == list(homework.SHEETS["rooflines"])
    text = Path(sheet).read_text(encoding="utf-8")
    Path(sheet).write_text(text.replace("cached:", "cached: 1e9", 1).replace("ridge:", "ridge: 1 FLOP/B"), "utf-8")
    status, out, err = roof(capsys, monkeypatch, "check", sheet, *command, "--format", "json")
    assert (status, err) == (0, "")  # wrong answers are not errors
    found = json.loads(out)
    assert (found["schema"], found["score"], found["asked"]) == ("roofmodel.homework-check/1", 0, 12)
    assert found["problems"][1]["questions"][0]["answer"] == 1
    status, out, err = roof(capsys, monkeypatch, "check", sheet, "--student", "ada")
    assert status == 2
    assert f"error: {sheet}:" in err
    assert "another --seed" in err


@pytest.mark.parametrize("form", ["md", "tex", "json"])
def test_a_sheet_in_every_format_is_filled_in_and_checked(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sheet, command = tmp_path / f"sheet.{form}", ("--student", "ada")
    new = ("new", *command, "--sheet", "measuring", "-o", str(sheet))
    assert [roof(capsys, monkeypatch, *new)[0] for _ in range(2)] == [0, 0]  # no answers yet
    counters = next(p for p in homework.sheet("ada", "measuring").problems if p.id == "counters")
    right = next(q.value for q in counters.questions if q.id == "fp32") / 1e9
    blank = '"fp32": null' if form == "json" else "fp32:"
    text = sheet.read_text(encoding="utf-8")
    assert text.count(blank) == 1
    sheet.write_text(text.replace(blank, blank.replace("null", "").rstrip() + f" {right}"), encoding="utf-8")
    status, out, err = roof(capsys, monkeypatch, "check", str(sheet), *command, "--format", "json")
    assert (status, err, json.loads(out)["right"]) == (0, "", 1)
    assert roof(capsys, monkeypatch, *new)[0] == 2  # now the sheet has answers


def test_a_key_without_a_seed_gives_a_note(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    new = ("new", "--student", "ada", "--sheet", "measuring", "--key")
    assert roof(capsys, monkeypatch, *new)[2] == "note: without --seed, students can print this key, too\n"
    assert roof(capsys, monkeypatch, *new, "--seed", "of a class in spring")[2] == ""


def test_a_sheet_with_answers_is_replaced_only_with_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sheet, key = tmp_path / "sheet.md", tmp_path / "key.md"
    new = ("new", "--student", "ada", "--sheet", "measuring", "-o", str(sheet))
    assert [roof(capsys, monkeypatch, *new)[0] for _ in range(2)] == [0, 0]  # no answers yet
    for answer in ("fp32: 3", "fp32: [", "fp32: 1: 2"):
        text = sheet.read_text(encoding="utf-8").replace("fp32:", answer, 1)
        sheet.write_text(text, encoding="utf-8")
        status, out, err = roof(capsys, monkeypatch, *new)
        assert (status, out) == (2, "")
        assert err == f"error: {sheet}: is a sheet with answers; give another name, or --force to replace it\n"
        assert sheet.read_text(encoding="utf-8") == text
        assert roof(capsys, monkeypatch, *new, "--force")[0] == 0
    for _ in range(2):  # an answer key may be replaced
        assert roof(capsys, monkeypatch, *new[:-1], str(key), "--key")[0] == 0


def test_the_help_lists_all_sheets() -> None:
    for function in (roofmodel.homework, roofmodel.homework_class):
        assert all(name in str(function.__doc__) for name in homework.SHEETS)


def test_a_sheet_states_how_it_is_checked() -> None:
    without_seed, with_seed = (markdown(views.document(homework.sheet("ada", seed=seed))) for seed in ("", "secret"))
    assert 'Check them with roofmodel.check_homework("FILE", "ada").' in without_seed
    assert "check_homework" not in with_seed
    assert "The lecturer checks them." in with_seed


def test_the_key_is_printed_with_the_seed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOF_HOMEWORK_SEED", "secret")
    status, out, _ = roof(capsys, monkeypatch, "new", "--student", "ada", "--sheet", "measuring", "--key")
    assert status == 0
    assert "4F + 2A + 2M = 4 ·" in out
    assert f'made: "{homework.sheet("ada", "measuring", "secret").fingerprint}"' in out


def test_a_missing_file_of_answers_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = roof(capsys, monkeypatch, "check", "absent.md", "--student", "ada")
    assert (status, out) == (2, "")
    assert err == "error: absent.md: no such file; give a homework sheet with answers\n"


def test_a_pdf_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "sheet.pdf"
    path.write_bytes(b"%PDF-1.7")
    with pytest.raises(AnswerError, match=r"sheet\.pdf: a PDF; give a homework sheet with answers as a text file"):
        homework.check(str(path), "ada")
