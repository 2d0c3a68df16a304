"""The page of `roof explore` in headless Chromium without a network: its numbers equal the estimates of Python."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from roofmodel.counting.tensors import COMPUTE_FORMATS, FORMATS
from roofmodel.devices.device import Device
from roofmodel.explore import traced_estimate
from roofmodel.explore.devices import describe_device
from roofmodel.explore.nodes import UniqueRecords
from roofmodel.explore.traced_estimate import (
    Variant,
    chooses_logits,
    engines,
    lengths,
    min_bits,
    smallest_length,
    variants,
)
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.units import parse
from roofmodel.options.workload import DECLARED
from roofmodel.steps.estimate import estimate
from roofmodel.steps.parallelism import expert_groups_nest, tp_by_ep
from tests.browser import opened, run
from tests.explore.on_the_page import divided, memory, without_kernels
from tests.explore.variants import without_training

HOSTILE = "<img src=x onerror=alert(1)> &amp; <!--<script> gemm"
PACKAGED = ("gpt2", "Mixtral-8x7B-v0.1", "gemma-2-2b", "t5-small", "mamba-130m-hf", "resnet-18")
WITH_MANY_CASES = ("mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-2b", "google-t5/t5-small")
DEVICES = ("a100", "h100", "v100", "mi300x", "rtx3090")
CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 2048}  # fmt: skip
# MLA in dense layers only
LATENT = CONFIG | {"model_type": "deepseek_v2", "kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 16,
                   "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 2, "n_routed_experts": 4,
                   "num_experts_per_tok": 2, "moe_intermediate_size": 32}  # fmt: skip

LINKLESS = """
name: A card without links
multiprocessors: 100
clocks: {boost: 1000 MHz}
pipes: {tensor_fp16: {peak: 100 TFLOP/s}, fp32: {peak: 10 TFLOP/s}}
memory: {dram: {bandwidth: 1000 GB/s, capacity: 24 GiB}, l2: {capacity: 4 MiB}}
like: a100-sxm-80gb
"""


def shown_variants(arch: Architecture) -> list[Variant]:
    """The variants of a model on the page: all, or fewer for models that take long.

    `test_traced_estimate.py` has training steps of such models.
    """
    return list(without_training(arch) if arch.name in WITH_MANY_CASES else variants(arch))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of-somebody")
    config, page = folder / f"{HOSTILE}.json", folder / "page.html"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    latent = folder / "latent.json"
    latent.write_text(json.dumps(LATENT), encoding="utf-8")
    linkless = folder / "linkless.yaml"
    linkless.write_text(LINKLESS, encoding="utf-8")
    several, *others = ",".join(DEVICES[:2]), *DEVICES[2:], str(linkless)
    devices = ["--hw", several, *(word for device in others for word in ("--hw", device))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_estimate, "variants", shown_variants)
        assert run("explore", *PACKAGED, str(latent), str(config), *devices, "-o", str(page), monkeypatch=patch) == 0
    return page


@pytest.fixture
def page(chromium: Any, made: Path) -> Iterator[Any]:
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}]  # marks are at their final positions
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": still})
    with opened(chromium, f"{made.as_uri()}#theme=light"):
        wait(chromium, "return Boolean(globalThis.roof)")
        yield chromium
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def wait(page: Any, condition: str) -> None:
    """Wait until the condition is true; the data is decompressed after the page has loaded."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 30, 0.02).until(lambda page: page.execute_script(condition))


def moved(page: Any, **situation: Any) -> dict[str, Any]:
    """The page's document for these settings, with ints where Python has ints."""
    script = """roof.update(arguments[0]);
    const whole = (_, x) => typeof x === "bigint" ? { whole: String(x) } : x;
    return [JSON.stringify(roof.estimate(), whole), roof.messages()];"""
    text, messages = page.execute_script(script, situation)
    assert messages == []
    found: dict[str, Any] = json.loads(text, object_hook=lambda o: int(o["whole"]) if list(o) == ["whole"] else o)
    return found


