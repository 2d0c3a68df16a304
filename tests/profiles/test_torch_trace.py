import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings

from roofmodel.errors import ProfileError
from roofmodel.profiles import reading, signatures, torch_trace
from roofmodel.profiles.kernel import Evidence
from roofmodel.roofline.device import identify
from tests.profiles.samples import assert_error_or_table, content, measured, mutilations, profile_of, read_text

GRAPH = Path(__file__).parents[1] / "data/gpu/h100/trace-graph.json.gz"
H100 = dict(id=0, name="NVIDIA H100 80GB HBM3", totalGlobalMem=85018279936, computeMajor=9, computeMinor=0)
H100 |= dict(warpSize=32, numSms=132)


def event(cat, name, ts, dur, pid=0, tid=7, **args):
    return dict(ph="X", cat=cat, name=name, ts=ts, dur=dur, pid=pid, tid=tid, args=args)


def kernel(name="k", ts=100.0, dur=10.0, correlation=1, **args):
    return event("kernel", name, ts, dur, device=0, stream=7, correlation=correlation, **args)


def call(ts, correlation=1, tid=50, pid=42, name="cudaLaunchKernel", cat="cuda_runtime"):
    return event(cat, name, ts, 5, pid=pid, tid=tid, correlation=correlation)


def annotation(name, ts, dur, tid=50, pid=42):
    return event("user_annotation", name, ts, dur, pid=pid, tid=tid)


def trace(*events, **more):
    return json.dumps(dict(schemaVersion=1, deviceProperties=[H100], traceEvents=list(events)) | more)


def read(text):
    return read_text(profile_of(torch_trace.read), text)


def test_only_kernels_are_listed_and_copies_are_counted():
    text = trace(
        kernel("gemm", 100, 10),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 120, 5, device=0, stream=7),
        event("gpu_memset", "Memset (Device)", 130, 2, device=0, stream=7),
        event("gpu_user_annotation", "ProfilerStep#1", 100, 32),
        event("cpu_op", "aten::mm", 90, 30, pid=42, tid=50),
        dict(ph="M", name="process_name", pid=0, args={}),
        dict(ph="f", cat="ac2g", name="ac2g", ts=100, pid=0, tid=7, id=1),
    )
    profile = read(text)
    assert [(k.name, k.seconds) for k in profile.kernels] == [("gemm", 10e-6)]
    assert "2 memory copies and memsets are not listed as kernels" in profile.warnings


REAL_OPERATORS = {  # all kernels, kernels with an operator
    "kineto_resnet50_v100_no_workers.json.gz": (8772, 8772),  # PyTorch 1.8: Operator, `external id`
    "critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz": (79, 79),  # External id = correlation
    "Falconsai_nsfw_image_detection__1016002.json.gz": (154, 154),
    "nccl_parser_config_nccl_data.json.gz": (2700, 2700),
}


@pytest.mark.parametrize("name", REAL_OPERATORS)
def test_kernels_of_every_generation_have_the_operator_that_launched_them(name):
    with reading.opened_sources([measured(f"traces/torch/{name}")]) as (source,), source.open() as stream:
        kernels = profile_of(torch_trace.read)(stream, name).kernels
    assert (len(kernels), sum(kernel.call is not None for kernel in kernels)) == REAL_OPERATORS[name]


@pytest.mark.parametrize(
    "name", ["Falconsai_nsfw_image_detection__1016002.json.gz", "nccl_parser_config_nccl_data.json.gz"]
)
def test_the_operator_that_encloses_a_launch_is_the_one_with_its_external_id(name):
    document = json.loads(content(measured(f"traces/torch/{name}")))
    by_id = profile_of(torch_trace.read)(io.BytesIO(json.dumps(document).encode()), name).kernels
    for item in document["traceEvents"]:
        if item.get("cat") == "kernel":
            del item["args"]["External id"]
    by_launch = profile_of(torch_trace.read)(io.BytesIO(json.dumps(document).encode()), name).kernels
    assert [kernel.call for kernel in by_launch] == [kernel.call for kernel in by_id]


