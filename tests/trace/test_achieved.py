"""Rows of `roof trace` relative to the ceilings, for a run with FLOPs derived by hand."""

from pathlib import Path

import pytest

from roofmodel.trace import achieved
from roofmodel.trace.answer import roofline_text, to_dict
from roofmodel.trace.command import TraceReport
from roofmodel.trace.steps import total
from roofmodel.trace.trace import RunAnalysis
from tests.printing import printed
from tests.trace.runs import analyzed, event, launched

M = N = K = 4096
FLOPS = 2 * M * N * K
BYTES = 3 * 2 * M * N  # two operands and the result in fp16


def operator(name: str, start: float, end: float, shapes: list[list[int]], element: str = "c10::Half"):
    types = [element if shape else "Scalar" for shape in shapes]
    return event("cpu_op", name, start, end, **{"Input Dims": shapes, "Input type": types})


def gemm(start: float, end: float, launch: float):
    """An aten::mm within an aten::matmul, its GEMM kernel, and its split-K reduction."""
    shapes = [[M, K], [K, N]]
    return [
        operator("aten::matmul", launch - 2, launch + 8, shapes), operator("aten::mm", launch - 1, launch + 7, shapes),
        *launched("ampere_fp16_s16816gemm_fp16_128x128", start, end - 10, launch),
        *launched("splitKreduce_kernel<half>", end - 10, end, launch + 3),
    ]  # fmt: skip


def run(tmp_path: Path, **options) -> RunAnalysis:
    return analyzed(
        tmp_path,
        gemm(100, 1100, 10),
        gemm(1100, 2100, 30),
        operator("aten::relu", 50, 58, [[M, N]]), launched("vectorized_elementwise_kernel<4, relu>", 2100, 2200, 51),
        operator("aten::topk", 60, 68, [[M, N], []]), launched("topk_kernel", 2200, 2300, 61),
        launched("my_kernel", 2300, 2500, 80),
        **options,
    )  # fmt: skip


def test_equal_inputs_of_operators_are_parsed_once(tmp_path, monkeypatch):
    """The two matrix multiplications have equal shapes, and `aten::matmul` those of `aten::mm`."""
    parsed, parse = [], achieved.parse_inputs
    monkeypatch.setattr(achieved, "parse_inputs", lambda text: (parsed.append(text), parse(text))[1])
    run(tmp_path)
    assert len(parsed) == 3  # mm, relu, topk


def test_rows_have_flops_and_bytes_of_operators_once(tmp_path):
    rows = {row.group: row.achieved for row in run(tmp_path, by="operator", hw="a100").groups}
    mm = rows["aten::mm"]
    assert mm.flops == 2 * FLOPS
    assert mm.bytes == 2 * BYTES
    assert mm.seconds == pytest.approx(2000e-6)  # with the reductions
    assert mm.attainable_share == pytest.approx(2 * FLOPS / 312e12 / 2000e-6)
    assert mm.bound == "compute"
    relu = rows["aten::relu"]
    assert relu.bytes_per_second == pytest.approx(2 * 2 * M * N / 100e-6)
    assert relu.attainable_share == pytest.approx(2 * 2 * M * N / 2.039e12 / 100e-6)
    assert relu.bound == "memory"
    assert rows["aten::topk"] is None
    assert rows["(no operator)"] is None


def test_in_rows_of_kernels_the_gemm_kernel_has_all_flops_of_its_operator(tmp_path):
    rows = {row.group: row.achieved for row in run(tmp_path, by="name", hw="a100").groups}
    assert rows["ampere_fp16_s16816gemm_fp16_128x128"].flops_per_second == pytest.approx(2 * FLOPS / 1980e-6)
    assert rows["splitKreduce_kernel<half>"] is None


def test_the_report_states_the_share_of_kernel_time_with_flops(tmp_path):
    found = run(tmp_path, hw="a100")
    assert found.roofline.explained_share == pytest.approx(2100 / 2400)  # all except topk and my_kernel
    assert roofline_text(found).startswith("roofline: 88% of the kernel time has FLOPs and bytes, counted from shapes")
    reasons = {reason: kernels for reason, (kernels, _) in found.roofline.unknown.items() if "auxiliary" not in reason}
    assert reasons == {"no operator launched it": 1, "no formula for aten::topk": 1}
    listed = to_dict(found)
    assert listed["roofline"]["explained"] == found.roofline.explained_share
    assert sum(row["flops"] or 0 for row in listed["groups"]) == listed["roofline"]["flops"]
    assert {row["reason"] for row in listed["roofline"]["not_counted"]} == set(found.roofline.unknown)


@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_a_row_above_its_ceiling_has_the_reason_of_its_own_bound(bound, tmp_path):
    events = {
        "compute": gemm(100, 210, 10),  # 2 4096^3 FLOPs take 441 us on an A100
        "memory": [
            operator("aten::relu", 50, 58, [[M, N]]),  # 2 2 4096^2 bytes take 33 us
            *launched("vectorized_elementwise_kernel<4, relu>", 100, 110, 51),
        ],
    }
    text = " ".join(printed(TraceReport(analyzed(tmp_path, events[bound], hw="a100")), 160).split())
    assert ("(Winograd, FFT)" in text) == (bound == "compute")
    assert ("bytes are counted from shapes, and" in text) == (bound == "memory")