def differences(found: Any, expected: Any, path: str = "") -> Iterator[str]:
    """Differences from Python's document: ints and texts must be equal, floats to 1e-12."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            yield from differences(found[key], value, f"{path}/{key}")
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{path}: {len(found)} instead of {len(expected)}"
        for i, (one, other) in enumerate(zip(found, expected, strict=False)):
            yield from differences(one, other, f"{path}/{i}")
    elif isinstance(expected, float) and isinstance(found, int | float):
        if not math.isclose(found, expected, rel_tol=1e-12, abs_tol=0):
            yield f"{path}: {found} instead of {expected}"
    elif found != expected:
        yield f"{path}: {found} instead of {expected}"


def situations(draw: random.Random, models: Sequence[str]) -> Iterator[tuple[str, Device, dict[str, Any]]]:
    """Random settings of every control for each variant of each model."""
    for name, variant in [(model, variant) for model in models for variant in shown_variants(hub.load(model))]:
        device, arch, phase = Device.load(draw.choice(DEVICES)), hub.load(name), variant.phase
        storable = [form for form in FORMATS if FORMATS[form].bits >= min_bits(phase)]
        has = [n for n in COMPUTE_FORMATS if n in storable and (n in device.pipes or f"tensor_{n}" in device.pipes)]
        options: dict[str, Any] = {
            **variant._asdict(), "batch": int(2 ** draw.uniform(0, 20)), "dtype": draw.choice(has),
            "engine": draw.choice(engines(arch, phase)),
        }  # fmt: skip
        if draw.random() < 0.5:
            options["weights"] = draw.choice(storable)
        if phase in ("prefill", "decode") and draw.random() < 0.5:
            options["kv"] = draw.choice(list(FORMATS))
        if phase == "train":
            options["optimizer"] = draw.choice(DECLARED["optimizer"].choices)
        if chooses_logits(arch, phase):
            options["logits"] = draw.choice(DECLARED["logits"].choices)
        for length in lengths(arch, phase):
            options[length] = max(smallest_length(arch, length), int(2 ** draw.uniform(0, 20)) - (length == "context"))
        if draw.random() < 0.7:
            dp = draw.choice((1, 2, 3, 8))
            ways = [(tp, ep) for ep, tps in tp_by_ep(arch).items() for tp in tps if expert_groups_nest(tp, dp, ep)]
            tp, ep = draw.choice(ways)
            options |= {"tp": tp, "dp": dp, "ep": ep, "batch": options["batch"] * dp}
        yield name, device, options


@pytest.mark.usefixtures("only_times_and_memory", "replicas_as_on_the_page")
def test_every_number_of_the_page_equals_the_estimate(page: Any, made: Path) -> None:
    huge = 0
    for name, device, options in situations(random.Random(6), (*PACKAGED, str(made.parent / "latent.json"))):
        exchange = {"sustained": "off"}  # as on the page
        if options["phase"] == "train":
            exchange["overlap"] = "none"
        report = estimate(hub.load(name), device, **{"weights": options["dtype"]} | exchange | options)
        usual: dict[str, Any] = {"weights": "", "kv": "", "tp": 1, "dp": 1, "ep": 1}
        found = moved(page, **usual | options | {"model": hub.load(name).name, "hw": device.id})
        where = f"{name} on {device.id} {options}"
        phase = without_kernels(divided(report.phases[0]))
        assert list(differences(found, phase, where)) == []
        needed = memory(report)
        assert list(differences(found["memory"], {key: needed[key] for key in found["memory"]}, where)) == []
        huge += phase["totals"]["matmul_flops"] > 2**53
    assert huge > 10  # workloads with counts that a float cannot represent


def test_the_sizes_shown_multiply_to_the_count(page: Any) -> None:
    for name, phase in (
        ("gpt2", "train"),
        ("t5-small", "prefill"),
        ("Mixtral-8x7B-v0.1", "decode"),
        ("resnet-18", "forward"),
    ):
        found = moved(page, model=hub.load(name).name, phase=phase, batch=3)
        for op in found["ops"]:
            matmul = sum(2 * math.prod(size for _, size in axes) for axes in op["contractions"])
            assert matmul == op["matmul_flops"], op["name"]
            read, written = (sum(t["bytes"] for t in op["tensors"] if t["way"] == way) for way in ("read", "written"))
            assert math.isclose(read, op["bytes_read"], rel_tol=1e-15)
            assert math.isclose(written, op["bytes_written"], rel_tol=1e-15)


def text(page: Any, selector: str) -> str:
    return str(page.find_element("css selector", selector).text)


def test_the_tooltip_shows_the_formula_of_the_mark_under_the_mouse(page: Any) -> None:
    from selenium.webdriver import ActionChains

    found = moved(
        page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase="prefill", batch=8, seq=1024, context=0
    )
    number = next(i for i, op in enumerate(found["ops"]) if op["name"] == "mlp.up")
    mark = page.find_element("css selector", f"#roofline [data-operator='{number}'] .ring")
    ActionChains(page).move_to_element(mark).perform()
    tooltip = text(page, "#tooltip")
    # 2 x 8 x 1024 tokens x 768 x 3072 = 38.7 GFLOP; x 12.6 MB, W 4.7 MB, u 50.3 MB and the bias: 67.6 MB
    for part in (
        "MLP: up",
        "2 · b · t · d · f",
        "= 2 · 8 · 1 024 · 768 · 3 072 = 38.7 GFLOP",
        "÷ 67.6 MB",
        "bound by compute",
    ):
        assert part in tooltip, tooltip
    details = text(page, "#details")
    # a bias for each of 3072 columns
    assert "1 · b · t · f\n= 1 · 8 · 1 024 · 3 072 = 25 165 824\n= 25.2 MFLOP" in details
    for part in (
        "= 38 654 705 664", "38.7 GFLOP ÷ 312 TFLOP/s = 124 µs", "67.6 MB ÷ 2.039 TB/s = 33.2 µs", "× 12 = 1.49 ms",
        "f = 3 072: MLP width, or width of one expert",
    ):  # fmt: skip
        assert part in details, details


def test_bound_and_expected_time_are_separate_cards(page: Any) -> None:
    found = moved(
        page, model="openai-community/gpt2", hw="h100-sxm", phase="decode", engine="torch", batch=1, context=16
    )
    cards = [card.text for card in page.find_elements("css selector", "#figures .card")]
    assert cards[0].startswith("TPOT, bound")
    assert cards[1].startswith("TPOT, expected")
    assert found["totals"]["host_bound"]  # 150 kernels for one token
    assert f"launch-bound: the host launches {found['totals']['kernels']} kernels" in cards[1]
    assert cards[2].startswith("bound by\nmemory")
    assert found["totals"]["bound_seconds"] < found["totals"]["expected_seconds"]
    moved(page, hw="mi300x")
    assert "not known" in text(page, "#figures .expected")
    assert "not calibrated: bounds only" in text(page, "#figures .expected")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_no_operator_is_shown_faster_than_its_bound(page: Any, phase: str) -> None:
    """vLLM adds residuals in the kernels of the norms, so that an add has no time of its own."""
    moved(page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase=phase, engine="vllm", batch=8)
    rows = page.find_elements("css selector", "#operators tbody tr")
    columns = [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in rows]
    shown = {name.strip(): (bound, expected) for name, *_, bound, _, expected in columns}
    assert [name for name, (_, expected) in shown.items() if expected == "fused"]
    for bound, expected in shown.values():
        assert expected == "fused" or parse(expected, "s") >= 0.99 * parse(bound, "s")  # three digits
    marks = page.execute_script("return document.querySelectorAll('.mark .dot[r=\"0\"]').length")
    assert marks == sum(expected == "fused" for _, expected in shown.values())


def test_no_name_in_a_bar_is_cut(page: Any) -> None:
    moved(page, model="openai-community/gpt2", hw="h100-sxm", phase="prefill", batch=1, engine="torch", tp=4)
    pieces = page.find_elements("css selector", "#bars .piece")
    assert any(one.text for one in pieces)
    assert not [one.text for one in pieces if one.get_property("scrollWidth") > one.get_property("clientWidth")]


def test_several_gpus_shard_memory_and_communicate(page: Any) -> None:
    """Llama's all-reduce of 8 tokens of d = 64 in fp16, 1024 B; each of 4 GPUs sends 2 (4 - 1) / 4 of it."""
    moved(page, model=HOSTILE, hw="a100-sxm-80gb", phase="decode", batch=16, context=64, tp=4, dp=2)
    assert "one of 8 GPUs (tp 4, dp 2), 300 GB/s per direction between GPUs" in text(page, "#situation")
    cards = text(page, "#figures")
    assert "tokens/s on 8 GPUs" in cards
    assert "memory of each GPU" in cards
    assert "communication" in text(page, "#bars .legend")
    rows = page.find_elements("css selector", "#operators tbody tr")
    exchange = next(row for row in rows if "all-reduce after attention" in row.text)
    exchange.find_element("css selector", "button").click()
    details = text(page, "#details")
    assert "sent by each GPU: all-reduce over 4 GPUs\n2 · (4 − 1) ÷ 4 · 1.02 kB = 1.54 kB" in details
    assert "1.54 kB ÷ 300 GB/s = 5.12 ns" in details
    moved(page, hw="rtx3090", dp=1)  # a bridge connects two cards, PCIe all of them
    assert "32 GB/s per direction between GPUs" in text(page, "#situation")
    moved(page, tp=2)
    assert "56.25 GB/s per direction between GPUs" in text(page, "#situation")


