"""Documents and records as text: JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any


def as_json(document: Any) -> str:
    """Unrounded. Raises ValueError for a NaN or an infinity, which JSON has not."""
    return json.dumps(document, indent=1, allow_nan=False)


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """A line a record under the keys of the first, empty for unknown; nothing where there are none."""
    if not records:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().rstrip("\n")
