"""A short causal filter between two gates, in the place of attention (LFM2, arXiv 2511.23404)."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting.operator import Operator
from roofmodel.counting.site import Site
from roofmodel.counting.token_convolution import causal_filter
from roofmodel.models.recurrent import ShortConvolution


def short_convolution(conv: ShortConvolution, site: Site) -> Iterator[Operator]:
    """One matrix gives both gates and what they stand around; no activation. The cache keeps the filter's last tokens.

    Names: `enter` is the reference code's B, `leave` its C.
    """
    build = site.build(c=conv.width, C=3 * conv.width, r=conv.kernel)
    bias = " + B_conv_in[C]" if conv.bias else ""
    line = f"{site.reads} W_conv_in[d C]{bias} -> enter[b t c] leave[b t c] u[b t c]"
    yield build.operator("convolution.input", "convolution", line)
    line = "enter[b t c] u[b t c] -> u[b t c]"
    yield build.operator("convolution.enter", "convolution", line, kind="elementwise", vector=1)
    yield from causal_filter(build, site.step, "convolution", conv.bias, None, "u[b t c]")
    line = "leave[b t c] u[b t c] -> u[b t c]"
    yield build.operator("convolution.leave", "convolution", line, kind="elementwise", vector=1)
    bias = " + B_conv_out[d]" if conv.bias else ""
    yield build.operator("convolution.output", "convolution", f"u[b t c] W_conv_out[c d]{bias} -> {site.gives}")
