"""mpi: any MPI library through mpi4py, or torch's own backend in builds that have it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from distdemo.backends import mpi_library
from distdemo.backends.contract import COMMON_DTYPES, Backend, Transport
from distdemo.errors import UsageError

if TYPE_CHECKING:
    from distdemo.launcher.records import MpiStart
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


class Mpi(Backend):
    """The MPI backend. ``distdemo.mpi`` provides it, as torch's wheels don't include it."""

    name = "mpi"
    summary = "CPU tensors over MPI; in any torch, through mpi4py."
    devices = ("cpu",)
    get = "Install mpi4py and an MPI library with pip install 'distdemo[mpi]'."
    provider = "distdemo.mpi"
    engines = ("mpi", "slurm")
    transport = Transport.MEMORY_COPY
    dtypes = COMMON_DTYPES | {"bool", "int16", "uint16", "uint32", "uint64", "complex64"}
    dtypes |= {"complex128", "float8_e4m3fn", "float8_e5m2"}

    def missing(self) -> str | None:
        """Return the reason MPI can't be used here, or None if it can."""
        import torch.distributed as dist

        if not dist.is_available():
            return "This torch was built without torch.distributed."
        if _torch_has_its_own():
            return None
        try:
            mpi_library.library()
        except UsageError as error:
            return f"{error.what} {error.why}"
        return None

    def version(self) -> str:
        """Return the name and version of the MPI library."""
        with suppress(UsageError):  # torch's own backend needs no mpi4py
            return mpi_library.library().name
        return ""

    def choice(self) -> str:
        """Return a sentence about the library and how its ranks are started."""
        with suppress(UsageError):
            return mpi_library.library().choice
        return ""

    def provided_by(self) -> str:
        """Return distdemo's module, or "" if torch was built with MPI."""
        return "" if _torch_has_its_own() else self.provider

    def mpi_start(self, world_size: int) -> MpiStart:
        """Return the start parameters. distdemo starts MPICH's ranks; others need their mpiexec."""
        return mpi_library.library().start(world_size)

    def map_name(self, device: str | None = None) -> str:
        """Return the map's name; torch's own MPI backend has a separate map."""
        name = super().map_name(device)
        return f"{name}@torch" if _torch_has_its_own() else name

    def documented(self, op: Op, spec: OpSpec) -> bool | None:
        """Return None for distdemo's backend, which torch's documentation doesn't cover."""
        if not _torch_has_its_own():
            return None
        return False if op.name == "reduce_scatter" else super().documented(op, spec)


def _torch_has_its_own() -> bool:
    """Return True if torch itself was built with MPI; distdemo's backend doesn't count."""
    if "torch.distributed" not in sys.modules:  # maps are also read without torch: assume a wheel
        return False
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_mpi_available()):
        return False
    return not dist.ProcessGroupMPI.__module__.startswith("distdemo.")
