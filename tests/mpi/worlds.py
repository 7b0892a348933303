"""Run programs on several MPI ranks, with the mpiexec in the same folder as a Python.

DISTDEMO_TEST_MPI_PYTHONS lists more Pythons, separated by colons, whose mpi4py loads another MPI
library and which can import torch and this project.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = [path for path in os.environ.get("DISTDEMO_TEST_MPI_PYTHONS", "").split(":") if path]
PYTHONS = [pytest.param(path, id=Path(path).parents[1].name) for path in (sys.executable, *OTHERS)]
TIMEOUT = 100.0  # seconds until a world is killed
ROOTED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None,
    reason="needs mpi4py and an MPI library: pip install 'distdemo[mpi]'",
)


def mpiexec(
    python: str, ranks: int, *program: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on several ranks; return its output and exit code."""
    starter = Path(python).with_name("mpiexec")
    if not starter.exists():
        pytest.skip(f"there is no {starter}: pip install 'distdemo[mpi]'")
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    flags = ["--oversubscribe"] if python in OTHERS and "openmpi" in python else []
    command = [starter, *flags, "-n", str(ranks), python, "-W", "error::FutureWarning", *program]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env=os.environ | ROOTED | {"PYTHONPATH": path} | environment,
    )
