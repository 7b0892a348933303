"""Draw the documents' pictures from real runs: docs/*.svg, and docs/trace-page.png.

Run by ``make picture``. A second run only changes the measured times. The page that
``distdemo trace --output`` writes is captured in the middle of a round with the system's Chromium;
without Chromium its picture is unchanged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
COMMANDS = {
    "all-reduce": "all-reduce -n 4",
    "scatter": "scatter -n 4",
    "trace": "trace -n 3",
    "run": "run absent.py:train -n 4",
    "parity": "parity by_hand.py -n 2",
}
"""Command of each picture."""
FAULTY = {"run", "parity"}
"""Pictures of what is found in a program that is wrong."""
BROWSERS = ("chromium", "google-chrome", "google-chrome-stable")
# Chromium has no sandbox for root, the user of containers; no GPU is needed.
FLAGS = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
WIDTH, HEIGHT = 900, 822  # size of the page's picture in pixels, from the top of the page
LIMIT_MS = 20_000  # per request to the browser
ROUNDS = 2  # completed rounds
MIDDLE_MS = 500  # into the next round of 1600: messages are in transit


def main(folder: Path) -> None:
    """Draw all pictures into this folder."""
    for name, command in COMMANDS.items():
        run(command, folder / f"{name}.svg", status=int(name in FAULTY))
    with tempfile.TemporaryDirectory() as drawn:
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            sys.stderr.write("Chromium not found: trace-page.png is unchanged.\n")
            return
        page = Path(drawn, "page.html")
        run("trace -n 4", page)
        screenshot(browser, page, folder / "trace-page.png")


def run(command: str, file: Path, status: int = 0) -> None:
    """Run a command among the examples, and write its output to this file."""
    words = [sys.executable, "-m", "distdemo", *command.split(), "--output", str(file)]
    done = subprocess.run(words, check=False, cwd=EXAMPLES)  # noqa: S603 - our own command
    if done.returncode != status:
        sys.exit(f"{command} exited with {done.returncode}")


def screenshot(browser: str, page: Path, file: Path) -> None:
    """Save a screenshot of this page in light mode; the browser's files go next to the page."""
    from playwright.sync_api import sync_playwright

    home = str(page.parent)
    env: dict[str, str | float | bool] = {**os.environ, "HOME": home, "TMPDIR": home}
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=browser, args=FLAGS, env=env, timeout=LIMIT_MS
        )
        tab = started.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1, color_scheme="light"
        )
        tab.set_default_timeout(LIMIT_MS)
        tab.goto(page.as_uri())
        tab.evaluate(f"trace.go({ROUNDS}); trace.play(); trace.advance({MIDDLE_MS}); trace.pause()")
        tab.screenshot(path=file)
        started.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
