"""Run ``.ci/run`` over small suites: tests that fail may pass the second time, nothing else may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
RUN = Path(__file__).parents[2] / ".ci/run"
HEAD = """import os, pathlib
import pytest

def first_time(name):
    path = pathlib.Path(name)
    return not path.exists() and path.write_text("") == 0
"""
PASSES_LATER = "@pytest.mark.parametrize('value', ['a b', '[::]'])\ndef test_later(value):\n"
CASES = {
    "passes": ("def test_passes():\n    pass\n", 0, []),
    "second time": (
        f"{PASSES_LATER}    assert not first_time(value)\n",
        0,
        ["test_suite.py::test_later[a b]", "test_suite.py::test_later[[::]]"],
    ),
    "crash": (
        "def test_crash():\n    if first_time('x'):\n        os._exit(3)\n",
        0,
        ["test_suite.py::test_crash"],
    ),
    "always": ("def test_fails():\n    assert False\n", 1, []),
    "eleven": (
        "@pytest.mark.parametrize('i', 'abcdefghijk')\ndef test(i):\n    assert not first_time(i)",
        1,
        [],
    ),
    "collection": ("if first_time('x'):\n    raise OSError\ndef test_fine():\n    pass\n", 1, []),
}


@pytest.mark.parametrize("case", CASES)
def test_failed_tests_run_once_more(tmp_path: Path, case: str) -> None:
    text, code, flaky = CASES[case]
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for path, line in {".venv/bin/python": f'"{sys.executable}" "$@"', "make": "true"}.items():
        script = tmp_path / path
        script.write_text(f"#!/bin/sh\nexec {line}\n")
        script.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:distdemo -p no:randomly\n")
    (tmp_path / "test_suite.py").write_text(HEAD + text)
    done = subprocess.run(
        [tmp_path / ".ci/run"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == code, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("flaky: ")]
    assert sorted(lines) == sorted(f"flaky: {test}" for test in flaky)
    assert " in " in "\n".join(done.stdout.splitlines()[-len(flaky) - 1 :])
