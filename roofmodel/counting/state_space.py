"""State spaces in which every channel has a state of its own (Mamba; Gu and Dao, arXiv 2312.00752)."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting import vector
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.site import Site, norm_flops, norm_parameters, shared, summed
from roofmodel.counting.token_convolution import causal_filter
from roofmodel.counting.workload import Step
from roofmodel.models.recurrent import Mamba


def mamba(mixer: Mamba, site: Site) -> Iterator[Operator]:
    """Input and gate, a causal filter, the scan with its time step and its B and C chosen by the token, output.

    Names: `enter` is the paper's B, `leave` its C, `step` its delta. The cache keeps a state of z a channel, and the
    filter's last tokens, however long the sequence is.
    """
    build = site.build(
        c=mixer.width, C=2 * mixer.width, z=mixer.state, q=mixer.rank, Q=mixer.rank + 2 * mixer.state, r=mixer.kernel
    )
    bias = " + B_ssm_in[C]" if mixer.bias else ""
    yield build.operator("ssm.input", "ssm", f"{site.reads} W_ssm_in[d C]{bias} -> u[b t c] gate[b t c]")
    yield from causal_filter(build, site.step, "ssm", mixer.kernel_bias, mixer.activation, "u[b t c]")
    selected = "low[b t q] enter[b t z] leave[b t z]"
    yield build.operator("ssm.select", "ssm", f"u[b t c] W_select[c Q] -> {selected}")
    yield from summed(build, site.step, "ssm.select", selected)  # of each GPU's channels
    if mixer.norm:
        for name, axis in (("low", "q"), ("enter", "z"), ("leave", "z")):
            gain, shift = norm_parameters(name, mixer.norm, axis)
            line = f"{name}[b t {axis}]{gain}{shift} -> {name}[b t {axis}]"
            yield build.operator(
                f"ssm.{name}_norm", "ssm", line, kind="norm", vector=norm_flops(mixer.norm), function=mixer.norm.kind
            )
    yield from shared(build, site.step, "ssm.select", selected)
    yield build.operator("ssm.step", "ssm", "low[b t q] W_step[q c] -> step[b t c]")
    scan = _scan(build, site.step)
    yield from [fuse("ssm.scan", "ssm", scan, kind="scan")] if site.step.attention == "flash" else scan
    bias = " + B_ssm_out[d]" if mixer.out_bias else ""
    yield build.operator("ssm.output", "ssm", f"y[b t c] W_ssm_out[c d]{bias} -> {site.gives}")


def _scan(build: Builder, step: Step) -> tuple[Operator, ...]:
    """The recurrence (eq. 2a and 2b there), token by token: h = decay h + drive, y = C h + D x, gated.

    Fused, everything stays on the vector units and no state but the last one leaves the chip; the reference code
    multiplies C and h as matrices.
    """
    state = build.sizes["z"]
    read, kept = (" cache.state[b c z]" if held else "" for held in (step.resumed, step.cached))
    arrow = "=>" if step.attention == "flash" else "->"
    return (
        build.operator(
            "ssm.discretise", "ssm",
            "step[b t c] B_step[c] A[c z] enter[b t z] u[b t c] -> decay[b t c z] drive[b t c z]",
            kind="elementwise", vector=vector.STEP + 1 + vector.DISCRETISE * state,  # 1: step times u
        ),
        build.operator(
            "ssm.recurrence", "ssm", f"decay[b t c z] drive[b t c z]{read} -> state[b t c z]{kept}", kind="scan",
            vector=2,
        ),
        build.operator(
            "ssm.read_out", "ssm", f"state[b t c z] leave[b t z] {arrow} y[b t c]", kind="bmm", vector=2
        ),
        build.operator(
            "ssm.gate", "ssm", "y[b t c] u[b t c] D[c] gate[b t c] -> y[b t c]", kind="elementwise",
            vector=2 + vector.ACTIVATION["silu"] + 1,
        ),
    )  # fmt: skip
