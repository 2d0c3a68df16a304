"""What all tests share."""

import pytest


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of progress ahead of a message, however slow the machine; `test_progress.py` asks for its own."""
    monkeypatch.setattr("roofmodel.views.profile.progress.AFTER", 3600.0)
