"""A command of `roof`: it calls the Python function that its command line states, and presents the result.

Each command is declared once, as a `CommandLine` beside its function. This module makes a command of typer from it;
typer is imported only then, so that Python programs that call the function do not need it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from roofmodel.errors import Text
from roofmodel.options.signature import kinds, own_types
from roofmodel.report.base import NoteChoice, RenderedResult, Result, note_choice
from roofmodel.report.printing import check_format, check_outputs, ignored, present, print_line

if TYPE_CHECKING:
    import typer

NOTES = "Print all notes, not only the three most important ones."


class CommandCall(NamedTuple):
    """The call of a public function that a command line states."""

    function: Callable[..., Any]
    given: Mapping[str, Any]
    """The arguments that the command line states; the others have their defaults."""

    def __call__(self, **more: Any) -> Any:
        """The result of the call with `more` arguments; a function with `progress` prints it on stderr by default."""
        arguments, positional = {**self.given, **more}, list[Any]()
        parameters = inspect.signature(self.function).parameters
        for each in parameters.values() if "files" in arguments else ():  # which are positional, as what precedes them
            if each.kind is not each.KEYWORD_ONLY:
                values = arguments.pop(each.name)
                positional += values if each.kind is each.VAR_POSITIONAL else [values]
        if "progress" not in parameters or "progress" in more:
            return self.function(*positional, **arguments)
        from roofmodel.report import printing

        with printing.reading_progress() as callback:
            return self.function(*positional, **arguments, progress=callback)

    @property
    def inputs(self) -> list[str]:
        """What the command line gives as a file, or as a name that may also be one."""
        types = own_types(self.function)
        paths = [value for name, value in self.given.items() if os.PathLike in kinds(types.get(name))]
        return [path for value in paths for path in (value if isinstance(value, list) else [value])]


def present_result(
    call: Callable[[], Any], form: Any, output: Sequence[str], shown: Mapping[str, Any] | None = None,
    notes: Sequence[Text] = (),
) -> None:  # fmt: skip
    """Call the function and present its result, with further `notes`; `shown` are the given options of its `answer`."""
    result = call()
    if form == "table" and isinstance(result, Result):
        from roofmodel.report.terminal import TerminalDocument

        document = result.table(**(shown or {})).document
        present(result, form, output, table=TerminalDocument(document, more=True), notes=notes)
    else:
        without_table = ignored(shown or (), "it changes the table in a terminal only")
        present(result, form, output, notes=[*notes, *without_table])


class CommandLine(NamedTuple):
    """A command that calls a public function. Its arguments, options and help are those of the function.

    The options of the `answer` of its result select what a terminal shows; the formats and files are those of the
    result.
    """

    function: Callable[..., Any]
    others: Sequence[Callable[..., Any]] = ()
    """Functions that `run` calls, too; their options are options of the command."""
    examples: Sequence[str] = ()
    settings: Mapping[str, Mapping[str, Any]] = {}
    """What `--help` shows of options besides their declaration: see `options.signature.Settings`."""
    about: str = ""
    """Replaces the first paragraph of the docstring."""
    checks: tuple[str, str] | None = None
    """The rows of `--fail-if`, with an example; without it there is no such option."""
    run: Callable[..., None] = present_result
    """Calls the function and presents the result. Its parameters are the call, the format, the files, and options that
    only the command has, which its docstring or their annotation explains."""
    name: str | None = None  # in a group of commands
    context: Mapping[str, Any] | None = None
    formats: Sequence[str] | None = None  # of `--format`, the default first; None: those of the result
    files: str | None = None
    """The suffixes of `-o FILE`; None: those of the result. Without `formats` the option is required."""


class CommandGroup(NamedTuple):
    """A command that consists of several."""

    about: str
    commands: Sequence[CommandLine]
    examples: Sequence[str] = ()


def typer_app(declared: CommandLine | CommandGroup) -> typer.Typer:
    """The command as typer runs it."""
    import typer

    if isinstance(declared, CommandLine):
        app = typer.Typer(add_completion=False)
        _add(app, declared)
        return app
    epilog = _epilog(declared.examples)
    app = typer.Typer(add_completion=False, help=declared.about, no_args_is_help=True, epilog=epilog)
    for each in declared.commands:
        _add(app, each)
    return app


def _add(app: typer.Typer, line: CommandLine) -> None:
    """Add a command to an application of typer."""
    import typer

    from roofmodel.options.signature import is_given, options_of

    function, run = line.function, line.run
    declared = own_types(function)["return"]
    results = get_args(declared) or (declared,)
    result = results[0]
    formats, files = _formats_and_files(line, result)
    settings = {name: dict(shown) for name, shown in line.settings.items()}
    of_run = _options_of_run(run, settings)
    of_answer = _options_of_answer(result, settings)
    of_output = _output_options(formats, files, has_notes=any(map(_has_notes, results)), checks=line.checks)
    of_function, of_workload = options_of((function, *line.others), settings)

    def body(command_line: typer.Context, **values: Any) -> None:
        output_values = {option.name: values.pop(option.name) for option in of_output}
        further = {option.name: values.pop(option.name) for option in of_run}
        shown = _given(command_line, {option.name: values.pop(option.name) for option in of_answer})
        form, output = output_values.get("form", "table"), output_values.get("output") or ()
        call = CommandCall(function, _given(command_line, values))
        if formats:
            check_format(form, formats)
        check_outputs(result, output, call.inputs)
        chosen = NoteChoice(output_values.get("notes", False), partial(is_given, command_line))
        presented = partial(run, call, form, output, **further, **({"shown": shown} if of_answer else {}))
        with note_choice(chosen):
            if conditions := output_values.get("fail_if"):
                _run_checked(presented, conditions)
            else:
                presented()

    command_line = inspect.Parameter("command_line", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    of_command = (option.replace(kind=option.KEYWORD_ONLY) for option in of_run)
    parameters = [
        command_line,
        *of_function,
        *of_output,
        *of_answer,
        *of_command,
        *of_workload,
    ]  # the order of `--help`
    body.__annotations__ = {}  # typer takes those of the signature
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    text = line.about or " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    context = None if line.context is None else dict(line.context)
    app.command(line.name, help=text, epilog=_epilog(line.examples), context_settings=context)(body)


def _run_checked(run: Callable[[], None], conditions: Sequence[str]) -> None:
    """Run a command; print the rows that satisfy a condition of `--fail-if`, and exit with its status."""
    import typer

    from roofmodel.report.checks import FAILED, checking

    with checking(conditions) as checked:
        run()
    for text in (*checked.warnings, *(f"failed: {row}" for row in checked.failed)):
        print_line(text)
    if checked.failed:
        raise typer.Exit(FAILED)


def _formats_and_files(line: CommandLine, result: Any) -> tuple[Sequence[str], str]:
    """The formats of `--format`, and the suffixes of `-o` as `--help` lists them."""
    is_document = issubclass(result, Result)
    formats = line.formats if line.formats is not None else ("table", *result.FORMATS) if is_document else ()
    files = line.files if line.files is not None else " ".join(f".{s}" for s in result.FILES) if is_document else ""
    return formats, files


def _options_of_run(run: Callable[..., None], settings: Mapping[str, Mapping[str, Any]]) -> list[inspect.Parameter]:
    """The options that only the command has: explained in the docstring of `run`."""
    from roofmodel.options.signature import options_of

    own = [name for name in [*inspect.signature(run).parameters][3:] if name != "shown"]
    explained, _ = options_of((run,), settings)
    return [option for option in explained if option.name in own]


def _options_of_answer(result: Any, settings: Mapping[str, Mapping[str, Any]]) -> list[inspect.Parameter]:
    """The options that select what a terminal shows: those of the result's `answer`."""
    from roofmodel.options.signature import OUTPUT, options_of

    if not issubclass(result, Result):
        return []
    names = [*inspect.signature(result.answer).parameters][1:]
    if not names:
        return []
    grouped = {name: {"rich_help_panel": OUTPUT, **settings.get(name, {})} for name in names}
    options, _ = options_of((result.answer,), grouped)
    return [option for option in options if option.name in names]