def test_an_external_id_that_is_the_correlation_id_identifies_no_operator():
    text = trace(
        event("cpu_op", "aten::other", 0, 5, pid=42, tid=50, **{"External id": 7}),
        event("cpu_op", "aten::mm", 10, 10, pid=42, tid=50, **{"External id": 8, "Input Dims": [[2, 3], [3, 4]]}),
        call(12, correlation=7),
        kernel("gemm", 100, 10, correlation=7, **{"External id": 7}),
    )
    (found,) = read(text).kernels
    assert found.call.name == "aten::mm"
    assert found.call.shapes == ((2, 3), (3, 4))
    assert found.launch == pytest.approx(12e-6)


def test_kernels_that_no_operator_launched_are_counted_in_a_warning():
    text = trace(event("cpu_op", "aten::mm", 0, 5, pid=42, tid=50), call(12), kernel("gemm", 100, 10))
    assert "none of 1 kernels could be joined with a framework operator" in read(text).warnings


def test_times_are_microseconds_whatever_is_displayed():
    assert read(trace(kernel(dur=2.5), displayTimeUnit="ms")).kernels[0].seconds == 2.5e-6


def test_large_times_keep_nanosecond_precision():
    # 1 751 410 836 123 456.789 us: as a double it would be a multiple of 0.25 us.
    text = trace(kernel("a", "@1", "@d"), kernel("b", "@2", "@d"))
    text = text.replace('"@1"', "1751410836123456.789").replace('"@2"', "1751410836123457.790")
    a, b = read(text.replace('"@d"', "1.001")).kernels
    assert a.start == 0
    assert b.start == 1001e-9
    assert a.seconds == 1001e-9


def test_an_occupancy_of_zero_is_unknown():
    (found,) = read(trace(kernel(**{"est. achieved occupancy %": 0}))).kernels
    assert found.occupancy is None  # a running kernel has at least one warp, so 0 is unknown


def test_a_kernel_has_the_attributes_of_its_trace_event():
    args = {
        "registers per thread": 32,
        "shared memory": 4224,
        "est. achieved occupancy %": 27,
        "grid": [564, 1, 2],
        "block": [128, 1, 1],
    }
    (found,) = read(trace(kernel(**args), call(50))).kernels
    assert (found.grid, found.block, found.registers, found.occupancy) == ((564, 1, 2), (128, 1, 1), 32, 0.27)
    assert found.shared_bytes == 4224
    assert (found.device, found.stream, found.process) == ("0", "7", "42")


def test_data_missing_in_the_trace_is_unknown():
    (found,) = read(trace(kernel())).kernels
    assert (found.grid, found.registers, found.occupancy, found.process, found.nvtx) == (None, None, None, None, ())


def test_kernels_are_in_the_order_of_their_starts():
    assert [k.name for k in read(trace(kernel("late", 200), kernel("early", 100))).kernels] == ["early", "late"]


def test_annotations_enclose_the_launch_outermost_first():
    text = trace(
        kernel(ts=5000),
        call(150),
        annotation("forward", 120, 100),
        annotation("ProfilerStep#3", 100, 1000),
        annotation("over", 100, 50),
        annotation("elsewhere", 4000, 9000),
    )
    assert read(text).kernels[0].nvtx == ("ProfilerStep#3", "forward")


def test_driver_and_hip_calls_launch_as_well():
    for cat, name in (("cuda_driver", "cuLaunchKernel"), ("hip_runtime", "hipLaunchKernel")):
        text = trace(kernel(), call(50, cat=cat, name=name), annotation("step", 0, 90))
        assert read(text).kernels[0].nvtx == ("step",)


def test_backward_kernels_get_the_step_of_the_main_thread_with_a_note():
    profile = read(trace(kernel(), call(50, tid=99), annotation("ProfilerStep#3", 0, 90)))
    assert profile.kernels[0].nvtx == ("ProfilerStep#3",)
    assert any("the only thread with NVTX ranges" in warning for warning in profile.warnings)


def test_a_correlation_that_two_processes_use_launches_nothing():
    text = trace(kernel(), call(50), call(60, pid=43), annotation("step", 0, 90))
    assert (read(text).kernels[0].nvtx, read(text).kernels[0].process) == ((), None)


def test_properties_of_the_devices_that_ran_are_evidence():
    other = H100 | dict(id=1, name="other")
    profile = read(trace(kernel(), deviceProperties=[H100, other]))
    assert profile.evidence == (
        Evidence("NVIDIA H100 80GB HBM3", compute_capability="9.0", multiprocessors=132, dram_bytes=85018279936),
    )


