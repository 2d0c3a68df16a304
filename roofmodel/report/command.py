"""A command of `roof`: it calls the Python function that its command line states, and presents the result."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from roofmodel.options.command_line import OUTPUT, Settings, is_given, options_of
from roofmodel.options.signature import kinds, own_types
from roofmodel.report.base import NoteChoice, RenderedResult, note_choice
from roofmodel.report.printing import check_format, check_outputs, present

DOCUMENT_FORMATS = ("table", "json", "markdown", "latex")
DOCUMENT_FILES = ".md .tex .json"
NOTES = "Print all notes, not only the three most important ones."


class Call:
    """A public function with the arguments that a command line states; others keep their defaults."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self, **more: Any) -> Any:
        given = {**self.arguments, **more}
        positional: list[Any] = []
        parameters = inspect.signature(self.function).parameters.values()
        for each in parameters if "files" in given else ():  # which are positional, and what is before them
            if each.kind is not each.KEYWORD_ONLY:
                values = given.pop(each.name)
                positional += values if each.kind is each.VAR_POSITIONAL else [values]
        return self.function(*positional, **given)

    @property
    def result(self) -> Any:
        """The class of the result."""
        return own_types(self.function)["return"]

    @property
    def inputs(self) -> list[str]:
        """What the command line gives as a file, or as a name that may also be one."""
        types = own_types(self.function)
        paths = [value for name, value in self.arguments.items() if os.PathLike in kinds(types.get(name))]
        return [path for value in paths for path in (value if isinstance(value, list) else [value])]


def present_result(call: Call, form: Any, output: Sequence[str]) -> None:
    """Call the function, with progress if it reads files, and present the result."""
    if "progress" not in inspect.signature(call.function).parameters:
        present(call(), form, output)
        return
    from roofmodel.report import progress

    with progress.reading_progress() as callback:
        report = call(progress=callback)
    present(report, form, output)


def command(
    function: Callable[..., Any],
    *,
    examples: Sequence[str] = (),
    formats: Sequence[str] = (),
    files: str = "",
    settings: Settings | None = None,
    about: str = "",
    run: Callable[..., None] = present_result,
    group: typer.Typer | None = None,
    name: str | None = None,
) -> typer.Typer:
    """The command that calls a public function. Its arguments, options and help are those of the function.

    `formats` are those of `--format`, `files` the suffixes of `-o FILE`; without them there is no such option, and
    without `formats` alone `-o` is required. `settings` is what `--help` shows of options besides their declaration.
    `run` calls the function and presents the result: its parameters are the `Call`, the format, the files, and options
    of the command that the function does not have. `about` replaces the first paragraph of the docstring.
    """
    own = [*inspect.signature(run, eval_str=True).parameters.values()][3:]
    options = [*_output_options(formats, files), *(each.replace(kind=each.KEYWORD_ONLY) for each in own)]
    if getattr(Call(function, {}).result, "_messages", None) not in (None, RenderedResult._messages):
        options.append(_option("notes", bool, False, typer.Option("--notes", help=NOTES, rich_help_panel=OUTPUT)))
    of_function = options_of(function, settings or {})
    position = sum(each.name in own_types(function) for each in of_function)  # the options of a workload are the last

    def body(command_line: typer.Context, **values: Any) -> None:
        further = {each.name: values.pop(each.name) for each in options}
        form, output, every = (
            further.pop("form", "table"),
            further.pop("output", None) or [],
            further.pop("notes", False),
        )
        call = Call(function, {name: value for name, value in values.items() if is_given(command_line, name)})
        if formats:
            check_format(form, formats)
        check_outputs(call.result, output, call.inputs)
        with note_choice(NoteChoice(every, partial(is_given, command_line))):
            run(call, form, output, **further)

    context = inspect.Parameter("command_line", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    shown = [context, *of_function[:position], *options, *of_function[position:]]
    body.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    app = group or typer.Typer(add_completion=False)
    text = about or " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    app.command(name, help=text, epilog="\n\n".join(["Examples:", *examples]) if examples else None)(body)
    return app


def _output_options(formats: Sequence[str], files: str) -> list[inspect.Parameter]:
    """`--format` and `-o`."""
    options = []
    if formats:
        text = f"{', '.join(formats[:-1])} or {formats[-1]}{', on stdout' if files else ''}."
        options.append(_option("form", str, formats[0], typer.Option("--format", help=text, rich_help_panel=OUTPUT)))
    if files:
        text = f"Also write FILE: {files}" if formats else f"FILE {files}"
        option = typer.Option("-o", "--output", help=text, rich_help_panel=OUTPUT)
        empty = inspect.Parameter.empty
        options.append(
            _option("output", list[str] | None if formats else list[str], None if formats else empty, option)
        )
    return options


def _option(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
