"""Counted operations: claims about growth and limits that neither a clock nor other work on the machine decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class _LimitExceeded(BaseException):
    """No `except Exception` of the counted code catches it."""


def operations(run: Callable[[], object], limit: int = 10**7) -> int:
    """The number of bytecode instructions that `run` executes; a call of a C function counts as one.

    Raises AssertionError as soon as there are more than `limit`.
    """
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        if counted > limit:
            raise _LimitExceeded
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except _LimitExceeded:
        raise AssertionError(f"more than {limit} operations") from None
    finally:
        sys.settrace(before)
    return counted
