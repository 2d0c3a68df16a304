"""`roof validate` and `roofmodel.validate`: errors of bound and expected time on measured operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, WorkloadError
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import EngineName, EngineOption, PathLike
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import present

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.measure.validate import Validation


class ValidationReport(Result):
    """Result of `validate`: errors of bound and expected time on measured operations."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, "csv", "json")
    FORMATS: ClassVar[Sequence[str]] = ("json",)

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.validation.warnings))

    def answer(self) -> Document:
        """The errors by operation, size, kernel with formats, and use in the fit of the parameters."""
        from roofmodel.measure.validate_answer import document

        return document(self.validation)

    def rows_to_check(self) -> list[dict[str, Any]]:
        """The rows of `--fail-if`: operations, with the errors as `bound_mape`, `expected_mape` and others."""
        rows = []
        document = self.to_dict()
        for op, errors in {"all": document, **document["by_op"]}.items():
            parts = {kind: errors[kind] or {} for kind in ("bound", "expected")}
            named = {f"{kind}_{name}": value for kind, each in parts.items() for name, value in each.items()}
            rows.append({"op": op, "n": errors["n"], **named})
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """All rows of the table with the columns that `roof validate -o rows.csv` adds."""
        import io

        import pandas

        from roofmodel.measure.validate_answer import rows_csv

        return pandas.read_csv(io.StringIO(rows_csv(self.validation)))

    def _write(self, form: str, file: Path) -> None:
        """All rows with their predictions as csv, the errors as json, or a picture."""
        if form != "csv":
            super()._write(form, file)
            return
        from roofmodel.measure.validate_answer import rows_csv

        file.write_text(rows_csv(self.validation) + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        return f"<ValidationReport of {self.validation.file} on {self.validation.device.name}>"


@checked
def validate(
    table: PathLike, hw: Hardware, *, engine: EngineName | None = None, engine_option: EngineOption | None = None
) -> ValidationReport:
    """Compute the errors of bound and expected time for measured operations.

    Expected times are those of the kernels in the table's column `kernel`. Raises RoofError.

    Args:
        table: CSV table of measured operations: op, dtype, latency_us and the shape columns.
        hw: The device on which the operations were measured.
        engine: Engine whose kernels run rows without a kernel, such as vllm (default: the device's own).
        engine_option: KEY=VALUE, such as attention=triton, as for estimate.

    Examples:
        >>> validate("rows.csv", "a100")  # doctest: +SKIP
    """
    from roofmodel.engines.engine import Engine
    from roofmodel.measure.validate import validate as study
    from roofmodel.options.workload import valid
    from roofmodel.steps.options import check_kernels

    if engine_option and engine is None:
        raise WorkloadError(Option("engine_option"), " needs ", Option("engine"))
    loaded_engine = None if engine is None else Engine.load(engine, valid("engine_option", engine_option or ()))
    device = Device.load(hw)
    if loaded_engine is not None:
        check_kernels(loaded_engine, [device])
    return ValidationReport(study(values.path("table", table), device, loaded_engine))


def _run(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    present(call(), form, output, warn_first=True)


COMMAND = CommandLine(
    validate,
    files=".csv (all rows, with bound and expected time) .json .png .svg .pdf",
    run=_run,
    checks=("operations", "expected_mape>10%"),
    examples=(
        "roof validate measured.csv --hw a100",
        "roof validate measured.csv --hw h100 -o errors.png",
        "roof validate measured.csv --hw own.yaml --format json -o rows.csv",
    ),
)