def test_gpus_without_a_link_give_a_warning(page: Any) -> None:
    moved(page, model=HOSTILE, hw="linkless", phase="decode", tp=2, dp=1)
    assert "linkless has no link between GPUs: the bound of communication is from DRAM bytes alone" in text(
        page, "#warning"
    )
    assert "not calibrated for communication" in text(page, "#figures .expected")
    moved(page, tp=1)
    assert not page.find_element("id", "warning").is_displayed()
    assert "tokens/s" in text(page, "#figures .expected")
    moved(page, hw="a100-sxm-80gb", dp=16, batch=16)
    assert not page.find_element("id", "warning").is_displayed()  # these replicas do not communicate
    moved(page, phase="train")
    assert "Between nodes of 8 GPUs: infiniband" in text(page, "#warning")


def test_the_warning_about_a_missing_network_has_the_number_of_gpus_of_the_sliders() -> None:
    note = describe_device(Device.load("rtx4090"), [], UniqueRecords())["network_note"]
    assert note.startswith("Warning: {gpus} GPUs exceed one node of 8, ")


def test_a_slider_offers_only_values_that_the_model_allows(page: Any) -> None:
    offered = "return roof.stops(arguments[0])"
    moved(page, model="mistralai/Mixtral-8x7B-v0.1", tp=1, dp=1)
    assert page.execute_script(offered, "tp") == [1, 2, 4, 8, 16, 32]  # 32 heads, 8 key-value heads, 14336 columns
    assert page.execute_script(offered, "ep") == [1]
    moved(page, tp=2, dp=4, batch=4)
    assert page.execute_script(offered, "ep") == [1, 2, 4, 8]  # within two GPUs, or over two or four replicas
    assert page.execute_script(offered, "batch")[:3] == [4, 8, 12]
    page.execute_script("roof.update({ dp: 3 })")
    assert text(page, "#messages") == "batch 4: must be a multiple of dp, 3. Using 6."
    page.execute_script("roof.update({ ep: 8, batch: 6 })")
    assert text(page, "#messages") == "ep 8: must be 1 or 2. Using 1."
    moved(page, model="microsoft/resnet-18", dp=2, batch=2)
    shown = [label.get_attribute("data-number") for label in page.find_elements("css selector", "#controls .slide")
             if label.is_displayed()]  # fmt: skip
    assert shown == ["dp", "batch", "image"]
    assert {1, 224, 2048} <= set(page.execute_script(offered, "image"))
    moved(page, image=512)
    assert "2 images of 512 × 512 pixels" in text(page, "#situation")


