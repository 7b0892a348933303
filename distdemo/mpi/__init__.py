"""The backend ``mpi`` of torch.distributed, on a torch from a wheel.

::

    import torch.distributed as dist
    import distdemo.mpi

    dist.init_process_group("mpi")

started with ``mpiexec -n 4 python program.py``. Importing is all there is to do, before or after
torch. Rank and world size come from MPI. A torch that was built with MPI keeps its own backend.

The package needs no other part of distdemo, and no store. What it has beyond torch's own MPI
backend: all dtypes, reduce_scatter, avg and premul_sum, timeouts, futures.

- **Timeouts**: the one given to ``init_process_group`` or ``new_group`` holds for every op (beyond
  32 KiB for the arrival of all ranks, see ``engine``), the one given to ``work.wait`` for that
  wait. An op that timed out raises ``DistBackendError``. MPI can't take it back, so the group is
  of no more use, and the process leaves without ``MPI_Finalize``.
- **Threads**: MPI is asked for MPI_THREAD_MULTIPLE (set ``mpi4py.rc.thread_level`` for another). If
  it gives less, only one thread at a time may call, and ``get_future`` waits for its op.
- **The end**: MPI is finalized at exit, not by ``destroy_process_group``: it can't begin again.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch.distributed as dist

__all__ = ["provided_by"]


def _take_the_name() -> Literal["torch", "mpi4py"]:
    """Make ``mpi`` mean this package, unless torch has a backend of that name.

    Raises:
        ImportError: mpi4py, an MPI library or torch.distributed is missing.
    """
    if not dist.is_available():
        raise ImportError("This torch was built without torch.distributed.")
    if dist.is_mpi_available() and not dist.ProcessGroupMPI.__module__.startswith(__name__):
        return "torch"
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:  # the first group begins MPI, not this import
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from distdemo.mpi import registration
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no library
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "mpi4py":
            raise
        problem = " ".join(str(error).split())
        raise ImportError(
            f"The mpi backend needs mpi4py and an MPI library ({problem}): "
            "pip install 'distdemo[mpi]' brings both.",
            name="mpi4py",
        ) from error
    registration.take_the_name()
    return "mpi4py"


provided_by = _take_the_name()
"""Whose ``mpi`` it is: ``torch`` where torch was built with MPI, else ``mpi4py``."""
