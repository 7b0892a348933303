"""A headless browser for the pages that the project writes: one, with one page, for each file.

It is the system's own Chromium, driven by Playwright through a pipe: no port, nothing downloaded.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import MARK, marked_processes, wait_until

from distdemo.trace.page import page as page_of
from distdemo.trace.records import TraceReport

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = ("chromium", "google-chrome", "google-chrome-stable")
LIMIT = 20_000  # milliseconds for anything that the browser is asked
SIZE = {"width": 1200, "height": 900}  # of the window, in pixels
# Root, as whom containers run their tests, is refused a sandbox; nothing here needs a GPU.
FLAGS = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Chromium's page, and after it the proof that all its processes and files are gone."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test does that"
    )
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: install the package chromium (make host-tools)")
    folder = tmp_path_factory.mktemp("browser")
    mark = uuid.uuid4().hex
    own = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder), MARK: mark}
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=FLAGS, env=own, timeout=LIMIT)
        page = started.new_page()
        page.set_default_timeout(LIMIT)
        yield page
        assert marked_processes(mark), "the browser was started without its mark"
        started.close()
    assert wait_until(lambda: not marked_processes(mark))


@pytest.fixture
def complaints() -> list[str]:
    """What the page wrote to the console, or what was wrong with it: nothing in the end."""
    return []


@pytest.fixture
def open_page(tab: Page, tmp_path: Path, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Open the page of a report; arguments are those of Playwright's emulate_media.

    Whatever is asked of a network, or written to the console, fails the test at its end.
    """
    asked: list[str] = []
    watched: dict[str, Callable[[Any], None]] = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: asked.append(request.url),
    }

    def opened(
        report: TraceReport, width: int = SIZE["width"], height: int = SIZE["height"], **how: Any
    ) -> Page:
        file = tmp_path / "page.html"
        file.write_text(page_of(report), encoding="utf-8")
        usual = {"media": "screen", "color_scheme": "light", "reduced_motion": "no-preference"}
        tab.emulate_media(**usual | how)
        tab.set_viewport_size({"width": width, "height": height})
        tab.goto(file.as_uri())
        return tab

    for name, heard in watched.items():
        tab.on(name, heard)  # type: ignore[call-overload]  # one of three names
    yield opened
    for name, heard in watched.items():
        tab.remove_listener(name, heard)
    tab.mouse.move(0, 0)
    own = (tmp_path.as_uri(), "data:")
    assert [url for url in asked if not url.startswith(own)] == []
    assert complaints == []