def test_a_choice_is_offered_only_if_it_has_an_effect(page: Any) -> None:
    def offered() -> dict[str, list[str]]:
        fields = [f for f in page.find_elements("css selector", "#controls [data-choice]") if f.is_displayed()]
        return {field.get_attribute("data-choice"): field.text.split("\n")[1:] for field in fields}

    moved(page, model="latent", hw="h100-sxm", phase="decode")
    assert offered()["mla"] == ["absorbed", "naive"]
    assert {"recompute", "optimizer", "logits"}.isdisjoint(offered())
    moved(page, phase="train", attention="eager", batch=8, recompute="selective", optimizer="sgd")
    assert offered()["recompute"] == ["none", "selective", "full"]
    assert offered()["optimizer"] == ["adam", "adam8bit", "momentum", "sgd"]
    assert "mla" not in offered()
    assert page.execute_script("return roof.state().logits") == "all"
    assert "logits of all positions, selective recomputation, sgd" in text(page, "#situation")
    moved(page, attention="flash")  # flash attention keeps no scores
    assert offered()["recompute"] == ["none", "full"]
    moved(page, phase="prefill")
    assert page.execute_script("return roof.state().logits") == "last"
    moved(page, model="microsoft/resnet-18", phase="train")
    assert list(offered()) == ["phase", "recompute", "optimizer", "engine"]


