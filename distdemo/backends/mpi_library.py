"""Which MPI library mpi4py loads here, and how ranks over it are started.

The library is loaded, but MPI does not begin: what it says of itself can be asked before. mpi4py
has a build for each family of libraries and takes the one that it finds first, beside this Python
or where the system looks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distdemo.backends.mpi_kinds import kind_of
from distdemo.errors import UsageError
from distdemo.launcher.records import MpiStart

_PATIENCE = 10.0  # seconds for an mpiexec to say its version
_OTHER_PMI = re.compile(
    r"--with-(?:pmi=(?!simple|pmi1|no)|pmix|pmilib|slurm-pmi)\S*", re.IGNORECASE
)
"""Of MPICH's configuration: it was built for another process manager than PMI-1's."""


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """A library, as it describes itself.

    Attributes:
        vendor: ``MPICH``, ``Open MPI``, ``Intel MPI`` or another family.
        version: ``5.0.2``.
        path: of its file; empty if the system does not tell.
        text: all that it says of its version and its build.
    """

    vendor: str
    version: str
    path: str
    text: str

    @property
    def name(self) -> str:
        """``MPICH 5.0.2``."""
        return f"{self.vendor} {self.version}"

    @property
    def serves_pmi(self) -> bool:
        """Whether its ranks find each other through PMI-1, which this program serves."""
        return self.vendor == "MPICH" and _OTHER_PMI.search(self.text) is None


@dataclass(frozen=True, slots=True)
class Family:
    """What one family of libraries needs to run on one machine, and to stay on it.

    Attributes:
        starters: whose mpiexec starts its ranks, by what ``mpiexec --version`` prints; empty for
            any.
        names: what its mpiexec may be called.
        options: for mpiexec: as many ranks as asked for, however few cores there are.
        environment: shared memory and nothing else between the ranks; ``@`` is the world's folder.
        as_root: what it needs besides where root starts it.
    """

    starters: tuple[str, ...]
    names: tuple[str, ...] = ("mpiexec",)
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    as_root: tuple[tuple[str, str], ...] = ()


_MPICH = Family(
    ("MPICH", "MVAPICH"),  # MVAPICH's is hydra too, and may say no more of itself than that
    ("mpiexec", "mpiexec.mpich", "mpiexec.hydra"),
    environment=(
        # MPICH moves data through its own shared memory; its network module is begun all the same.
        # Where that is UCX, it opens no socket so, and takes 4 MiB a rank, but not of /dev/shm,
        # which in containers often is small.
        ("UCX_TLS", "self,sysv"),
        ("FI_PROVIDER", "tcp"),  # where it is libfabric
        ("FI_TCP_IFACE", "lo"),
        ("MPIR_CVAR_PMI_VERSION", "1"),
        ("HYDRA_LAUNCHER", "fork"),
    ),
)
_INTEL = Family(
    ("Intel MPI",),
    ("mpiexec", "mpiexec.hydra"),
    environment=(("I_MPI_FABRICS", "shm"), ("I_MPI_HYDRA_BOOTSTRAP", "fork")),
)
_OPEN = Family(
    ("Open MPI",),
    ("mpiexec", "mpiexec.openmpi", "mpirun"),
    ("--oversubscribe",),
    (
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "self,sm"),
        ("OMPI_MCA_btl_sm_backing_directory", "@"),
    ),
    (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")),
)
_OPEN_4 = Family(  # before 5.0 its shared memory is called vader
    _OPEN.starters,
    _OPEN.names,
    _OPEN.options,
    (
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "self,vader"),
        ("OMPI_MCA_btl_vader_backing_directory", "@"),
    ),
    _OPEN.as_root,
)
_FAMILIES = {"MPICH": _MPICH, "Intel MPI": _INTEL, "Open MPI": _OPEN, "MVAPICH": _MPICH}
_UNKNOWN = Family(())


@cache
def library() -> MpiLibrary:
    """The library that mpi4py loads, loaded by that.

    Raises:
        UsageError: mpi4py is missing, or finds no library.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:  # else somebody else decides when MPI begins and ends
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
    said = MPI.Get_library_version().strip("\0\n ")
    return MpiLibrary(vendor, ".".join(map(str, version)), _loaded_file(), said)


@cache
def mpi_start() -> MpiStart:
    """How ranks over that library are started on this machine, and why so.

    Raises:
        UsageError: no mpiexec belongs to a library that needs one.
    """
    found = library()
    family = _family(found)
    place = f" from {Path(found.path).parent}" if found.path else ""
    if found.serves_pmi:
        reason = f"{found.name}{place}: ranks are forked and served by PMI, without mpiexec"
        return MpiStart("pmi", environment=family.environment, reason=reason)
    starter = _mpiexec(found, family)
    environment = family.environment
    if os.geteuid() == 0:
        environment += family.as_root
    reason = f"{found.name}{place}: ranks find each other through {starter}, which belongs to it"
    return MpiStart("mpiexec", (starter, *family.options, "-n"), environment, reason)


def _family(found: MpiLibrary) -> Family:
    if found.vendor == "Open MPI" and int(found.version.partition(".")[0]) < 5:
        return _OPEN_4
    return _FAMILIES.get(found.vendor, _UNKNOWN)


def _mpiexec(found: MpiLibrary, family: Family) -> str:
    """The mpiexec of this library.

    Raises:
        UsageError: there is none, or they all belong to other libraries.
    """
    others = []
    for path in _candidates(found, family):
        said = _version_of(path)
        if not family.starters or kind_of(said).vendor in family.starters:
            return path
        others.append(f"{path} is {_owner(said)}")
    if others:
        raise UsageError(
            f"No mpiexec here belongs to {found.name}, which mpi4py loads.",
            f"{'; '.join(others)}. Under it each process would be rank 0 of 1.",
            _MEND,
        )
    raise UsageError(
        f"{found.name} needs its mpiexec, which is not here.",
        f"Neither beside {sys.executable} nor on PATH is there one of {', '.join(family.names)}.",
        _MEND,
    )


_MEND = "Install the whole of one MPI, or take the one of pip install 'distdemo[mpi]'."


def _candidates(found: MpiLibrary, family: Family) -> Iterator[str]:
    """Where its mpiexec may be, the likeliest place first, no file twice."""
    seen = set()
    beside = [Path(sys.executable).parent]  # not resolved: a virtual environment's own folder
    if found.path:
        beside.insert(0, Path(found.path).parent.parent / "bin")
    for name in family.names:
        places = [shutil.which(name, path=str(folder)) for folder in beside]
        for path in (*places, shutil.which(name)):
            if path is not None and (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                yield path


def _version_of(mpiexec: str) -> str:
    """What it says of itself; empty if it does not work."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 - an mpiexec that was found as one
            [mpiexec, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
        return done.stdout + done.stderr
    return ""


def _owner(said: str) -> str:
    """Whose mpiexec says this of its version."""
    vendor = kind_of(said).vendor
    if vendor:
        return f"{vendor}'s"
    return "of an unknown MPI" if said.strip() else "broken: it does not tell its version"


def _loaded_file() -> str:
    """The file of the MPI library in this process's memory; empty if the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = Path("/", line.partition("/")[2])
            if path.name.startswith(("libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi.")):
                return str(path)
    return ""
