"""`roof estimate`: a model's operators under a device's roofs."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import known_format, note, print_rich, print_text
from roofmodel.errors import WorkloadError

app = typer.Typer(add_completion=False)

FORMATS = ("table", "json", "csv", "markdown")


@app.command("estimate")
def estimate_command(
    model: Annotated[str, typer.Argument(help="A packaged name, a config.json or its folder, or a Hub id.")],
    hw: Annotated[str | None, typer.Option("--hw", help="A device's name or a YAML file.")] = None,
    family: Annotated[
        str | None, typer.Option(help="Read an unknown model_type as this one: llama, say; notes what it assumes.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="prefill, decode, generate, forward or train; if absent, a decoder's first two.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences computed together.")] = 1,
    seq: Annotated[
        int | None, typer.Option(help="Prompt tokens, or an encoder-decoder's source; 1024 or its limit.")
    ] = None,
    context: Annotated[int | None, typer.Option(help="Tokens already cached; at a decode as many as --seq.")] = None,
    dtype: Annotated[str, typer.Option(help="fp64, fp32, tf32, bf16, fp16, fp8 or int8.")] = "fp16",
    weights: Annotated[str | None, typer.Option(help="Format of the weights: as --dtype, or int4, nf4, mxfp4.")] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV cache; as --weights.")] = None,
    attention: Annotated[str, typer.Option(help="flash (fused, masked tiles skipped) or eager.")] = "flash",
    logits: Annotated[str | None, typer.Option(help="last or all; last at a prefill, all in a forward pass.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Decodes that --phase generate takes; 128.")] = None,
    mla: Annotated[str, typer.Option(help="absorbed or naive; for models with latent attention.")] = "absorbed",
    decoder_seq: Annotated[int | None, typer.Option(help="Prompt of an encoder-decoder's decoder; as --seq.")] = None,
    image: Annotated[int | None, typer.Option(help="Pixels a side; for vision models.")] = None,
    runtime: Annotated[str, typer.Option(help="eager, or graph: as engines run it; for expected times.")] = "eager",
    optimizer: Annotated[str | None, typer.Option(help="adam, momentum or sgd; for training; adam.")] = None,
    recompute: Annotated[str, typer.Option(help="none, selective or full; for training.")] = "none",
    tp: Annotated[int, typer.Option(help="Tensor-parallel GPUs; only 1 is counted yet.")] = 1,
    dp: Annotated[int, typer.Option(help="Data-parallel GPUs; only 1 is counted yet.")] = 1,
    pp: Annotated[int, typer.Option(help="Pipeline-parallel GPUs; only 1 is counted yet.")] = 1,
    ep: Annotated[int, typer.Option(help="Expert-parallel GPUs; only 1 is counted yet.")] = 1,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or markdown, on stdout.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .png .svg .pdf .html .json .csv .md")
    ] = None,
) -> None:
    """Per-operator FLOPs, bytes and bound; memory; throughput."""
    options = {k: v for k, v in locals().items() if k not in ("model", "hw", "family", "form", "output")}
    known_format(form, FORMATS)
    if output:
        from roofmodel.views import files

        for path in output:
            files.check(path, files.ESTIMATES)
    if hw is None:
        raise WorkloadError("--hw is missing; give a device such as --hw a100 (see 'roof hw list')")
    from roofmodel.devices import library
    from roofmodel.models import hub
    from roofmodel.study import estimate as study

    estimate = study.estimate(hub.load(model, family), library.load(hw), **options)
    for path in output or ():
        note(f"wrote {files.save(estimate, path)}")
    if form == "table":
        from roofmodel.views.terminal import EstimateView

        print_rich(EstimateView(estimate))
    else:
        from roofmodel.views import text

        print_text({"json": text.as_json, "csv": text.as_csv, "markdown": text.as_markdown}[form](estimate))
    for remark in estimate.notes:
        note(remark)