def test_equal_devices_count_as_one():
    cards = [H100 | dict(id=n) for n in range(8)]
    assert len(read(trace(kernel() | {"args": {"device": 99}}, deviceProperties=cards)).evidence) == 1


@pytest.mark.parametrize("hint", [dict(hip_runtime_version=70253211), dict(roctracer_version=4.1)])
def test_amd_versions_are_not_compute_capabilities(hint):
    # MI250 reports major 9, minor 0, like Hopper.
    assert read(trace(kernel(), **hint)).evidence[0].compute_capability is None


def test_amd_is_recognized_by_warp_size_or_hip_calls():
    card = H100 | dict(name="AMD Radeon Graphics", warpSize=64)
    assert read(trace(kernel(), deviceProperties=[card])).evidence[0].compute_capability is None
    assert read(trace(kernel(), call(50, name="hipLaunchKernel"))).evidence[0].compute_capability is None


def test_numbers_in_quotes_as_rocm_writes_them_are_numbers():
    text = trace(kernel(correlation="1"), call(50), annotation("step", 0, 90))
    assert read(text).kernels[0].nvtx == ("step",)


def test_a_bare_list_of_events_is_a_trace():
    profile = read(json.dumps([kernel(dur=3.5)]))
    assert profile.kernels[0].seconds == 3.5e-6
    assert profile.evidence == ()


def test_traces_of_the_old_autograd_profiler_name_the_process_instead_of_a_category():
    old = [
        dict(name="addmm", ph="X", ts=1.5, dur=20.0, tid=1, pid="CPU functions", args={}),
        dict(name="sgemm", ph="X", ts=5.5, dur=12.25, tid=0, pid="CUDA functions", args={}),
    ]
    (found,) = read(json.dumps(old)).kernels
    assert (found.name, found.seconds, found.start, found.device) == ("sgemm", 12.25e-6, 4e-6, "0")


def test_a_trace_without_gpu_work_is_empty_and_says_how_to_collect_it():
    profile = read(trace(event("cpu_op", "aten::mm", 1, 2), deviceProperties=[]))
    assert profile.kernels == ()
    assert "ProfilerActivity.CUDA" in profile.warnings[0]


def test_counters_without_times_are_recognized():
    profile = read(trace(event("cuda_profiler_range", "k", 1, 2, smsp__inst=5)))
    assert profile.kernels == ()
    assert "hardware counters" in profile.warnings[0]


def test_a_negative_or_missing_duration_is_unknown():
    profile = read(trace(kernel(dur=-1), kernel(dur=None)))
    assert [k.seconds for k in profile.kernels] == [None, None]
    assert any("2 kernels with a missing or negative duration" in warning for warning in profile.warnings)


def test_a_truncated_trace_is_refused_with_the_position():
    text = trace(kernel(), kernel())
    with pytest.raises(ProfileError, match=r"sample: the trace is truncated \(line 1, column \d+, character \d+"):
        read(text[:-20])


def test_invalid_json_is_refused_with_the_position():
    text = trace(kernel()).replace('"ph"', "ph")
    with pytest.raises(ProfileError, match=rf"not valid JSON \(line 1, column \d+, character {text.index('ph')}"):
        read(text)


@pytest.mark.parametrize("text", ["{}", '{"traceEvents": 5}', '{"traceEvents": [5]}', "[]", '[{"a": 1}]', "17", '"x"'])
def test_other_json_is_not_a_trace(text):
    with pytest.raises(ProfileError, match="JSON, but not a PyTorch trace"):
        read(text)


ROCPROF = dict(ph="X", name="saxpy(float*)", pid="10", tid="1", ts="622109244416", dur="3431")
ROCPROF |= dict(args={"BeginNs": "622109244416840", "EndNs": "622109247848451", "dev-id": "4", "queue-id": "0"})
XLA = dict(ph="X", pid=1, tid=13, ts=1000.5, dur=41.6, name="loop_fusion_2", args={"hlo_op": "loop_fusion.2"})


@pytest.mark.parametrize(
    ("other", "whose"),
    [
        (ROCPROF, r" \(AMD's rocprof\)"),
        (XLA, r" \(JAX or another XLA program\)"),
        (dict(ph="X", cat="fee", name="main", pid=1, tid=1, ts=1, dur=2), ""),
    ],
)
def test_a_chrome_trace_of_another_tool_is_refused_and_named(other, whose):
    for text in (json.dumps({"traceEvents": [{}, other], "otherData": {}}), json.dumps([other])):
        with pytest.raises(ProfileError, match=f"sample: a Chrome trace of another tool{whose}; only PyTorch"):
            read(text)


