"""A command of `roof`: it calls the Python function that its command line states, and presents the result."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer

from roofmodel.options.signature import OUTPUT, Settings, is_given, kinds, options_of, own_types
from roofmodel.report.base import NoteChoice, RenderedResult, note_choice
from roofmodel.report.checks import FAILED, checking
from roofmodel.report.printing import check_format, check_outputs, present, print_line

DOCUMENT_FORMATS = ("table", "json", "markdown", "latex")
DOCUMENT_FILES = ".md .tex .pdf .json"
NOTES = "Print all notes, not only the three most important ones."


class CommandCall(NamedTuple):
    """The call of a public function that a command line states."""

    function: Callable[..., Any]
    given: Mapping[str, Any]
    """The arguments that the command line states; the others have their defaults."""

    def __call__(self, **more: Any) -> Any:
        arguments = {**self.given, **more}
        positional: list[Any] = []
        parameters = inspect.signature(self.function).parameters.values()
        for each in parameters if "files" in arguments else ():  # which are positional, and what is before them
            if each.kind is not each.KEYWORD_ONLY:
                values = arguments.pop(each.name)
                positional += values if each.kind is each.VAR_POSITIONAL else [values]
        return self.function(*positional, **arguments)

    @property
    def inputs(self) -> list[str]:
        """What the command line gives as a file, or as a name that may also be one."""
        types = own_types(self.function)
        paths = [value for name, value in self.given.items() if os.PathLike in kinds(types.get(name))]
        return [path for value in paths for path in (value if isinstance(value, list) else [value])]


def call_with_progress(call: CommandCall) -> Any:
    """The result of the call, with progress on stderr while a function with `progress` reads files."""
    if "progress" not in inspect.signature(call.function).parameters:
        return call()
    from roofmodel.report import progress

    with progress.reading_progress() as callback:
        return call(progress=callback)


def present_result(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Call the function and present its result."""
    present(call_with_progress(call), form, output)


def command(
    function: Callable[..., Any],
    *others: Callable[..., Any],
    examples: Sequence[str] = (),
    formats: Sequence[str] = (),
    files: str = "",
    settings: Settings | None = None,
    about: str = "",
    checks: tuple[str, str] | None = None,
    run: Callable[..., None] = present_result,
    group: typer.Typer | None = None,
    name: str | None = None,
    context: dict[str, Any] | None = None,
) -> typer.Typer:
    """The command that calls a public function. Its arguments, options and help are those of the function.

    Further options are those of `others`, which `run` calls. `formats` are those of `--format`, `files` the suffixes of
    `-o FILE`; without them there is no such option, and without `formats` alone `-o` is required. `settings` is what
    `--help` shows of options besides their declaration, `about` replaces the first paragraph of the docstring. `checks`
    names the rows of `--fail-if`, with an example; without it there is no such option. `run` calls the function and
    presents the result: its parameters are the call, the format, the files, and options that only the command has.
    """
    result = own_types(function)["return"]
    of_run = [*inspect.signature(run, eval_str=True).parameters.values()][3:]
    of_output = _output_options(formats, files, has_notes=_has_notes(result), checks=checks)
    of_function, of_workload = options_of((function, *others), settings or {})

    def body(command_line: typer.Context, **values: Any) -> None:
        shown = {option.name: values.pop(option.name) for option in of_output}
        further = {option.name: values.pop(option.name) for option in of_run}
        form, output = shown.get("form", "table"), shown.get("output") or ()
        call = CommandCall(function, _given(command_line, values))
        if formats:
            check_format(form, formats)
        check_outputs(result, output, call.inputs)
        chosen = NoteChoice(shown.get("notes", False), partial(is_given, command_line))
        with note_choice(chosen), checking(shown.get("fail_if") or ()) as checked:
            run(call, form, output, **further)
        for line in checked.warnings:
            print_line(line)
        if checked.failed:
            for line in checked.failed:
                print_line(f"failed: {line}")
            raise typer.Exit(FAILED)

    command_line = inspect.Parameter("command_line", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    of_command = (option.replace(kind=option.KEYWORD_ONLY) for option in of_run)
    shown = [command_line, *of_function, *of_output, *of_command, *of_workload]  # the order of `--help`
    body.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    app = group or typer.Typer(add_completion=False)
    text = about or " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    app.command(name, help=text, epilog=_epilog(examples), context_settings=context)(body)
    return app


def command_group(about: str, examples: Sequence[str]) -> typer.Typer:
    """A command that consists of several; `command` adds each of them."""
    return typer.Typer(add_completion=False, help=about, no_args_is_help=True, epilog=_epilog(examples))


def _epilog(examples: Sequence[str]) -> str | None:
    return "\n\n".join(["Examples:", *examples]) if examples else None


def _given(command_line: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the command line states. A list of devices may also be one text, as in `--hw a100,h100`."""
    arguments = {name: value for name, value in values.items() if is_given(command_line, name)}
    if isinstance(arguments.get("hw"), list):
        arguments["hw"] = [name.strip() for names in arguments["hw"] for name in names.split(",")]
    return arguments


def _has_notes(result: Any) -> bool:
    return issubclass(result, RenderedResult) and result._messages is not RenderedResult._messages


def _output_options(
    formats: Sequence[str], files: str, has_notes: bool, checks: tuple[str, str] | None
) -> list[inspect.Parameter]:
    """`--format`, `-o`, `--notes` and `--fail-if`, as far as the command has them."""
    options = []
    if formats:
        text = f"Format of the output{' on stdout' if files else ''}."
        options.append(_output_option("form", str, formats[0], "--format", help=text, metavar="|".join(formats)))
    if files:
        kind, default = (list[str] | None, None) if formats else (list[str], inspect.Parameter.empty)
        text = f"Also write FILE: {files}" if formats else f"FILE {files}"
        options.append(_output_option("output", kind, default, "-o", "--output", help=text, metavar="FILE"))
    if has_notes:
        options.append(_output_option("notes", bool, False, "--notes", help=NOTES))
    if checks:
        rows, example = checks
        text = f"Exit with status 3 if one of the {rows} satisfies EXPRESSION, such as '{example}'; repeatable."
        options.append(_output_option("fail_if", list[str] | None, None, "--fail-if", help=text, metavar="EXPRESSION"))
    return options


def _output_option(name: str, kind: Any, default: Any, *flags: str, **shown: str) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(*flags, rich_help_panel=OUTPUT, **shown)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
