"""Draw the picture of the page that ``distdemo trace --output`` writes: docs/trace-page.png.

Run by ``make picture``. The page of a ring that has just been run is opened in the system's own
Chromium, in the middle of a round. Where there is none nothing is drawn, and the reason is told.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from draw import traced  # the folder of a script is on its path

from distdemo.launcher.torch_import import load_torch
from distdemo.trace.page import page as page_of

HERE = Path(__file__).resolve().parent
NAMES = ("chromium", "google-chrome", "google-chrome-stable")
# Root, as whom containers run, is refused a sandbox; nothing here needs a GPU.
FLAGS = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
WIDTH, HEIGHT = 900, 822  # of the picture in pixels, from the top of the page
LIMIT = 20_000  # milliseconds for anything that the browser is asked
ROUNDS = 2  # that are over
MIDDLE = 500  # milliseconds of the next one, of 1600: its messages are on their way


def main(file: Path) -> None:
    """Draw the picture into this file."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        sys.stderr.write(f"No Chromium here: {file.name} stays as it is.\n")
        return
    load_torch()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(page_of(traced()), encoding="utf-8")
        photograph(browser, page, file)


def photograph(browser: str, page: Path, file: Path) -> None:
    """What the browser shows of this page, on a light ground; its own files lie beside it."""
    from playwright.sync_api import sync_playwright

    own: dict[str, str | float | bool] = {
        **os.environ,
        "HOME": str(page.parent),
        "TMPDIR": str(page.parent),
    }
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=browser, args=FLAGS, env=own, timeout=LIMIT
        )
        tab = started.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1, color_scheme="light"
        )
        tab.set_default_timeout(LIMIT)
        tab.goto(page.as_uri())
        tab.evaluate(f"trace.go({ROUNDS}); trace.play(); trace.advance({MIDDLE}); trace.pause()")
        tab.screenshot(path=file)
        started.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE / "trace-page.png")