def _epilog(examples: Sequence[str]) -> str | None:
    return "\n\n".join(["Examples:", *examples]) if examples else None


def _given(command_line: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the command line states. A list of devices may also be one text, as in `--hw a100,h100`."""
    from roofmodel.options.signature import is_given

    arguments = {name: value for name, value in values.items() if is_given(command_line, name)}
    if isinstance(arguments.get("hw"), list):
        arguments["hw"] = [name.strip() for names in arguments["hw"] for name in names.split(",")]
    return arguments


def _has_notes(result: Any) -> bool:
    return issubclass(result, RenderedResult) and result._messages is not RenderedResult._messages


def _output_options(
    formats: Sequence[str], files: str, has_notes: bool, checks: tuple[str, str] | None
) -> Iterable[inspect.Parameter]:
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
        text = (
            f"Exit with status 3 if one of the {rows} satisfies CONDITION, such as '{example}': a column, one of "
            "< <= > >= = != ~ !~, and a value with its unit; 'and' joins several. Repeatable."
        )
        options.append(_output_option("fail_if", list[str] | None, None, "--fail-if", help=text, metavar="CONDITION"))
    return options


def _output_option(name: str, kind: Any, default: Any, *flags: str, **shown: str) -> inspect.Parameter:
    import typer

    from roofmodel.options.signature import OUTPUT

    annotation = Annotated[kind, typer.Option(*flags, rich_help_panel=OUTPUT, **shown)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
