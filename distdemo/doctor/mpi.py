"""MPI: the library that mpi4py loads, the mpiexec that a shell starts, and whether they belong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import Surroundings

PATIENCE = 8.0  # seconds for an interpreter to load the library
BRIEF = 3.0  # seconds for an mpiexec to say its version
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


def library(around: Surroundings) -> Finding:
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


def mpiexec(around: Surroundings) -> Finding:
    """Whether the one that a shell starts belongs to the library, and the one beside Python."""
    if not around.installed("mpi4py"):
        return skipped("without mpi4py it is of no use", GET)
    on_path = next(filter(None, map(around.which, STARTERS)), None)
    beside = [around.python.parent / name for name in STARTERS]
    found_beside = next((place for place in beside if place.exists()), None)
    places = [place for place in (on_path, found_beside) if place is not None]
    if len({place.resolve() for place in places}) < len(places):
        places = places[:1]
    if not places:
        return warning(
            "there is no mpiexec on PATH or beside the interpreter",
            "Ranks over MPI can't be started by hand, nor on several machines.",
            "Add the MPI's bin folder to PATH.",
        )
    found = loaded(around)
    if found.get("error"):
        return skipped("mpi4py can't be loaded")
    own = kind_of(str(found["library"]))
    kinds = [kind_of(around.ask([str(place), "--version"], BRIEF).text) for place in places]
    first, kind = places[0], kinds[0]
    fitting = [place for place, one in zip(places, kinds, strict=True) if one.vendor == own.vendor]
    do = f"Start ranks with {fitting[0]}." if fitting else f"Install the mpiexec of {own.vendor}."
    text = f"{first} is {kind}'s, and mpi4py loads {own}"
    if not kind.vendor:
        return warning(
            f"{first} does not say whose it is",
            f"It may be no mpiexec, or hang: {BRIEF:g} s are enough for --version.",
            do,
        )
    if kind.vendor == own.vendor:
        if kind.version.split(".")[0] == own.version.split(".")[0]:
            return fine(f"{first} is {kind}'s, as the library is")
        return warning(
            text,
            "They come from two installations; across major releases they don't always fit.",
            "Use one installation: which -a mpiexec shows what there is.",
        )
    if kind.family == own.family:
        why = "They speak one protocol and mostly work together, without a guarantee."
        return warning(text, why, do)
    return broken(
        text,
        "It starts ranks that don't find each other: every one says that it is rank 0 of 1, or "
        "MPI_Init fails.",
        f"{do} Or put its folder first on PATH.",
    )