def test_the_optimizer_is_one_row_and_a_part_of_the_memory(page: Any) -> None:
    moved(page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase="train", dtype="bf16", batch=1, seq=512)
    (adam, sgd) = (moved(page, optimizer=name) for name in ("adam", "sgd"))
    assert [row for row in adam["ops"] if row not in sgd["ops"]] == adam["ops"][-1:]
    parameters = 124_439_808
    assert (adam["memory"]["optimizer"], sgd["memory"]["optimizer"]) == (
        12 * parameters,
        4 * parameters,
    )  # fp32 masters
    assert "state.v" in adam["ops"][-1]["spec"]
    assert "state.v" not in sgd["ops"][-1]["spec"]


def test_memory_that_does_not_fit_gives_a_warning(page: Any) -> None:
    moved(page, model="mistralai/Mixtral-8x7B-v0.1", hw="a100-sxm-80gb", phase="decode", batch=1, context=1024)
    assert "does not fit" in text(page, "#figures .alarm")  # 93 GB of weights
    moved(page, weights="int4")
    assert "of 72 GiB usable (90 % of 80): fits" in text(page, "#figures .fits")


def test_practice_asks_about_a_time_that_the_reader_measured(page: Any) -> None:
    """GPT-2's up projection of 1024 tokens on an A100: 2 × 1024 × 768 × 3072 = 4.83 GFLOP, at 312 TFLOP/s 15.5 µs."""
    flops, time, peak = 2 * 1024 * 768 * 3072, 60e-6, 312e12
    moved(page, model="gpt2", hw="a100", phase="prefill", batch=1, seq=1024, dtype="fp16")
    page.execute_script("""document.getElementById("practice").open = true;
    [...document.querySelectorAll("#operators tbody tr")].find(row => row.textContent.includes("MLP: up")).click()""")

    def answered(field: str, text: str) -> tuple[str, str]:
        box = page.find_element("css selector", f"#practice [name={field}]")
        box.clear()
        box.send_keys(text + "\n")
        return tuple(page.find_element("id", each).text for each in ("question", "verdict"))  # type: ignore[return-value]

    assert "faster than physically possible" in answered("measured", "1 us")[1]
    assert answered("measured", "60us") == ("Which ceiling limits it: memory or compute?", "")
    assert answered("answer", "memory")[1].startswith("Not yet")
    assert answered("answer", "Compute") == ("Which FLOP/s does it reach?", "Right.")
    reached = flops / time / 1e12
    assert answered("answer", f"{reached:.1f} GFLOP/s")[1].endswith("Your answer is 1 000 times too small.")
    assert answered("answer", "many")[1].startswith("Not a number")
    assert answered("answer", f"{reached:.1f} TFLOP/s")[0] == "Which FLOP/s can it reach at most?"
    assert answered("answer", f"{peak:.3g}")[0].startswith("Which share")
    assert answered("answer", f"{100 * flops / peak / time:.1f} %") == ("", "Right: that was the last question.")
    assert len(page.find_elements("css selector", "#roofline .star")) == 1
    moved(page, batch=2)  # another situation: the measured time is not one of it
    assert not page.find_elements("css selector", "#roofline .star")


