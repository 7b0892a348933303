"""Draw the documents' pictures from real runs: docs/*.svg, and docs/trace-page.png.

Run by ``make picture``. A second run only changes the measured times. A recording shows a terminal,
with each line at the time at which it was printed. The page that ``distdemo trace --output`` writes
is captured in the middle of a round with the system's Chromium; without Chromium its picture is
unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from distdemo.view.blocks import Paragraph
from distdemo.view.slide import draw_picture

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
COMMANDS = {
    "all-reduce": "all-reduce -n 4",
    "scatter": "scatter -n 4",
    "trace": "trace -n 3",
}
"""Command of each picture."""
RECORDINGS = {
    "run": "run absent.py:train -n 4",
    "parity": "parity by_hand.py -n 2",
}
"""Command of each recording: it finds a mistake, and exits with 1."""
COLUMNS = 80
READ_S = 6  # after the last line, before a recording begins again
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
        run(command, folder / f"{name}.svg")
    for name, command in RECORDINGS.items():
        (folder / f"{name}.svg").write_text(animated(command, recorded(command)), "utf-8")
    with tempfile.TemporaryDirectory() as drawn:
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            sys.stderr.write("Chromium not found: trace-page.png is unchanged.\n")
            return
        page = Path(drawn, "page.html")
        run("trace -n 4", page)
        screenshot(browser, page, folder / "trace-page.png")


def run(command: str, file: Path) -> None:
    """Run a command among the examples, and write its output to this file."""
    words = [sys.executable, "-m", "distdemo", *command.split(), "--output", str(file)]
    done = subprocess.run(words, check=False, cwd=EXAMPLES)  # noqa: S603 - our own command
    if done.returncode:
        sys.exit(f"{command} exited with {done.returncode}")


def recorded(command: str) -> list[tuple[float, str]]:
    """Run a command on a terminal; return its lines, with the seconds until each was complete."""
    words = [sys.executable, "-m", "distdemo", *command.split()]
    env = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }
    ours, theirs = os.openpty()
    began = time.monotonic()
    program = subprocess.Popen(  # noqa: S603 - our own command
        words, cwd=EXAMPLES, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    lines: list[tuple[float, str]] = []
    with (
        os.fdopen(ours, encoding="utf-8", newline="\n") as terminal,
        contextlib.suppress(OSError),  # when the command has closed its end
    ):
        lines.extend((time.monotonic() - began, line.rstrip()) for line in terminal)
    if program.wait(LIMIT_MS / 1000) != 1:
        sys.exit(f"{command} exited with {program.returncode}")
    return lines


def animated(command: str, lines: Sequence[tuple[float, str]]) -> str:
    """Return an SVG that shows the lines of a command one after the other, again and again."""
    typed = Text(f"$ distdemo {command}", style="bold")
    blocks = [Paragraph(text) for text in (typed, *(Text.from_ansi(line) for _, line in lines))]
    picture = draw_picture("svg", f"distdemo {command}", lambda _: blocks).decode()
    rows = list(dict.fromkeys(re.findall(r' y="([0-9.]+)"', picture)))[1:]
    times = [seconds for seconds, line in lines if line]
    end = times[-1] + READ_S
    rules = [f"text {{animation: {end:.1f}s step-start infinite}}"]
    for y, seconds in zip(rows, times, strict=True):
        rules += [
            f"@keyframes at{y.replace('.', '-')} {{0%, {100 * seconds / end:.2f}% {{opacity: 0}}}}",
            f'text[y="{y}"] {{animation-name: at{y.replace(".", "-")}}}',
        ]
    moving = "\n".join(["@media (prefers-reduced-motion: no-preference) {", *rules, "}"])
    return picture.replace("</title>", f"</title>\n<style>\n{moving}\n</style>", 1)


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
