"""Build the wheel and the sdist, check them, and use the wheel in an empty environment.

    python tools/dist.py                     # with the Pythons of this machine
    python tools/dist.py --python python3.12 # with this one; --python may be given again
    python tools/dist.py --whole-suite       # also run `make test` in the unpacked sdist

The wheel is installed with its dependencies at the versions of constraints.txt. Exit code 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import email.parser
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MAX_WHEEL_BYTES = 2 << 20
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Pythons that are looked for on PATH."""
COMMANDS = (
    "distdemo --version",
    "distdemo hello",
    "distdemo all-reduce --world-size 4",
    "distdemo p2p --nonblocking",
    "distdemo explain all-reduce --code",
    "distdemo check --quiet",
)
"""Commands of the README, and names that people count on."""
FINDS = {"absent.py:train": (1, "absent.py:14 in train"), "drift.py": (0, "drift.py:18")}
"""The README's programs, with the exit code of `distdemo run` and the line that it names."""
IN_WHEEL = ("distdemo/py.typed", "distdemo/examples/", "distdemo/testing/plugin.py")
NOT_IN_WHEEL = ("tests/", "benchmarks/", "docs/", "tools/", "examples/")
IN_SDIST = ("Makefile", "constraints.txt", "mkdocs.yml", ".ci/run", "LICENSE", "tests/conftest.py")
METADATA = {
    "Name": "distdemo",
    "Requires-Python": ">=3.10",
    "License-Expression": "MIT",
    "License-File": "LICENSE",
    "Description-Content-Type": "text/markdown",
}


def main() -> int:
    """Build, check and try; print a line per step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="try the wheel with this Python")
    parser.add_argument("--whole-suite", action="store_true", help="run make test from the sdist")
    asked = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", DIST, ROOT])
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    problems = [*wheel_problems(wheel), *sdist_problems(sdist)]
    for problem in problems:
        print(f"✗ {problem}")
    for python in asked.python or pythons():
        try_wheel(wheel, python)
    with tempfile.TemporaryDirectory() as folder:  # what the Dockerfile does
        run([sys.executable, "-m", "venv", folder])
        run(["sh", ROOT / "tools" / "image.sh", Path(folder) / "bin" / "python"])
    if asked.whole_suite:
        with tempfile.TemporaryDirectory() as folder:
            shutil.unpack_archive(sdist, folder, filter="data")
            run(["make", "test"], cwd=next(Path(folder).iterdir()))
    if not problems:
        print(f"✓ {wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB; {sdist.name}")
    return bool(problems)


def wheel_problems(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with the contents, the size or the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        (entries,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        facts = email.parser.Parser().parsestr(archive.read(metadata).decode())
        commands = archive.read(entries).decode()
    for part in IN_WHEEL:
        if not any(name.startswith(part) for name in names):
            yield f"the wheel has no {part}"
    for name in names:
        if name.startswith(NOT_IN_WHEEL) or "__pycache__" in name:
            yield f"the wheel has {name}"
    if not any(name.endswith("licenses/LICENSE") for name in names):
        yield "the wheel has no license"
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        yield f"the wheel has {wheel.stat().st_size:,} bytes, more than {MAX_WHEEL_BYTES:,}"
    for field, value in METADATA.items():
        if facts[field] != value:
            yield f"the wheel's {field} is {facts[field]!r} instead of {value!r}"
    for line in ("distdemo = distdemo.__main__:main", "distdemo = distdemo.testing.plugin"):
        if line not in commands:
            yield f"the wheel doesn't register {line}"


def sdist_problems(sdist: Path) -> Iterator[str]:
    """Yield the files that `make test` needs and an sdist doesn't have."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    yield from (f"the sdist has no {name}" for name in IN_SDIST if name not in names)


def pythons() -> list[str]:
    """Return the supported Pythons on PATH and of pyenv that run, or this one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: list[str] = []
    for version in VERSIONS:
        name = f"python{version}"
        paths: list[str | Path] = [
            *pyenv.glob(f"{version}.*/bin/{name}"),
            *filter(None, [shutil.which(name)]),
        ]
        found += [str(path) for path in paths if _runs(path)][:1]
    return found or [sys.executable]


def _runs(python: str | Path) -> bool:
    """Return True if a Python starts; a shim of pyenv may not."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def try_wheel(wheel: Path, python: str) -> None:
    """Install the wheel in an empty environment and run the README's commands there."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        run([python, "-m", "venv", environment])
        pip: list[str | Path] = [environment / "bin/python", "-m", "pip"]
        run([*pip, "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel])
        run([*pip, "check"])
        for command in COMMANDS:
            name, *words = command.split()
            run([environment / "bin" / name, *words], cwd=Path(folder))
        (examples,) = environment.glob("lib/python*/site-packages/distdemo/examples")
        for program, (status, place) in FINDS.items():
            line: list[str | Path] = [environment / "bin" / "distdemo", "run", program]
            if place not in run(line, cwd=examples, status=status):
                sys.exit(f"✗ distdemo run {program} doesn't name {place}")


def run(command: Sequence[str | Path], cwd: Path | None = None, status: int = 0) -> str:
    """Run a command and return its output; exit with that if the exit code is another."""
    line = " ".join(Path(word).name if isinstance(word, Path) else word for word in command)
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != status:
        sys.exit(f"{done.stdout}\n✗ {line} exited with {done.returncode}")
    print(f"✓ {line}", flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