def test_the_link_restores_the_settings(page: Any, made: Path) -> None:
    moved(
        page,
        model="openai-community/gpt2",
        hw="h100-sxm",
        phase="decode",
        batch=32,
        context=777,
        kv="fp8",
        engine="vllm",
    )
    address, found = page.current_url, page.execute_script("return document.getElementById('figures').textContent")
    page.execute_script("location.hash = '#batch=1'")
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert page.execute_script("return roof.state().batch") == 1
    page.execute_script("location.hash = arguments[0]", address.partition("#")[2])
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert page.execute_script("return document.getElementById('figures').textContent") == found
    state = page.execute_script("return roof.state()")
    assert (state["hw"], state["batch"], state["context"], state["kv"]) == ("h100-sxm", 32, 777, "fp8")


def test_controls_that_do_not_apply_to_a_model_are_hidden(page: Any) -> None:
    page.execute_script("location.hash = '#model=microsoft/resnet-18&seq=9&attention=eager'")
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert "seq" not in text(page, "#messages")
    shown = page.find_elements("css selector", "#controls [data-number]")
    assert [label.get_attribute("data-number") for label in shown if label.is_displayed()] == ["dp", "batch", "image"]
    assert not page.find_element("css selector", "[data-choice=attention]").is_displayed()
    assert "eager attention" not in text(page, "#situation")
    colors = page.find_elements("css selector", "#bars .legend:nth-of-type(1) .swatch")
    assert len({one.value_of_css_property("background-color") for one in colors}) == len(colors) > 5
    moved(page, model="openai-community/gpt2", phase="prefill", seq=7)
    assert page.find_element("css selector", "[data-choice=attention]").is_displayed()


def test_lengths_beyond_the_positions_give_a_warning(page: Any) -> None:
    moved(page, model="openai-community/gpt2", phase="decode", context=1025)
    assert "decode reaches 1 026 tokens, but openai-community/gpt2 has positions for 1 024" in text(page, "#warning")
    for context in (1023, 1024):  # the default is a prompt that fills all positions, as in `roof estimate`
        moved(page, context=context)
        assert not page.find_element("id", "warning").is_displayed()
    moved(page, phase="prefill", seq=5000, context=0)
    assert "prefill reaches 5 000 tokens" in text(page, "#warning")


def test_the_shares_of_the_page_equal_those_of_estimate(page: Any) -> None:
    found = moved(page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase="prefill", batch=1, seq=512, context=0)
    titles = [title.text for title in page.find_elements("css selector", "#operators th[scope=col]")]
    place = titles.index("share of bound")
    row = page.find_elements("css selector", "#operators tbody tr")[5]
    op = found["ops"][5]
    share = 100 * op["count"] * op["bound_seconds"] / found["totals"]["bound_seconds"]
    shown = float(row.find_elements("css selector", "th, td")[place].text.rstrip(" %"))
    assert shown == pytest.approx(share, abs=0.51)


