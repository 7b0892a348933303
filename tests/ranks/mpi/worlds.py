"""Worlds over MPI: a program on several ranks, started by the mpiexec beside this Python."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

MPIEXEC = Path(sys.executable).with_name("mpiexec")
PATIENCE = 60.0  # seconds until a world is given up


def mpiexec(
    ranks: int, *program: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on so many ranks; what it printed, and its exit code."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install 'distdemo[mpi]'")
    if not MPIEXEC.exists():
        pytest.skip(f"there is no {MPIEXEC}: pip install 'distdemo[mpi]'")
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-W", "error::FutureWarning", *program]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=os.environ | environment,
    )
