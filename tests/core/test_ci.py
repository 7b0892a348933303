"""Run ``.ci/run`` over small suites: tests that fail may pass the second time, nothing else may."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import Start

pytestmark = pytest.mark.processes
RUN = Path(__file__).parents[2] / ".ci/run"
HEAD = """import os, pathlib
import pytest

def first_time(name):
    path = pathlib.Path(name)
    return not path.exists() and path.write_text("") == 0
"""
LATER = """
@pytest.mark.parametrize('value', ['a b', '[::]'])
def test_later(value):
    assert not first_time(value)

def test_crash():
    if first_time('x'):
        os._exit(3)

def test_passes():
    pass
"""
FLAKY = ["test_later[a b]", "test_later[[::]]", "test_crash"]
ELEVEN = """
@pytest.mark.parametrize('i', 'abcdefghijk')
def test(i):
    assert not first_time(i)
"""
CASES = {
    "the second time": (LATER, True, FLAKY),
    "always": ("def test_fails():\n    assert False\n", False, []),
    "eleven": (ELEVEN, False, []),
}
"""Suite, whether the run succeeds, and the tests that are reported as flaky."""


@pytest.mark.parametrize("case", CASES)
def test_failed_tests_run_once_more(start: Start, tmp_path: Path, case: str) -> None:
    text, succeeds, flaky = CASES[case]
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for path, line in {".venv/bin/python": f'"{sys.executable}" "$@"', "make": "true"}.items():
        script = tmp_path / path
        script.write_text(f"#!/bin/sh\nexec {line}\n")
        script.chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:distdemo -p no:randomly\n")
    (tmp_path / "test_suite.py").write_text(HEAD + text)
    search = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    code, out, err = start(tmp_path / ".ci/run", env=search).finish()
    assert (code == 0) == succeeds, out + err
    lines = [line for line in out.splitlines() if line.startswith("flaky: ")]
    assert sorted(lines) == sorted(f"flaky: test_suite.py::{test}" for test in flaky)