@pytest.mark.parametrize(
    ("hash_", "expected"),
    [
        (
            "hw=b300",
            "hw b300 is not available; choose from a100-sxm-80gb, h100-sxm, v100-sxm2-32gb, mi300x, rtx3090, linkless.",
        ),
        ("batch=-1", "batch -1: must be a whole number from 1"),
        ("batch=1.5", "batch 1.5: must be a whole number from 1"),
        ("batch=1e99", "batch 1e99"),
        ("context=", "context : must be a whole number from 0"),
        ("hw=v100-sxm2-32gb&dtype=fp8", "dtype fp8 is not available; choose from fp64, fp32, fp16. Using fp16."),
        ("phase=train&weights=int4", "weights int4"),
        ("model=%3Cscript%3Ealert(1)%3C/script%3E", "model <script>alert(1)</script> is not available"),
    ],
)
def test_invalid_settings_in_the_link_are_replaced_with_a_message(page: Any, hash_: str, expected: str) -> None:
    page.execute_script("location.hash = arguments[0]", hash_)
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert expected in text(page, "#messages")
    assert page.execute_script("return document.scripts.length") == 2


@pytest.mark.parametrize(
    ("hash_", "model", "hw"),
    [
        ("model=mixtral-8x7b-v0.1&hw=v100", "mistralai/Mixtral-8x7B-v0.1", "v100-sxm2-32gb"),
        ("model=openai-community/GPT2&hw=H100", "openai-community/gpt2", "h100-sxm"),
        ("model=t5-small&hw=a100-sxm-80gb", "google-t5/t5-small", "a100-sxm-80gb"),
    ],
)
def test_a_link_may_name_a_model_and_a_device_in_short(page: Any, hash_: str, model: str, hw: str) -> None:
    page.execute_script("location.hash = arguments[0]", hash_)
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert text(page, "#messages") == ""
    link = page.execute_script("return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
    assert (link["model"], link["hw"]) == (model, hw)


def test_every_control_can_be_used_with_the_keyboard(page: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    moved(page, model="openai-community/gpt2", phase="decode", batch=1)
    slider = "document.querySelector('[data-number=batch] input[type=range]')"
    page.execute_script(f"{slider}.focus()")
    ActionChains(page).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    assert page.execute_script("return roof.state().batch") == 3  # 1, 2, 3, 4, 6, 8, ...
    ActionChains(page).send_keys(Keys.TAB).send_keys(Keys.CONTROL, "a", Keys.NULL).send_keys("41", Keys.TAB).perform()
    assert page.execute_script("return roof.state().batch") == 41
    page.execute_script("document.querySelector('input[value=decode]').focus()")
    ActionChains(page).send_keys(Keys.ARROW_LEFT).perform()
    assert page.execute_script("return roof.state().phase") == "prefill"
    page.execute_script("document.getElementById('roofline').focus()")
    before = text(page, "#details h2")
    ActionChains(page).send_keys(Keys.ARROW_RIGHT).perform()
    assert text(page, "#details h2") != before
    page.execute_script("document.querySelectorAll('#operators tbody button')[4].focus()")
    ActionChains(page).send_keys(Keys.ENTER).perform()
    assert page.execute_script("return document.querySelector('tr[aria-current]').dataset.operator") == "4"
    ActionChains(page).send_keys("t").perform()
    assert page.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_dark_mode_follows_the_button_and_the_system_and_prints_on_white(page: Any) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(ground)
    page.find_element("id", "theme").click()
    dark = page.execute_script(ground)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 22, 26)")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.execute_script(ground) == light
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.find_element("id", "theme").click()
    assert page.execute_script(ground) == light


def test_the_page_has_no_horizontal_scrolling_on_a_phone(page: Any) -> None:
    for width in (360, 800, 1280):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.execute_async_script("setTimeout(arguments[0], 100)")
        assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_marks_appear_at_their_places_and_only_then_move_with_a_transition(page: Any) -> None:
    moved(page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase="decode")
    count = 'return [...document.querySelectorAll("#roofline .mark")].filter((mark) => !mark.matches(".placed")).length'
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert page.execute_script(count) == 0
    new = page.execute_script(f'roof.update({{ phase: "train" }}); {count}')
    assert new > 10  # the operators of the backward pass
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert page.execute_script(count) == 0


@pytest.mark.parametrize("width", [400, 800, 1400])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_no_name_in_the_picture_overlaps_another(page: Any, phase: str, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.execute_async_script("setTimeout(arguments[0], 100)")
    moved(page, model="openai-community/gpt2", hw="a100-sxm-80gb", phase=phase)
    names, rotated = page.execute_script("""
        const found = [...document.querySelectorAll("#roofline .labels text")];
        const box = ({ left, right, top, bottom }) => [left, right, top, bottom];
        const name = document.querySelector("#roofline .back text[transform]"), n = name.getNumberOfChars();
        const map = (point) => point.matrixTransform(name.getScreenCTM());
        const letters = [...Array(n).keys()].map((i) => map(name.getStartPositionOfChar(i)));
        return [found.map((one) => box(one.getBoundingClientRect())), letters.map(({ x, y }) => [x, y])];
    """)
    assert len(names) >= 2
    for i, (left, right, top, bottom) in enumerate(names):
        others = names[i + 1 :]
        assert all(right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top for other in others)
        assert not [(x, y) for x, y in rotated if left < x < right and top < y < bottom]
    dots = page.execute_script("""
        const box = ({ left, right, top, bottom }) => [left, right, top, bottom];
        const dots = document.querySelectorAll("#roofline .dot, #roofline .ring");
        return [...dots].map((dot) => box(dot.getBoundingClientRect()));
    """)
    assert not [
        (x, y) for x, y in rotated for left, right, top, bottom in dots if left < x < right and top < y < bottom
    ]
    moved(page, hw="h100-sxm")  # with a ridge point further to the right
    ends = page.execute_script("""
        const texts = [...document.querySelectorAll("#roofline text")].map((one) => one.getBoundingClientRect().right);
        return [Math.max(...texts), document.querySelector("#roofline").getBoundingClientRect().right];
    """)
    assert ends[0] <= ends[1]


def test_names_are_never_interpreted_as_markup(page: Any) -> None:
    moved(page, model=HOSTILE)
    assert page.execute_script("return [document.scripts.length, document.images.length]") == [2, 0]  # data and code
    assert text(page, "h1").startswith(HOSTILE)
    assert page.title.startswith("openai-community/gpt2, ")


def test_a_page_is_small_and_names_no_folder(made: Path) -> None:
    text = made.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    before, _, rest = text.partition('id="data">')
    packed, _, after = rest.partition("</script>")
    markup, document = before + after, gzip.decompress(base64.b64decode(packed)).decode()
    assert "of-somebody" not in markup + document
    assert "http" not in markup.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("gpt2", "-o", "x.png"), "unknown suffix '.png'; known: .html"),
        (("gtp2", "-o", "x.html"), "did you mean"),
        (("gpt2", "--hw", "a1000", "-o", "x.html"), "a100"),
        (("gpt2",), "-o"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("explore", *arguments, monkeypatch=monkeypatch) == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_two_models_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, layers in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        config = CONFIG | {"num_hidden_layers": layers}
        (tmp_path / folder / "mine.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("explore", "a/mine.json", "b/mine.json", "-o", "x.html", monkeypatch=monkeypatch) == 2
    assert "two models that differ are called 'mine'" in capsys.readouterr().err


def test_the_chart_stays_visible_above_the_sliders_on_a_phone(page: Any) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        top, bottom, slider = page.execute_script(
            "const slider = document.querySelector('#controls input[type=range]');"
            "slider.scrollIntoView({block: 'center'});"
            "const chart = document.querySelector('#roofline').getBoundingClientRect();"
            "return [chart.top, chart.bottom, slider.getBoundingClientRect().top];"
        )
        assert 0 <= top < bottom <= slider < 844
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
