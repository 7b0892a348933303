"""Which MPI a library or an mpiexec belongs to, by what it says of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

FAMILIES = (
    # what it says, in lower case; the vendor; those whose ranks its mpiexec can start
    ("intel(r) mpi", "Intel MPI", "hydra"),
    ("mvapich", "MVAPICH", "hydra"),
    ("cray mpich", "Cray MPICH", "cray"),
    ("hydra build details", "MPICH", "hydra"),
    ("mpich", "MPICH", "hydra"),
    ("open mpi", "Open MPI", "openmpi"),
    ("open-mpi", "Open MPI", "openmpi"),
    ("openrte", "Open MPI", "openmpi"),
    ("prrte", "Open MPI", "openmpi"),
    ("microsoft mpi", "Microsoft MPI", "microsoft"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """An MPI.

    Attributes:
        vendor: ``MPICH``; empty if it is none that is known.
        family: the same for those whose mpiexec can start each other's ranks.
        version: ``5.0.2``; empty if it does not say.
    """

    vendor: str = ""
    family: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.vendor or 'an unknown MPI'} {self.version}".strip()


def kind_of(text: str) -> Kind:
    """Whose text this is, of ``mpiexec --version`` or of ``MPI_Get_library_version``."""
    low = text.lower()
    for words, vendor, family in FAMILIES:
        if words in low:
            return Kind(vendor, family, _version(text))
    return Kind()


def _version(text: str) -> str:
    """The first number with a point in it."""
    found = re.search(r"(?<![\d.])(\d+\.\d+(?:\.\d+)*)", text)
    return found[1] if found else ""
