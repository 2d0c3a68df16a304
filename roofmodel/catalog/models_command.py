"""`roof models` and its functions: the packaged models, the families, and the architecture of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from roofmodel.errors import LIST_FAMILIES, LIST_MODELS, Command, ModelError, Text, shorten, suggest
from roofmodel.options.signature import checked
from roofmodel.options.values import Model
from roofmodel.report.base import Result
from roofmodel.report.command import CommandGroup, CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    import pandas

Entry = TypeVar("Entry")


class Listing(Result):
    """Result of `list_models`, `show_model`, `list_hardware` …: a table, and its content as `data`."""

    def __init__(
        self,
        document: Document,
        complete: Document | None = None,
        notes: Sequence[Text] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        self._answer = document
        self._complete = complete or document
        self._notes = tuple(notes)
        self._warnings = tuple(warnings)

    def answer(self) -> Document:
        """The table."""
        return self._answer

    def complete(self) -> Document:
        """The table with all rows."""
        return self._complete

    @property
    def data(self) -> Any:
        """What `--format json` prints: lists and dictionaries."""
        return self._complete.data()

    def to_dict(self) -> Any:
        """The same as `data`."""
        return self.data

    def _messages(self) -> Iterable[Text]:
        return self._notes

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def to_frame(self) -> pandas.DataFrame:
        """One row per model, family or device; of a single one, one row per field."""
        import pandas

        return pandas.DataFrame(self.data) if isinstance(self.data, list) else pandas.json_normalize(self.data).T

    def __repr__(self) -> str:
        content = f"{len(self.data)} entries" if isinstance(self.data, list) else self.data["name"]
        return f"<Listing of {content}>"


@checked
def list_models(containing: str | None = None, *, served: bool = False) -> Listing:
    """List the packaged models.

    Raises ModelError where there is none.

    Args:
        containing: List only models whose name or type contains this text.
        served: List only the models that are served most, newest first.

    Examples:
        >>> list_models("gpt2-xl").data[0]["parameters"]
        1557611200
        >>> list_models("mixtral-8x7b").data[0]["active"]
        12879925248
        >>> list_models("glm", served=True).data[0]["name"]
        'zai-org/GLM-5.2'
    """
    from roofmodel.catalog import answer
    from roofmodel.models import hub

    models = list(hub.catalog())
    if served:
        from roofmodel.models.served import SERVED

        models = [model for name in SERVED if (model := hub.packaged(name))]
    if containing is not None:
        models = containing_entries(containing, models, lambda model: (model.id, model.config["model_type"]))
        if not models:
            names = (
                name for model in hub.catalog() for name in (model.id.partition("/")[2], model.config["model_type"])
            )
            raise ModelError(*none_contains("model", containing, names, LIST_MODELS))
    return Listing(answer.models(models, served))


@checked
def list_families(containing: str | None = None) -> Listing:
    """List the model types that can be counted, with their classes.

    Raises ModelError where there is none.

    Args:
        containing: List only model types whose name or classes contain this text.

    Examples:
        >>> "llama" in [family["model_type"] for family in list_families().data]
        True
    """
    from roofmodel.catalog import answer
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES

    classes = answer.classes({**FAMILIES, **CUSTOM_CODE})
    names = list(classes)
    if containing is not None:
        names = containing_entries(containing, names, lambda name: (name, *classes[name]))
        if not names:
            raise ModelError(*none_contains("model type or class", containing, classes, LIST_FAMILIES))
    chosen = ({name: group[name] for name in names if name in group} for group in (FAMILIES, CUSTOM_CODE))
    return Listing(answer.families(*chosen))


@checked
def show_model(model: Model, *, family: str | None = None) -> Listing:
    """Show the architecture of a model, and the config key of each field.

    Raises ModelError.

    Args:
        model: A model, as for estimate.
        family: Read an unknown model_type as this family, such as llama.

    Examples:
        >>> show_model("gpt2").data["fields"]["hidden"]["value"]
        768
    """
    from roofmodel.catalog import answer
    from roofmodel.models import hub

    architecture = hub.load(model, family)
    entry = hub.packaged(model) if isinstance(model, str) else None
    shown, every = (answer.model(architecture, entry, defaults) for defaults in (False, True))
    return Listing(shown, every, notes=architecture.notes)


def containing_entries(text: str, entries: Iterable[Entry], names: Callable[[Entry], Iterable[str]]) -> list[Entry]:
    """The entries that have a name with the text in it, in any case."""
    wanted = text.lower()
    return [entry for entry in entries if any(wanted in name.lower() for name in names(entry))]


def none_contains(kind: str, text: str, names: Iterable[str], listing: Command) -> tuple[str | Command, ...]:
    """The message that no name contains a text, with similar names."""
    hint = suggest(text, names)
    return f"no {kind} name contains {shorten(text)}{hint or ';'} ", listing, " lists all"


_CONTAINING = {"containing": {"metavar": "text"}}
COMMAND = CommandGroup(
    "List the packaged models and the supported families, and show the architecture of a model.",
    (
        CommandLine(list_models, name="list", settings=_CONTAINING),
        CommandLine(list_families, name="families", settings=_CONTAINING),
        CommandLine(show_model, name="show"),
    ),
    examples=(
        "roof models list",
        "roof models list llama",
        "roof models list --served",
        "roof models families",
        "roof models show gpt2-xl",
    ),
)