def test_a_trace_with_any_pytorch_event_is_recognized():
    assert read(json.dumps([event("cpu_op", "aten::mm", 90, 30), XLA])).kernels == ()
    assert read(trace(XLA)).kernels == ()
    old = dict(ph="X", name="saxpy", ts=1.0, dur=2.0, tid=0, pid="CPU functions", args={})
    assert read(json.dumps([old])).kernels == ()


def test_implausible_numbers_are_refused_or_unknown():
    with pytest.raises(ProfileError, match="invalid numbers or too deep nesting"):
        read(trace(kernel(dur="@")).replace('"@"', "9" * 5000))
    with pytest.raises(ProfileError, match="invalid numbers or too deep nesting"):
        read("[" * 200_000)
    for absurd in ("1e999999", "1e99999999999", "9" * 40):
        assert read(trace(kernel(dur="@")).replace('"@"', absurd)).kernels[0].seconds is None
    assert read(trace(kernel(dur=float("nan")))).kernels[0].seconds is None


def test_names_can_always_be_printed():
    read(trace(kernel("half \ud800 a character"))).kernels[0].name.encode()


def test_users_and_paths_of_the_trace_are_not_copied():
    text = trace(kernel(), username="hush", traceName="/home/hush/trace.json", metadata={"started_by": "hush"})
    assert "hush" not in repr(read(text))


def test_traces_are_recognized_by_their_content():
    assert signatures.torch_trace(trace(kernel()).encode())
    assert signatures.torch_trace(b"\xef\xbb\xbf \n[\n {" + json.dumps(kernel()).encode()[1:])
    assert signatures.torch_trace(trace(kernel()).encode("utf-16"))
    for other in (b"", b"\x1f\x8b", b"{'loss': 2.3}", b'{"loss": 2.3}', b"[1/1] Executing", b"SQLite format 3\0"):
        assert not signatures.torch_trace(other)


SAMPLE = trace(
    kernel("a", 100.25, 1.5, grid=[1, 2, 3]), kernel("b", 200, 3), call(50), annotation("step", 0, 90)
).encode()


@settings(max_examples=500, deadline=None)
@given(mutilations(SAMPLE))
def test_a_mutilated_trace_gives_an_error_or_a_table(data):
    signatures.torch_trace(data)
    assert_error_or_table(profile_of(torch_trace.read), data)


