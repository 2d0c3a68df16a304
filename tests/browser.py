"""Fixtures for tests of pages: a headless browser, and a page opened offline."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.command_line import exit_status


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command line in this process; return its exit status."""
    return exit_status(arguments, monkeypatch)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser, started once by each worker; tests undo what they emulate."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "window-size=1400,1200",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


def until(condition: Callable[[], Any]) -> None:
    """Wait until the condition is true; fail after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition was not true within a minute"
        time.sleep(0.02)


@contextmanager
def opened(chromium: Any, address: str) -> Iterator[None]:
    """A page opened offline; on exit, check that it made no further request and logged no error."""
    chromium.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    chromium.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    chromium.get("about:blank")
    chromium.get_log("performance")
    chromium.get_log("browser")
    chromium.get(address)
    until(lambda: not chromium.find_elements("css selector", "[aria-busy]"))
    yield
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert requests == [address.partition("#")[0]]
    assert chromium.get_log("browser") == []
