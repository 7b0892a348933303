"""Checks of MPI: the library that mpi4py loads, and whether mpiexec on PATH matches it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import System

LOAD_TIMEOUT_S = 8.0  # for a Python process to load the library
VERSION_TIMEOUT_S = 3.0  # for mpiexec --version
LAUNCHERS = ("mpiexec", "mpirun")
INSTALL = "Install mpi4py and an MPI library: pip install 'distdemo[mpi]'"
# Gets the version without initialising MPI, which could print or hang if it is broken.
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
    # text in the version string, in lower case; vendor; process manager
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
    """An MPI implementation.

    Attributes:
        vendor: Name such as ``MPICH``; empty if unknown.
        family: Name shared by the implementations whose mpiexec can start each other's ranks.
        version: Version such as ``5.0.2``; empty if unknown.
    """

    vendor: str = ""
    family: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.vendor or 'an unknown MPI'} {self.version}".strip()


def kind_of(text: str) -> Kind:
    """Parse the output of ``mpiexec --version`` or ``MPI_Get_library_version``."""
    low = text.lower()
    for words, vendor, family in _VENDORS:
        if words in low:
            number = re.search(r"(?<![\d.])(\d+\.\d+(?:\.\d+)*)", text)
            return Kind(vendor, family, number[1] if number else "")
    return Kind()


def library(system: System) -> Finding:
    """Check the library that mpi4py loads, in a child process."""
    if not system.installed("mpi4py"):
        return skipped("mpi4py is not installed", INSTALL)
    found = loaded(system)
    if found.get("error"):
        return broken(
            "mpi4py is installed but can't be loaded",
            str(found["error"]).splitlines()[0][:300],
            f"mpi4py needs an MPI library. {INSTALL}",
        )
    kind = kind_of(str(found["library"]))
    return fine(f"{kind}, loaded by mpi4py {found['mpi4py']}", library=kind, mpi4py=found["mpi4py"])


def loaded(system: System) -> dict[str, object]:
    """Return the keys ``mpi4py`` and ``library``, or ``error``."""
    answer = system.run([str(system.python), "-c", CODE], LOAD_TIMEOUT_S)
    if answer.late:
        return {"error": f"It didn't load within {LOAD_TIMEOUT_S:g} s."}
    lines = answer.text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        found = {}
    if isinstance(found, dict) and ("error" in found or {"library", "mpi4py"} <= set(found)):
        return found
    return {"error": f"The child process exited with {answer.status}. {lines[-1:]}"}


def mpiexec(system: System) -> Finding:
    """Check that mpiexec on PATH, or else in Python's environment, matches the library."""
    if not system.installed("mpi4py"):
        return skipped("not needed without mpi4py", INSTALL)
    on_path = next(filter(None, map(system.which, LAUNCHERS)), None)
    candidates = [system.python.parent / name for name in LAUNCHERS]
    in_environment = next((path for path in candidates if path.exists()), None)
    paths = [path for path in (on_path, in_environment) if path is not None]
    if len({path.resolve() for path in paths}) < len(paths):
        paths = paths[:1]
    if not paths:
        return warning(
            "there is no mpiexec on PATH or in Python's environment",
            "Without it, MPI ranks can't be started by hand or on several machines.",
            "Add the bin directory of the MPI library to PATH.",
        )
    found = loaded(system)
    if found.get("error"):
        return skipped("mpi4py can't be loaded")
    own = kind_of(str(found["library"]))
    kinds = [
        kind_of(system.run([str(path), "--version"], VERSION_TIMEOUT_S).text) for path in paths
    ]
    first, kind = paths[0], kinds[0]
    fitting = [path for path, one in zip(paths, kinds, strict=True) if one.vendor == own.vendor]
    hint = f"Start ranks with {fitting[0]}." if fitting else f"Install the mpiexec of {own.vendor}."
    text = f"{first} is from {kind}, but mpi4py loads {own}"
    if not kind.vendor:
        return warning(
            f"{first} --version names no known MPI",
            f"It may not be an mpiexec, or it took longer than {VERSION_TIMEOUT_S:g} s.",
            hint,
        )
    if kind.vendor == own.vendor:
        if kind.version.split(".")[0] == own.version.split(".")[0]:
            return fine(f"{first} is from {kind}, like the library")
        return warning(
            text,
            "They come from two installations, and major releases aren't always compatible.",
            "Use one installation: which -a mpiexec lists them.",
        )
    if kind.family == own.family:
        why = "They use the same protocol and usually work together, but it isn't guaranteed."
        return warning(text, why, hint)
    return broken(
        text,
        "It starts ranks that don't find each other: every rank is rank 0 of 1, or MPI_Init fails.",
        f"{hint} Or put its directory first on PATH.",
    )
