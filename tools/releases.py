"""Test distdemo with torch releases: run the core tests and the check in an environment of each.

    python tools/releases.py                  # all supported releases
    python tools/releases.py 2.8.0 2.15.0     # these releases
    python tools/releases.py --maps 2.15.0    # also probe gloo and merge the maps
    python tools/releases.py --python python3.13 2.13.0    # with this Python

Environments are created once in CACHE/RELEASE, or CACHE/RELEASE-PYTHON, with venv and pip. That
requires a network connection and 1 to 7 GB each, because the wheels on PyPI include CUDA. A file
``.ok`` marks a complete environment. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASES = ("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "jsonschema", "hypothesis", "xmlschema")
WITHOUT_TORCH = ("action", "bounds", "ci", "docs", "hostile_text")
"""Files of tests/core that take half of the time, and that hardly depend on torch."""
TESTS = (
    "tests/core",
    *(f"--ignore=tests/core/test_{name}.py" for name in WITHOUT_TORCH),
    "tests/check",
    "tests/demo",
    "tests/calls/test_programs.py",
)
VERSIONS = """
import importlib.util as u, torch, distdemo
print(torch.__version__, u.find_spec("xdist") is not None, distdemo.__file__)
"""


def main() -> int:
    """Test the releases one by one and print a table."""
    asked = arguments()
    asked.cache = asked.cache.resolve()  # steps run in other folders
    releases = asked.releases or RELEASES
    missing = [each for each in releases if not (folder_of(each, asked) / ".ok").exists()]
    if missing:
        print(f"Creating {len(missing)} environments in {asked.cache}, up to 7 GB each.\n")
    rows = []
    for release in releases:
        print(f"torch {release}", flush=True)
        rows.append([release, *one_release(release, asked)])
        print(flush=True)
    if asked.maps:
        probes = [folder_of(release, asked) / "probe.json" for release in releases]
        existing = [probe for probe in probes if probe.exists()]
        merge: list[str | Path] = [sys.executable, ROOT / "tools" / "maps.py", *existing]
        step(merge, asked.cache / "maps.log")
    heads = ["torch", "installed", "tests", "check", *(["map"] if asked.maps else [])]
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    for row in [heads, *rows]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    good = ("passed", "ready", "no tests")
    return 0 if all(cell.startswith(good) for row in rows for cell in row[2:]) else 1


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("releases", metavar="RELEASE", nargs="*", help="2.8.0; default: all")
    parser.add_argument("--cache", type=Path, default=home / "distdemo" / "releases")
    parser.add_argument("--python", help="create environments with this Python")
    parser.add_argument("--again", action="store_true", help="recreate environments and probes")
    parser.add_argument("--maps", action="store_true", help="probe gloo and merge the maps")
    parser.add_argument(
        "--tests", nargs="*", default=TESTS, help="arguments of pytest; none: skip the tests"
    )
    return parser.parse_args()


def folder_of(release: str, asked: argparse.Namespace) -> Path:
    """Return the folder of an environment."""
    cache: Path = asked.cache
    if not asked.python:
        return cache / release
    line = [asked.python, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    return cache / f"{release}-{version}"


def one_release(release: str, asked: argparse.Namespace) -> list[str]:
    """Return the cells of one row: the installed torch and the result of each step."""
    folder = folder_of(release, asked)
    python = folder / "bin" / "python"
    rest = 2 + asked.maps  # steps
    if (asked.again or not (folder / ".ok").exists()) and not make(folder, release, asked):
        return ["no environment", *["not run"] * rest]
    answer = subprocess.run(
        [python, "-c", VERSIONS], cwd=folder, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        return ["broken: --again", *["not run"] * rest]
    installed, has_xdist, where = answer.stdout.strip().split(" ", 2)
    cells = [installed]
    print(f"  installed: torch {installed}", flush=True)
    if not installed.startswith(release) or not Path(where).resolve().is_relative_to(ROOT):
        print(f"  distdemo is imported from {where}", flush=True)
        return ["wrong torch or checkout: --again", *["not run"] * rest]
    at_once = ["-n", "2"] if has_xdist == "True" else []
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *at_once, *asked.tests]
    cells.append(step(tests, folder / "tests.log") if asked.tests else "no tests")
    cells.append(step([python, "-m", "distdemo", "check"], folder / "check.log"))
    if asked.maps:
        file = folder / "probe.json"
        probe: list[str | Path] = [python, "-m", "distdemo", "check", "--probe", "--output", file]
        if asked.again or not file.exists():
            step(probe, folder / "probe.log")  # fails, as many cases do
        cells.append("ready" if file.exists() else "no map")
    return cells


def make(folder: Path, release: str, asked: argparse.Namespace) -> bool:
    """Create an environment with this torch, distdemo's dependencies and the test tools."""
    ready = folder / ".ok"
    ready.unlink(missing_ok=True)
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    others = [line for line in pins if not line.startswith("torch==")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join([*others, f"torch=={release}", ""]))
        constraints.flush()
        pip: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
        ]
        wanted = [f"torch=={release}", "--editable", f"{ROOT}[mpi]", *TOOLS]
        commands: tuple[list[str | Path], ...] = (
            [asked.python or sys.executable, "-m", "venv", folder],
            [*pip, "--constraint", constraints.name, *wanted],
        )
        log = folder.with_name(f"{folder.name}.install.log")
        for command in commands:
            if not step(command, log).startswith("passed"):
                return False
    ready.touch()
    return True


def step(command: Sequence[str | Path], log: Path) -> str:
    """Run a command with its output in a file; return its result and duration as text."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(
            command, cwd=ROOT, stdout=output, stderr=output, check=False
        ).returncode
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    how = "passed" if code == 0 else f"failed ({code})"
    result = f"{how} in {time.monotonic() - began:.0f} s"
    name = " ".join(str(word) for word in command[1:4])
    print(f"  {name}: {result}: {lines[-1][:80] if lines else ''}", flush=True)
    if code:
        print(f"  Full output: {log}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
