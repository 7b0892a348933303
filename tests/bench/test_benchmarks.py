"""A benchmark of each mechanism runs; its figures are not judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Start

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PARTS = {
    "startup": ["limits"],
    "bench": ["harness", "same-worlds"],
    "bench_compare": ["compare"],
    "mpi": ["2-ranks"],
    "scale": ["judge-64", "host"],
    "shell": ["shell"],
}
"""Parts that take seconds."""


@pytest.mark.processes
@pytest.mark.parametrize("name", PARTS)
def test_a_benchmark_runs(start: Start, name: str) -> None:
    only = [word for part in PARTS[name] for word in ("--only", part)]
    code, out, err = start("python", BENCHMARKS / f"{name}.py", "--smoke", *only).finish()
    assert code == 0, err
    assert out.count("\n│ ") >= len(PARTS[name])
