"""The backend ``mpi`` of torch.distributed, for torch from a wheel.

::

    import torch.distributed as dist
    import distdemo.mpi

    dist.init_process_group("mpi")

started with ``mpiexec -n 4 python program.py``. The import is the only setup; it may precede or
follow torch's. Rank and world size come from MPI. A torch built with MPI keeps its own backend.

The package needs no other part of distdemo, and no store. Compared with torch's own MPI backend,
it adds all dtypes, reduce_scatter, avg and premul_sum, timeouts and futures.

- **Timeouts**: The timeout of ``init_process_group`` or ``new_group`` applies to every op (beyond
  32 KiB to the arrival of all ranks, see ``engine``), that of ``work.wait`` to one wait. An op
  that times out raises ``DistBackendError``. MPI can't cancel it, so the group is unusable, and
  the process exits without ``MPI_Finalize``.
- **Threads**: MPI is initialized with MPI_THREAD_MULTIPLE, or ``mpi4py.rc.thread_level``. If it
  provides less, only one thread may call at a time, and ``get_future`` waits for its op.
- **Shutdown**: MPI is finalized at exit, not by ``destroy_process_group``: MPI can't be
  initialized twice.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch.distributed as dist

__all__ = ["provided_by"]


def _register() -> Literal["torch", "mpi4py"]:
    """Register this package as backend ``mpi``, unless torch was built with one.

    Raises:
        ImportError: mpi4py, an MPI library or torch.distributed is missing.
    """
    if not dist.is_available():
        raise ImportError("This torch was built without torch.distributed.")
    if dist.is_mpi_available() and not dist.ProcessGroupMPI.__module__.startswith(__name__):
        return "torch"
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:  # the first group initializes MPI, not this import
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from distdemo.mpi import registration
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py found no library
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "mpi4py":
            raise
        problem = " ".join(str(error).split())
        raise ImportError(
            f"The mpi backend needs mpi4py and an MPI library ({problem}): "
            "pip install 'distdemo[mpi]' installs both.",
            name="mpi4py",
        ) from error
    registration.register()
    return "mpi4py"


provided_by = _register()
"""Provider of ``mpi``: ``torch`` if torch was built with MPI, else ``mpi4py``."""
