"""Which MPI library mpi4py loads here, its version, and whether this launcher can start its ranks.

The library is loaded, but MPI doesn't begin: what it says of itself can be asked before. mpi4py has
a build for each family of libraries and takes the first that it finds, beside this Python or where
the system looks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distdemo.errors import UsageError
from distdemo.launcher.records import MpiStart

_OTHER_PMI = re.compile(
    r"--with-(?:pmi=(?!simple|pmi1|no)|pmix|pmilib|slurm-pmi)\S*", re.IGNORECASE
)
"""Of MPICH's configuration: it was built for another process manager than PMI-1's."""

_WITHIN_THIS_MACHINE = (
    # MPICH moves data through its own shared memory; its network module is begun all the same.
    # Where that is UCX, it opens no socket so, and takes 4 MiB a rank, but not of /dev/shm,
    # which in containers often is small.
    ("UCX_TLS", "self,sysv"),
    ("FI_PROVIDER", "tcp"),  # where it is libfabric
    ("FI_TCP_IFACE", "lo"),
    ("MPIR_CVAR_PMI_VERSION", "1"),
)


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """A library, as it describes itself.

    Attributes:
        vendor: ``MPICH``, ``Open MPI``, ``Intel MPI`` or another.
        version: ``5.0.2``.
        text: all that it says of its version and its build.
    """

    vendor: str
    version: str
    text: str

    @property
    def name(self) -> str:
        """``MPICH 5.0.2``."""
        return f"{self.vendor} {self.version}"

    @property
    def startable(self) -> bool:
        """Whether its ranks find each other through PMI-1, which our launcher serves."""
        return self.vendor == "MPICH" and _OTHER_PMI.search(self.text) is None

    @property
    def choice(self) -> str:
        """How its ranks are started, in a sentence."""
        if self.startable:
            return f"{self.name}: its ranks are started without mpiexec."
        return f"{self.name}: its ranks are started by its own mpiexec alone."

    def start(self, world_size: int) -> MpiStart:
        """What the launcher needs to start its ranks.

        Raises:
            UsageError: the launcher can't; the hint shows the line that can.
        """
        if self.startable:
            return MpiStart(_WITHIN_THIS_MACHINE)
        command = Path(sys.argv[0]).name in ("distdemo", "__main__.py")
        if command and sys.argv[1:2] != ["run"]:
            line = shlex.join(["distdemo", *sys.argv[1:]])
            hint = f"Try {self._mpiexec(world_size)} {line}"
        else:  # a user's program, whose ranks make their own group
            line = f"{self._mpiexec(world_size)} python PROGRAM"
            hint = f'Start {line}, which imports distdemo.mpi and calls init_process_group("mpi").'
        raise UsageError(
            f"The ranks of {self.name} can't be started from here.",
            "They find each other through their own mpiexec alone; MPICH's don't need one.",
            hint,
        )

    def _mpiexec(self, world_size: int) -> str:
        """``mpiexec -n 4``, with what this library's needs besides here."""
        beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
        words = [beside if beside and beside != shutil.which("mpiexec") else "mpiexec"]
        if self.vendor == "Open MPI":
            if os.geteuid() == 0:
                words.append("--allow-run-as-root")
            if world_size > (os.cpu_count() or 1):
                words.append("--oversubscribe")
        return shlex.join([*words, "-n", str(world_size)])


@cache
def library() -> MpiLibrary:
    """The library that mpi4py loads, loaded by that.

    Raises:
        UsageError: mpi4py is missing, or finds no library.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:  # else the importer decides when MPI begins and ends
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no library was found
        raise UsageError(
            "There is no MPI for Python here.",
            f"{error}.".replace("..", "."),
            "pip install 'distdemo[mpi]' brings mpi4py and MPICH.",
        ) from error
    vendor, version = MPI.get_vendor()
    text = MPI.Get_library_version().strip("\0\n ")
    return MpiLibrary(vendor, ".".join(map(str, version)), text)
