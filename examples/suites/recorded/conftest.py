"""Compare the calls of the processes that a test starts: pytest."""

import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def compared(tmp_path, monkeypatch):
    """Have the processes of a test record their calls in a folder of its own, and compare them."""
    folder = tmp_path / "notes"
    monkeypatch.setenv("DISTDEMO_RECORD", str(folder))
    yield
    if folder.exists():  # a process has called install()
        line = [sys.executable, "-m", "distdemo", "postmortem", str(folder)]
        report = subprocess.run(line, capture_output=True, text=True, check=False)
        assert report.returncode == 0, report.stdout + report.stderr
