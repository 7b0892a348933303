"""mpi: torch's own MPI backend, in builds of torch made on a machine with MPI."""

from __future__ import annotations

from distdemo.backends.contract import Backend


class Mpi(Backend):
    """Not in the wheels that PyPI has."""

    name = "mpi"
    summary = "CPU tensors over MPI; only in a torch that was built with it."
    devices = ("cpu",)
    get = "Build torch from source on a machine with an MPI library."
    # ProcessGroupMPI.cpp's table of MPI datatypes, torch 2.13.
    dtypes = frozenset({"float32", "float64", "int8", "uint8", "int16", "int32", "int64"})

    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_mpi_available()):
            return "This torch was built without MPI, as the wheels on PyPI are."
        return "Ranks of MPI are started by mpiexec, not by this command."
