"""Results of the functions that list and show models, families and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, RenderedResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.catalog import listing
    from roofmodel.devices.device import Device


class Listing(TextResult):
    """Result of `list_models`, `show_model`, `list_hardware` …: a table, and its content as `data`."""

    def __init__(
        self, listing: listing.ListingContent, notes: Sequence[Text] = (), warnings: Sequence[str] = ()
    ) -> None:
        self.listing = listing
        self._notes = tuple(notes)
        self._warnings = tuple(warnings)

    @property
    def data(self) -> Any:
        """What `--format json` prints: lists and dictionaries."""
        return self.listing.data

    def _messages(self) -> Iterable[Text]:
        return self._notes

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def to_frame(self) -> pandas.DataFrame:
        """One row per model, family or device; of a single one, one row per field."""
        import pandas

        return pandas.DataFrame(self.data) if isinstance(self.data, list) else pandas.json_normalize(self.data).T

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.data)}

    def __rich__(self) -> Any:
        return self.listing.table

    def __repr__(self) -> str:
        content = f"{len(self.data)} entries" if isinstance(self.data, list) else self.data["name"]
        return f"<Listing of {content}>"


class DeviceListing(Listing, FileResult):
    """Result of `show_hardware`: a device, which `save` writes as a YAML file."""

    def __init__(self, listing: listing.ListingContent, yaml: Callable[[], str], notes: Sequence[Text] = ()) -> None:
        super().__init__(listing, notes)
        self._yaml = yaml

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("yaml", "json")

    def save(self, path: PathLike) -> Path:
        """Write the device: its YAML file, or the document (json)."""
        from roofmodel.files import output_files

        return output_files.write(values.path("path", path), None, {"yaml": self._yaml, **self._texts()})


class HardwareCheck(RenderedResult):
    """Result of `check_hardware`: a valid device file, with warnings for doubtful entries."""

    def __init__(self, file: str, device: Device, doubts: Sequence[str]) -> None:
        self.file = file
        self.device = device
        self.doubts = tuple(doubts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Entries that do not agree with others of the file."""
        return tuple(f"{self.file}: {doubt}" for doubt in self.doubts)

    def __str__(self) -> str:
        doubts = len(self.doubts)
        count = f", {doubts} warning{'s' if doubts > 1 else ''}" if doubts else ""
        return f"{self.file}: {self.device.name}: valid{count}"

    def __rich__(self) -> Any:
        return str(self)
