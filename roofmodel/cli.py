"""The command line: parse, call, render. Everything it does, a library call does too."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from roofmodel.errors import OutputError, RoofError, WorkloadError, choices
from roofmodel.views import plain

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(help="The models that are known by name.", no_args_is_help=True)
hw_app = typer.Typer(help="The devices that are known by name, and checks of your own.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(hw_app, name="hw")

FORMATS = ("table", "json", "csv", "markdown")
Format = Annotated[str, typer.Option("--format", help="table, json, csv or markdown, on stdout.")]
Listing = Annotated[str, typer.Option("--format", help="table or json.")]


def _version(asked: bool) -> None:
    if asked:
        from roofmodel import __version__

        _print(f"roofmodel {__version__}")
        raise typer.Exit


@app.callback()
def version_option(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Count a transformer's FLOPs and bytes, and place them under a device's roofs."""


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
    form: Format = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .png .svg .pdf .html .json .csv .md")
    ] = None,
) -> None:
    """Per-operator FLOPs, bytes and bound; memory; throughput."""
    options = {k: v for k, v in locals().items() if k not in ("model", "hw", "family", "form", "output")}
    _known_format(form, FORMATS)
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
        _note(f"wrote {files.save(estimate, path)}")
    if form == "table":
        from roofmodel.views.terminal import EstimateView

        _print_rich(EstimateView(estimate))
    else:
        from roofmodel.views import text

        _print({"json": text.as_json, "csv": text.as_csv, "markdown": text.as_markdown}[form](estimate))
    for note in estimate.notes:
        _note(note)


@models_app.command("list")
def models_list(form: Listing = "table") -> None:
    """The packaged models."""
    from roofmodel.models import hub
    from roofmodel.views import listing

    _show(listing.models(list(hub.catalogue())), form)


@models_app.command("families")
def models_families(form: Listing = "table") -> None:
    """The model types that are counted, exactly as the real classes."""
    from roofmodel.models.families import FAMILIES
    from roofmodel.views import listing

    _show(listing.families(FAMILIES), form)


@models_app.command("show")
def models_show(name: Annotated[str, typer.Argument(help="As for estimate.")], form: Listing = "table") -> None:
    """What a model is, and which config key says so."""
    from roofmodel.models import hub
    from roofmodel.views import listing

    arch = hub.load(name)
    _show(listing.model(arch, hub.packaged(name)), form)
    for note in arch.notes:
        _note(note)


@hw_app.command("list")
def hw_list(form: Listing = "table") -> None:
    """The devices known by name."""
    from roofmodel.devices import library
    from roofmodel.views import listing

    found = []
    for name in library.names():
        try:
            found.append(library.load(name))
        except RoofError as error:  # one file of the user's own must not hide the others
            _note(f"warning: {error}")
    _show(listing.devices(found, library.ALIASES), form)


@hw_app.command("show")
def hw_show(name: Annotated[str, typer.Argument(help="A name or a YAML file.")], form: Listing = "table") -> None:
    """A device's ceilings, with their sources."""
    from roofmodel.devices import library
    from roofmodel.views import listing

    _show(listing.device(library.load(name)), form)


@hw_app.command("check")
def hw_check(file: Annotated[str, typer.Argument(help="A device's YAML file.")]) -> None:
    """Validate a device's YAML file: units, names, sources, and whether its numbers reproduce."""
    from roofmodel.devices import library, schema

    device = library.load(file)
    doubts = schema.findings(device)
    for doubt in doubts:
        _note(f"warning: {file}: {doubt}")
    count = f", {len(doubts)} warning{'s' if len(doubts) > 1 else ''}" if doubts else ""
    _print(f"{file}: {device.name}: valid{count}")


Files = Annotated[list[str], typer.Argument(help="Profiler files, patterns, - for stdin; FILE@HW names a device.")]
Times = Annotated[list[str] | None, typer.Option("--times", help="A file with better times: nsys, nvprof, PyTorch.")]


