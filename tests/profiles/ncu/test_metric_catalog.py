"""The metric names for ncu, compared with NVIDIA's tables and with the readers."""

import re

import pytest

from roofmodel.profiles.ncu import metric_catalog
from roofmodel.profiles.ncu.metric_names import is_read
from roofmodel.profiles.ncu.metrics import interpret
from tests.profiles.ncu.nvidia_tables import libraries

NAMES = {
    generation: [
        name
        for group in (*metric_catalog.collection(generation), *metric_catalog.diagnosis())
        for name in group.metrics
    ]
    for generation in metric_catalog.CHIPS
}
NOT_COUNTERS = (metric_catalog.REGISTERS,)  # a property of the launch that ncu adds; it is in no table


def tables(chip):
    found = [table for table in libraries() if chip in table.chips]
    if not found:
        at_hand = "none is at hand" if not libraries() else "those at hand do not know it"
        pytest.skip(
            f"no libnvperf_host with {chip}: {at_hand}; install ncu-report (without the V100) and "
            "nvidia-cuda-cupti-cu12 (with it, without the newest), or name the file in ROOF_NVPERF"
        )
    return found


@pytest.mark.parametrize(
    ("generation", "chip"), [(g, chip) for g, chips in metric_catalog.CHIPS.items() for chip in chips]
)
def test_every_name_is_in_nvidias_table_of_every_chip(generation, chip):
    for table in tables(chip):
        assert not table.has(chip, "sm__no_such_metric.sum")
        absent = [n for n in NAMES[generation] if n not in NOT_COUNTERS and not table.has(chip, n)]
        assert absent == [], table.path


@pytest.mark.parametrize("generation", metric_catalog.CHIPS)
def test_no_tensor_type_of_a_chip_is_forgotten(generation):
    # all totals of floats and of int8 of any generation; this generation requests those that it has
    small = {part for parts in metric_catalog.SMALL_FLOATS.values() for part in parts}
    every = {f"sm__ops_path_tensor_src_{part}.sum" for part in metric_catalog.ASSIGNED_SOURCES | small}
    chip = metric_catalog.CHIPS[generation][0]
    for table in tables(chip):
        assert {name for name in every if table.has(chip, name)} == every & set(NAMES[generation]), table.path


@pytest.mark.parametrize("generation", metric_catalog.CHIPS)
def test_packed_single_precision_is_collected_on_chips_that_have_it(generation):
    packed = metric_catalog.OPERATION.format(unit="smsp", op="ffma2") + ".sum"
    for chip in metric_catalog.CHIPS[generation]:
        for table in tables(chip):
            assert table.has(chip, packed) == (packed in NAMES[generation])


@pytest.mark.parametrize("generation", metric_catalog.CHIPS)
def test_every_collected_metric_is_read_and_requested_once(generation):
    assert all(is_read(name) for name in NAMES[generation])
    assert len(NAMES[generation]) == len(set(NAMES[generation]))


@pytest.mark.parametrize("generation", metric_catalog.CHIPS)
def test_the_collected_metrics_suffice_for_a_point(generation):
    meaning = interpret(dict.fromkeys(NAMES[generation], 1.0), generation)
    of_pipes = meaning.flops._asdict()
    expected = {"fp64", "fp32", "fp16", "fp16_legacy", *metric_catalog.row(metric_catalog.TENSOR, generation, {})}
    assert {pipe for pipe, flops in of_pipes.items() if flops is not None} == expected
    assert None not in (*meaning.numbers.values(), *meaning.bytes)
    small = metric_catalog.row(metric_catalog.SMALL_FLOATS, generation, ())
    assert len(meaning.notes) == len(small)  # only notes on types without a pipe


def test_a_v100_counts_by_type_and_falls_back_to_instructions():
    names = dict.fromkeys(NAMES["7.0"], 1.0)
    assert interpret(names, "7.0").flops.tensor_fp16 == 2  # one with fp16 and one with fp32 accumulation
    older = {name: value for name, value in names.items() if "ops_path" not in name}
    assert interpret(older, "7.0").flops.tensor_fp16 == 512


@pytest.mark.parametrize("generation", metric_catalog.CHIPS)
def test_no_part_of_a_collected_total_is_collected(generation):
    assert not [name for name in NAMES[generation] if re.search("sparsity|_op_[a-z]*mma|realtime", name)]


def test_a_requested_generation_has_a_table_row_or_one_of_its_major_version():
    for generation in metric_catalog.CHIPS:
        assert metric_catalog.tensor_operations(generation)
    assert metric_catalog.tensor_operations("6.0") == ()
    assert metric_catalog.tensor_operations(None) == ()
