"""Draw the picture of the page that ``distdemo trace --output`` writes: docs/trace-page.png.

Run by ``make picture``. It runs a ring, opens its page in the system's Chromium, and captures the
middle of a round. Without Chromium it only prints a message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("chromium", "google-chrome", "google-chrome-stable")
# Chromium has no sandbox for root, the user of containers; no GPU is needed.
FLAGS = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
WIDTH, HEIGHT = 900, 822  # picture size in pixels, from the top of the page
LIMIT = 20_000  # milliseconds per request to the browser
ROUNDS = 2  # completed rounds
MIDDLE = 500  # milliseconds into the next round of 1600: messages are in transit


def main(file: Path) -> None:
    """Write the picture to this file."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        sys.stderr.write(f"Chromium not found: {file.name} is unchanged.\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        run = [sys.executable, "-m", "distdemo", "trace", "-n", "4", "--output", str(page)]
        subprocess.run(run, check=True)  # noqa: S603 - our own command
        screenshot(browser, page, file)


def screenshot(browser: str, page: Path, file: Path) -> None:
    """Save a screenshot of this page in light mode; the browser's files go next to the page."""
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