@app.command("kernels")
def kernels_command(
    files: Files,
    hw: Annotated[str | None, typer.Option("--hw", help="The device, where the files do not tell it.")] = None,
    times: Times = None,
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Profiler files (ncu, nvprof, nsys, PyTorch) as one table of kernels."""
    _known_format(form, ("table", "json", "csv"))
    from roofmodel.study import measured
    from roofmodel.views import measured as views
    from roofmodel.views import progress, tables

    with progress.shown():
        found = measured.kernels(files, hw, times or [])
    if form == "table":
        _print_rich(tables.kernels_table(found))
    else:
        document = views.kernels_document(found)
        _print(views.as_json(document) if form == "json" else views.kernels_csv(document))
    for warning in found.warnings:
        _note(f"warning: {warning}")


@app.command("plot")
def plot_command(
    files: Annotated[
        list[str] | None, typer.Argument(help="Profiler files, patterns, - for stdin; FILE@HW names a device.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="The device, where the files do not tell it.")] = None,
    clock: Annotated[
        str, typer.Option("--clock", help="Of the roofs: boost (the datasheet's), measured, or one such as 1312MHz.")
    ] = "boost",
    ceilings: Annotated[str, typer.Option("--ceilings", help="datasheet, or measured by benchmarks.")] = "datasheet",
    model: Annotated[str | None, typer.Option("--model", help="Also show a model's operators at their bounds.")] = None,
    times: Times = None,
    by: Annotated[
        str, typer.Option("--by", help="One point a: name, base, nvtx, category, or lecture (its four groups).")
    ] = "name",
    phase: Annotated[str | None, typer.Option(help="With --model, as for estimate.")] = None,
    batch: Annotated[int, typer.Option(help="With --model.")] = 1,
    seq: Annotated[int | None, typer.Option(help="With --model.")] = None,
    context: Annotated[int | None, typer.Option(help="With --model.")] = None,
    dtype: Annotated[str, typer.Option(help="With --model.")] = "fp16",
    attention: Annotated[str, typer.Option(help="With --model.")] = "flash",
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="FILE .png .svg .pdf .html .json .csv")
    ] = None,
) -> None:
    """Measured kernels on the roofline, a model's operators beside them; without -o drawn into FILE.roofline.png."""
    _known_format(form, ("table", "json", "csv"))
    workload = dict(phase=phase, batch=batch, seq=seq, context=context, dtype=dtype, attention=attention)
    from roofmodel.study import measured
    from roofmodel.views import files as outputs
    from roofmodel.views import measured as views
    from roofmodel.views import progress, tables

    for path in output or ():
        outputs.check(path, views.SUFFIXES)
    with progress.shown():
        placed = measured.place(files or [], hw, by, model, workload, times or [], clock, ceilings)
    for path in output or ():
        _note(f"wrote {views.save_points(placed, path)}")
    if form == "table":
        _print_rich(tables.points_table(placed))
    else:
        _print(views.as_json(views.points_document(placed)) if form == "json" else views.points_csv(placed.rooflines))
    for warning in placed.warnings:
        _note(f"warning: {warning}")
    if not output:  # nobody asked for the picture by name: where there is no room for it, the rest stands
        try:
            _note(f"wrote {views.save_points(placed, f'{placed.stem}.roofline.png')}")
        except OutputError as error:
            _note(f"warning: no picture: {str(error).removeprefix('-o ')}; -o FILE puts it elsewhere")


@app.command("count")
def count_command(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="torchvision.models:resnet50 or ./my.py:make.")
    ],
    inputs: Annotated[list[str], typer.Option("--input", help="1x3x224x224, or int:1x1024; once for each input.")],
    hw: Annotated[str | None, typer.Option("--hw", help="Also bound each operator on this device.")] = None,
    dtype: Annotated[str, typer.Option(help="Of all floating-point tensors.")] = "fp16",
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Any torch module as operators: FLOPs, bytes, bound (needs torch)."""
    _known_format(form, ("table", "json", "csv"))
    from roofmodel.study.count import count
    from roofmodel.views import count as views

    counted = count(target, inputs, dtype, hw)
    if form == "table":
        _print_rich(views.table(counted))
    else:
        _print(views.as_json(counted) if form == "json" else views.as_csv(counted))


@app.command("ncu-command", context_settings={"allow_interspersed_args": False})
def ncu_command(
    program: Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="What to profile.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="The device it will run on; a100 if absent.")] = None,
    nvtx: Annotated[str | None, typer.Option("--nvtx", help="Only launches within this NVTX range.")] = None,
    skip: Annotated[int | None, typer.Option("--skip", help="Without this many launches at the start.")] = None,
    count: Annotated[int | None, typer.Option("--count", help="No more launches than this.")] = None,
    nvprof: Annotated[bool, typer.Option("--nvprof", help="Times of a V100 in production, by nvprof.")] = False,
    form: Annotated[str, typer.Option("--format", help="line or json.")] = "line",
) -> None:
    """The ncu line that collects what roof reads; on stderr, why each part stands in it."""
    _known_format(form, ("line", "json"))
    from roofmodel.study.collect import collect
    from roofmodel.views import collect as views

    collection = collect(program or (), hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof)
    _print(views.line(collection) if form == "line" else views.as_json(collection))
    sys.stderr.write(views.reasons(collection))
    for note in collection.notes:
        _note(note)


@app.command("validate")
def validate_command(
    table: Annotated[str, typer.Argument(help="CSV of measured operations: op, dtype, latency_us and shapes.")],
    hw: Annotated[str, typer.Option("--hw", help="The device that it was measured on.")],
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", help="FILE .csv (every row, bounded) .json .png .svg .pdf"),
    ] = None,
) -> None:
    """How far the bound is from measured operations."""
    _known_format(form, ("table", "json"))
    from roofmodel.devices import library
    from roofmodel.study.validate import validate
    from roofmodel.views import files, validation

    for path in output or ():
        files.check(path, validation.SUFFIXES)
    found = validate(table, library.load(hw))
    for path in output or ():
        _note(f"wrote {validation.save(found, path)}")
    if form == "json":
        _print(validation.as_json(found))
    else:
        _print_rich(validation.table(found))


@app.command("calibrate")
def calibrate_command(
    tables: Annotated[list[str], typer.Argument(help="CSV tables of measured operations, as 'roof validate' takes.")],
    hw: Annotated[str, typer.Option("--hw", help="The device that they were measured on.")],
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .yaml: the device, with what was fitted.")],
    source: Annotated[str, typer.Option(help="Where the tables come from, for the file.")] = "own measurements",
) -> None:
    """Fit the timing model to measured operations (needs scipy, which the extra `calibrate` brings)."""
    from roofmodel.devices import library
    from roofmodel.study.calibrate import calibrate, device_file
    from roofmodel.views import calibration, files

    files.check(output, ("yaml",))
    path, device = library.find(hw), library.load(hw)
    found = calibrate(tables, device, source)
    text = device_file(path.read_text(encoding="utf-8"), found)
    _note(f"wrote {files.write(output, draw=None, texts={'yaml': lambda: text.rstrip()})}")
    _print_rich(calibration.table(device, found))


# --- Doors ------------------------------------------------------------------------------------------


def _known_format(form: str, known: tuple[str, ...]) -> None:
    if form not in known:
        raise WorkloadError(f"--format: unknown format {form!r}{choices(form, known)}")


def _show(view: Any, form: str) -> None:
    _known_format(form, ("table", "json"))
    if form == "table":
        _print_rich(view.table)
    else:
        import json

        _print(json.dumps(view.data, indent=1))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_rich(renderable: Any) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print(renderable)


def _note(text: str) -> None:
    prefix = "" if text.startswith(("warning: ", "wrote ")) else "note: "
    sys.stderr.write(f"{prefix}{text}\n")


def main() -> None:
    """The console script: runs `app`, and turns every error into one clear line and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for as long as the process lives
        getattr(sys, name).reconfigure(errors=plain.ERRORS)  # a C locale has no box characters
    if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED, under which what a full disk cuts off is lost
        fd, encoding = sys.stdout.fileno(), sys.stdout.encoding
        sys.stdout = open(fd, "w", encoding=encoding, errors=plain.ERRORS, closefd=False)  # noqa: SIM115
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except RoofError as error:
        status = _fail(str(error))
    except (BrokenPipeError, SystemExit):  # the reader, `head` say, has had enough (typer exits on it)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        if os.environ.get("ROOF_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename is None:  # stdout's disk is full, say
            status = _fail(f"the output cannot be written ({error.strerror})")
        elif hasattr(error, "format_message"):  # typer's word for a command line that it cannot read
            status = _usage(error)
        else:
            _fail(
                f"a bug in roofmodel ({type(error).__name__}: {error}); "
                "please report it with the command; ROOF_DEBUG=1 shows where"
            )
            status = 1
    sys.exit(status)


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2


def _usage(error: Any) -> int:
    message = error.format_message().strip().rstrip(".")
    if not message:  # no command was given, and the help is printed already
        return 2
    context = getattr(error, "ctx", None)
    return _fail(message + (f" (see '{context.command_path} -h')" if context else ""))
