"""Every benchmark runs; its figures are not judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PARTS = {
    "startup": ["limits"],
    "bench": ["harness", "same-worlds", "imb"],
    "bench_compare": ["compare"],
    "mpi": ["2-ranks"],
    "sanitizer": ["python-gloo"],
    "testing": ["sessions"],
    "shell": ["shell"],
}
"""Parts that take seconds."""


@pytest.mark.processes
@pytest.mark.parametrize("name", PARTS)
def test_a_benchmark_runs(name):
    only = [word for part in PARTS[name] for word in ("--only", part)]
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--smoke", *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n│ ") >= len(PARTS[name])
