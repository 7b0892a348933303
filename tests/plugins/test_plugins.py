"""The pytest plugin beside other plugins.

`make plugins` makes an environment that has them all, and runs this file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from testing.outcomes import FILES, OUTCOMES, copy_samples, outcomes

PYTHON = os.environ.get("DISTDEMO_TEST_PLUGINS_PYTHON", "")
if not PYTHON:
    pytest.skip("`make plugins` runs these tests", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # on a loaded machine
SAMPLES = Path(__file__).parent / "samples"
PLUGINS = {
    "pytest-cov": "--cov=test_ways",
    "pytest-xdist": "-n2",
    "pytest-randomly": "",
    "pytest-rerunfailures": "",
    "pytest-random-order": "--random-order",
    "pytest-timeout": "--timeout=300",
    "pytest-mock": "",
    "pytest-benchmark": "",
    "pytest-asyncio": "",
    "pytest-subtests": "",
    "pytest-html": "--html=report.html",
    "pytest-json-report": "--json-report",
    "hypothesis": "--hypothesis-show-statistics",
}
"""Options with which each plugin does its work."""
NEEDS = {"pytest-html": "pytest-metadata", "pytest-json-report": "pytest-metadata"}
"""Plugins that others require."""


@cache
def entry_points() -> dict[str, list[str]]:
    """Return the names of each distribution's plugins."""
    program = (
        "import json; from importlib.metadata import distributions\n"
        "print(json.dumps({each.metadata['Name']: [point.name for point in each.entry_points"
        " if point.group == 'pytest11'] for each in distributions()}))"
    )
    found: dict[str, list[str]] = json.loads(subprocess.check_output([PYTHON, "-c", program]))
    return found


def run_pytest(folder: Path, *words: str, plugins: tuple[str, ...], program: str = "pytest") -> str:
    """Run pytest in a folder with these plugins only, and return what it printed."""
    loaded = {"distdemo", *plugins, *(NEEDS[name] for name in plugins if name in NEEDS)}
    names = [name for each in sorted(loaded) for name in entry_points()[each]]
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        if "pytest-asyncio" in plugins
        else "[pytest]\n"
    )
    line = [PYTHON, "-m", *program.split(), "-q", "-ra", "-p", "no:cacheprovider"]
    line += ["--junitxml=junit.xml", *(f"-p{name}" for name in names), *words]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        line,
        cwd=folder,
        env={**os.environ, **alone},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def sample(folder: Path, name: str) -> None:
    shutil.copy(SAMPLES / f"{name}.py", folder / f"test_{name}.py")
    shutil.copy(SAMPLES / "halves.py", folder)


def test_all_outcomes_of_pytest_beside_all_plugins(tmp_path: Path) -> None:
    copy_samples(tmp_path)
    words = [option for option in PLUGINS.values() if option]
    out = run_pytest(tmp_path, *words, *FILES, plugins=tuple(PLUGINS))
    found = outcomes(tmp_path / "junit.xml")
    passed = found.pop("passed")
    assert found == OUTCOMES, out
    assert {"test_average", "test_sizes_and_parameters", "test_after_all_that"} <= passed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("asyncio", "1 passed"),
        ("randomly", "1 passed"),
        ("rerunfailures", "1 failed, 1 passed, 1 rerun"),
        ("timeout", "Rank 0 is at test_timeout.py:9 in test_fails"),
    ],
)
def test_what_a_plugin_offers_works_on_ranks(name: str, text: str, tmp_path: Path) -> None:
    sample(tmp_path, name)
    out = run_pytest(tmp_path, plugins=(f"pytest-{name}",))
    found = outcomes(tmp_path / "junit.xml")
    assert found["passed"] == {"test_passes"}, out
    assert text in out


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["--cov=halves", "--cov-branch", "-n2", "--cov-report=json"], "pytest"),
        (["-n2"], "coverage run -m pytest"),
    ],
)
def test_lines_that_run_only_on_ranks_are_counted(
    words: list[str], program: str, tmp_path: Path
) -> None:
    sample(tmp_path, "cov")
    (tmp_path / ".coveragerc").write_text(
        "[run]\npatch = subprocess, fork, _exit\nsource = halves\n"
    )
    plugins = ("pytest-cov", "pytest-xdist") if program == "pytest" else ("pytest-xdist",)
    out = run_pytest(tmp_path, *words, plugins=plugins, program=program)
    if program != "pytest":
        for step in ("combine", "json"):
            subprocess.run([PYTHON, "-m", "coverage", step, "-q"], cwd=tmp_path, check=True)
    measured = json.loads((tmp_path / "coverage.json").read_text())["files"]["halves.py"]
    assert measured["missing_lines"] == [], out
    assert [file.name for file in tmp_path.glob(".coverage.*")] == []