def test_without_a_device_rows_have_rates_but_no_fraction_of_a_ceiling(tmp_path):
    row = next(row for row in run(tmp_path, by="operator").groups if row.group == "aten::mm")
    assert row.achieved.flops_per_second
    assert row.achieved.attainable_share is None
    assert row.achieved.bound is None


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path):
    found = analyzed(tmp_path, event("cpu_op", "aten::mm", 0, 20), launched("gemm", 100, 200, 10))
    assert found.roofline is None
    assert "record_shapes=True" in roofline_text(found)
    assert to_dict(found)["roofline"] is None


def test_kernels_of_a_cuda_graph_belong_to_no_operator(tmp_path):
    """All kernels of a graph have the correlation id of the graph launch, which may be inside an operator."""
    shapes = [[M, K], [K, N]]
    graph = [event("cuda_runtime", "cudaGraphLaunch", 10, 12, correlation=99)] + [
        event("kernel", "gemm", start, start + 50, 0, 7, device=0, stream=7, correlation=99)
        for start in (100, 150, 200)
    ]
    found = analyzed(tmp_path, operator("aten::mm", 5, 20, shapes), graph, gemm(300, 500, 40), hw="a100")
    rank = to_dict(found)["ranks"][0]
    assert (rank["graph_kernels"], rank["graph_launches"]) == (3, 1)
    assert found.roofline.achieved.flops == FLOPS
    assert found.roofline.unknown["launched by a CUDA graph, which has no operators"][0] == 3


def test_rows_of_selected_steps_have_only_the_work_of_these_steps(tmp_path):
    marks = [event("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000 * (i + 1)) for i in range(3)]
    parts = [gemm(1000 * i + 100, 1000 * i + 900, 1000 * i + 10) for i in range(3)]
    found = analyzed(tmp_path, marks, *parts, hw="a100", steps_range="1:2")
    assert found.roofline.achieved.flops == FLOPS
    whole = total(found.ranks[0].rank)
    assert (whole.length, whole.compute_only, whole.idle) == (1_000_000, 800_000, 200_000)


# --- Collectives ------------------------------------------------------------------------------------

N_RANKS, SECONDS = 8, 1e-3
ELEMENTS = 2**24


@pytest.mark.parametrize(
    ("name", "sent", "received", "factor"),
    [  # nccl-tests, doc/PERFORMANCE.md: size S of the whole buffer, and bus bandwidth / (S / t)
        ("allreduce", ELEMENTS, ELEMENTS, 2 * 7 / 8),
        ("_allgather_base", ELEMENTS // 8, ELEMENTS, 7 / 8),
        ("_reduce_scatter_base", ELEMENTS, ELEMENTS // 8, 7 / 8),
        ("all_to_all", ELEMENTS, ELEMENTS, 7 / 8),
        ("all_to_allv", ELEMENTS, ELEMENTS, 7 / 8),
        ("broadcast", ELEMENTS, ELEMENTS, 1),
        ("reduce", ELEMENTS, ELEMENTS, 1),
        ("gather", ELEMENTS // 8, ELEMENTS, 7 / 8),
        ("send", ELEMENTS, ELEMENTS, 1),
        ("recv", ELEMENTS, ELEMENTS, 1),
    ],
)
def test_collectives_have_the_bandwidths_of_nccl_tests(tmp_path, name, sent, received, factor):
    metadata = {
        "Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "Group size": N_RANKS,
        "dtype": "BFloat16", "Process Group Ranks": str([*range(N_RANKS)]),
    }  # fmt: skip
    found = analyzed(tmp_path, launched("ncclDevKernel_Generic", 100, 1100, 10, **metadata), hw="h100")
    (row,) = found.ranks[0].collectives
    assert row.bytes == 2 * ELEMENTS
    assert row.bytes_per_second == pytest.approx(2 * ELEMENTS / SECONDS)
    assert row.bus_bytes_per_second == pytest.approx(factor * 2 * ELEMENTS / SECONDS)
    assert (row.group_size, row.link) == (8, "nvlink")
    assert row.link_share == pytest.approx(row.bus_bytes_per_second / 450e9)  # NVLink 4: 900 GB/s in both directions


def test_collectives_of_different_group_sizes_have_separate_rows_and_use_the_network_beyond_a_node(tmp_path):
    def reduce(start: float, ranks: list[int], dtype: str = "Float"):
        more = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": dtype}
        more |= {"Group size": len(ranks), "Process Group Ranks": str(ranks)}
        return launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, start + 50, 10, **more)

    found = analyzed(
        tmp_path, reduce(100, [0, 1]), reduce(200, [0, 8]), reduce(300, [0, 1, 2, 3], "Float8_e4m3fn"), hw="h100"
    )
    rows = {(row.group_size, row.link): row for row in found.ranks[0].collectives}
    assert rows.keys() == {(2, "nvlink"), (2, "infiniband"), (4, "nvlink")}
    assert rows[4, "nvlink"].bytes == 1000
