"""mpi: any MPI library through mpi4py, or torch's own backend in builds that have it.

The library is loaded without initialising MPI, as its version can be read before. mpi4py has one
build per family of libraries and uses the first library that it finds, either in this Python's
environment or on the system's search path.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from distdemo.backends.contract import COMMON_DTYPES, Backend, Environment
from distdemo.errors import UsageError
from distdemo.platform import system


class Mpi(Backend):
    """The MPI backend. ``distdemo.mpi`` provides it, as torch's wheels don't include it."""

    name = "mpi"
    summary = "CPU tensors over MPI; in any torch, through mpi4py."
    devices = ("cpu",)
    how_to_install = "Install mpi4py and an MPI library with pip install 'distdemo[mpi]'."
    engines = ("mpi", "slurm")
    copies_strided = True
    accepts_shorter = True
    needs_even = frozenset({"gather", "scatter"})
    null_peer = -1  # MPI_PROC_NULL of MPICH; other libraries reject it
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
            library()
        except UsageError as error:
            return f"{error.what} {error.why}"
        return None

    def version(self) -> str:
        """Return the name and version of the MPI library."""
        with suppress(UsageError):  # torch's own backend needs no mpi4py
            return library().name
        return ""

    def provided_by(self) -> str:
        """Return distdemo's module, or "" if torch was built with MPI."""
        return "" if _torch_has_its_own() else "distdemo.mpi"

    def mpi_environment(self, world_size: int) -> Environment:
        """Return the environment of MPICH's ranks. Others need their own mpiexec."""
        mpi = library()
        if mpi.startable:
            return (*WITHIN_THIS_MACHINE, ("FI_TCP_IFACE", system.loopback_interface()))
        raise UsageError(
            f"distdemo can't start ranks of {mpi.name}.",
            "They need their own mpiexec to find each other. Ranks of MPICH don't.",
            f"Try mpiexec -n {world_size} distdemo ... --backend mpi, or python PROGRAM with "
            'import distdemo.mpi and init_process_group("mpi").',
        )

    def map_name(self) -> str:
        """Return the map's name; torch's own MPI backend has a separate map."""
        return "mpi@torch" if _torch_has_its_own() else "mpi"


def _torch_has_its_own() -> bool:
    """Return True if torch itself was built with MPI; distdemo's backend doesn't count."""
    if "torch.distributed" not in sys.modules:  # maps are also read without torch: assume a wheel
        return False
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_mpi_available()):
        return False
    return not dist.ProcessGroupMPI.__module__.startswith("distdemo.")


_OTHER_PMI = re.compile(
    r"--with-(?:pmi=(?!simple|pmi1|no)|pmix|pmilib|slurm-pmi)\S*", re.IGNORECASE
)
"""Configure options of an MPICH that was built for a process manager without PMI-1."""

WITHIN_THIS_MACHINE = (
    # MPICH moves data through its own shared memory but initialises its network module anyway.
    # With these settings UCX opens no socket, and its 4 MiB per rank don't come from /dev/shm,
    # which is often small in containers.
    ("UCX_TLS", "self,sysv"),
    ("FI_PROVIDER", "tcp"),  # for libfabric
    ("MPIR_CVAR_PMI_VERSION", "1"),
)


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """An MPI library, as it describes itself.

    Attributes:
        vendor: ``MPICH``, ``Open MPI``, ``Intel MPI`` or another.
        version: Version such as ``5.0.2``.
        text: Full version string, with build options.
    """

    vendor: str
    version: str
    text: str

    @property
    def name(self) -> str:
        """Vendor and version, such as ``MPICH 5.0.2``."""
        return f"{self.vendor} {self.version}"

    @property
    def startable(self) -> bool:
        """True if its ranks find each other through PMI-1, which distdemo's launcher serves."""
        return self.vendor == "MPICH" and _OTHER_PMI.search(self.text) is None


@cache
def library() -> MpiLibrary:
    """Load and return the library that mpi4py finds.

    Raises:
        UsageError: mpi4py is missing or finds no library.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:  # otherwise the importer initialises and finalises MPI
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no library was found
        raise UsageError(
            "mpi4py is missing or finds no MPI library.",
            f"{error}.".replace("..", "."),
            "Install mpi4py and MPICH: pip install 'distdemo[mpi]'",
        ) from error
    vendor, version = MPI.get_vendor()
    text = MPI.Get_library_version().strip("\0\n ")
    return MpiLibrary(vendor, ".".join(map(str, version)), text)