MEASURED = {
    "gaunernst_bert-small-uncased__1016001": (60, "307.197"),
    "Falconsai_nsfw_image_detection__1016002": (154, "1220.926"),
    "critical_path_alexnet_benchmark_result_2869224_1695835535_trace": (79, "10692"),
    "nccl_parser_config_nccl_data": (2700, "162532.34"),
    "amd_trace_mi250_minitoy_train_ROCm6_2_kineto": (14, "110.881"),
    "sglang_Qwen3-8B_decode": (555, "9765.437"),
    "triton_example_triton_example": (1, "1.76"),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_traces_equal_their_events(name):
    raw = content(measured(f"traces/torch/{name}.json.gz"))
    assert signatures.torch_trace(raw[:65536])
    profile = profile_of(torch_trace.read)(io.BytesIO(raw), name)
    events = [e for e in json.loads(raw, parse_float=Decimal)["traceEvents"] if e.get("ph") == "X"]
    microseconds = [Decimal(e["dur"]) for e in events if e["cat"] == "kernel"]
    assert (len(profile.kernels), sum(microseconds)) == (MEASURED[name][0], Decimal(MEASURED[name][1]))
    assert sum(round(k.seconds * 1e9) for k in profile.kernels) == sum(microseconds) * 1000
    assert all(k.process for k in profile.kernels)  # these files contain every launch
    assert len(profile.evidence) == 1


def test_a_trace_of_launches_without_kernels_was_recorded_with_cuda():
    """Another client of CUPTI, WSL, or a recording that ended before the kernels ran: not a missing activity."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    text = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [call, {**call, "ts": 9}]})
    (warning,) = profile_of(torch_trace.read)(io.BytesIO(text.encode()), "t.json").warnings
    assert "no kernels, but 2 launches by the CPU" in warning
    assert "collect with" not in warning


@pytest.mark.parametrize(
    "name",
    ["cpu_only_rank-34.Jul_15_10_52_41.1074.pt.trace", "cupti_profiler_benchmark_result_924719_1679055439_trace"],
)
def test_measured_traces_without_kernels_are_empty_and_say_so(name):
    profile = profile_of(torch_trace.read)(io.BytesIO(content(measured(f"traces/torch/{name}.json.gz"))), name)
    assert profile.kernels == ()
    assert "collect with" in profile.warnings[0]


def test_measured_backward_kernels_lie_in_the_backward_range():
    raw = content(measured("traces/torch/nccl_parser_config_nccl_data.json.gz"))
    profile = profile_of(torch_trace.read)(io.BytesIO(raw), "nccl")
    backward = Counter(k.nvtx[0] for k in profile.kernels if "## backward ##" in k.nvtx)
    assert set(backward) == {"ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"}
    assert len(set(backward.values())) == 1  # the three steps have equal work
    assert 2 * sum(backward.values()) > len(profile.kernels)  # most kernels are of the backward pass


class _Recorded(io.BytesIO):
    """A stream that records how much its reader asks for at once."""

    largest = 0

    def read(self, size=-1):
        self.largest = max(self.largest, size)
        return super().read(size)


def test_a_small_trace_is_read_without_the_memory_of_the_largest():
    """A buffered stream allocates all that `read` asks for: 4 GiB, more than `ulimit -v` may allow."""
    stream = _Recorded(b'{"schemaVersion": 1, "traceEvents": []}')
    profile_of(torch_trace.read)(stream, "sample")
    assert 0 < stream.largest <= 2**20


@pytest.mark.parametrize("name", ["", "AMD Radeon Graphics", "gfx942:sramecc+:xnack-"])
def test_an_amd_device_without_a_product_name_is_identified_by_its_sizes(name: str) -> None:
    card = {"id": 0, "name": name, "totalGlobalMem": 205_522_993_152, "computeMajor": 9, "computeMinor": 4,
            "warpSize": 64, "numSms": 304}  # fmt: skip
    (evidence,) = read(trace(kernel(), deviceProperties=[card])).evidence
    assert (evidence.name, evidence.multiprocessors) == (None, 304)
    assert identify([evidence], None, ["trace.json"]).device.id == "mi300x"


def test_a_trace_of_windows_with_single_backslashes_is_read():
    """PyTorch with stacks on Windows: paths in names, and in the key `traceName` at the end."""
    text = trace(kernel(), call(90), annotation("PATH", 80, 20), traceName="PATH").replace("PATH", r"C:\Users\new\a.py")
    (only,) = read(text).kernels
    assert only.nvtx == (r"C:\Users\new\a.py",)


def test_kernels_of_a_graph_have_the_operators_of_its_capture():
    """A real capture of 70 launches, with 8 aten::addmm and 2 attentions, and three replays of 70 kernels each."""
    kernels = reading.read([GRAPH]).kernels
    gemms = [kernel for kernel in kernels if kernel.name.startswith("nvjet")]
    assert len(gemms) == 3 * 8
    assert {kernel.call.name for kernel in gemms} == {"aten::addmm"}
    assert all(kernel.call.inputs for kernel in gemms)
    attention = [kernel.call.name for kernel in kernels if kernel.name.startswith("cudnn_generated_fort_native_sdpa")]
    assert attention == 6 * ["aten::_cudnn_attention_forward"]


@pytest.mark.parametrize(("captures", "operators"), [(1, {"aten::mm"}), (2, {None})])
def test_a_replay_belongs_to_a_capture_only_if_no_other_has_as_many_kernels(captures, operators):
    events = [call(1000, 99, name="cudaGraphLaunch"), kernel("a", 1010, 5, 99), kernel("b", 1020, 5, 99)]
    for number in range(captures):
        start = 100 * number
        events += [call(start, name="cudaStreamBeginCapture"), call(start + 60, name="cudaStreamEndCapture")]
        for i in (10, 30):
            args = {"External id": start + i, "Input Dims": [[4, 4], [4, 4]]}
            events += [
                event("cpu_op", "aten::mm", start + i, 10, pid=42, tid=50, **args),
                call(start + i + 2, start + i),
            ]
    kernels = read(trace(*events)).kernels
    assert {each.call and each.call.name for each in kernels} == operators
