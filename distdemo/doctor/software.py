"""Checks of torch, with a test world, and of MPI."""

from __future__ import annotations

import json
import re

from distdemo import backends
from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System

LOAD_TIMEOUT_S = 8.0  # for a Python process to load the MPI library
VERSION_TIMEOUT_S = 3.0  # for mpiexec --version
INSTALL_MPI = "Install mpi4py and an MPI library: pip install 'distdemo[mpi]'"
LOAD_MPI = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps([mpi4py.__version__, MPI.Get_library_version()]))
"""
"""Program that gets the version without initialising MPI, which could hang if it is broken."""
FAMILIES = {
    "MPICH": r"hydra|mpich|mvapich|intel\(r\) mpi",
    "Open MPI": r"open.?mpi|openrte|prrte",
}
"""Patterns of the version texts of libraries whose mpiexec can start each other's ranks."""


def torch(system: System) -> Diagnosis:
    """Check that torch can be imported, and the backends that it was built with."""
    module = system.torch()
    platform = "CPU"
    if module.version.cuda or module.version.hip:
        cuda = module.version.cuda
        platform = f"CUDA {cuda}" if cuda else f"ROCm {module.version.hip}"
    names = system.built_in_backends()
    text = f"{module.__version__}, for {platform}, with {', '.join(names.values()) or 'no backend'}"
    if backends.default_backend(1, "cpu").name in names:
        return fine(text)
    return broken(
        f"{text}: gloo is missing",
        "CPU tensors, objects and most examples need gloo.",
        "Install a wheel of torch for Linux: pip install torch.",
    )


def test_world(system: System) -> Diagnosis:
    """Check the test world."""
    if not system.runs_world:
        return skipped("no test world was started (--no-world)")
    try:
        report = system.test_world()
    except ImportError:  # which the check of torch reports
        return skipped("torch can't be imported")
    size = report.world.world_size
    name = f"a world of {size} ranks over {report.world.backend}"
    verdict = report.verdict
    if verdict is not None:
        return broken(f"{name} failed: {verdict.what.rstrip('.')}", verdict.why, verdict.hint)
    expected = float(size * (size + 1) // 2)
    if any(value != expected for value in report.values):
        return broken(
            f"{name} computed the sum {report.values[0]:g} instead of {expected:g}",
            "A library that torch uses computes or transfers data incorrectly.",
            "distdemo check shows the wrong operations. Check LD_PRELOAD and LD_LIBRARY_PATH.",
        )
    return fine(f"{name}: verified in {report.seconds:.1f} s")


def mpi(system: System) -> Diagnosis:
    """Check the library that mpi4py loads, and that mpiexec matches it."""
    if not system.installed("mpi4py"):
        return skipped("mpi4py is not installed", INSTALL_MPI)
    loaded = system.run([str(system.python), "-c", LOAD_MPI], LOAD_TIMEOUT_S)
    last_line = loaded.text.strip().rpartition("\n")[2]
    if loaded.status != 0:
        why = last_line[:300] or f"The process exited with {loaded.status}."
        if loaded.status is None:
            why = f"It didn't load within {LOAD_TIMEOUT_S:g} s."
        hint = f"mpi4py needs an MPI library. {INSTALL_MPI}"
        return broken("mpi4py is installed but can't be loaded", why, hint)
    version, library_text = json.loads(last_line)
    library = f"{_release(library_text)}, loaded by mpi4py {version}"
    programs = {
        path: system.run([str(path), "--version"], VERSION_TIMEOUT_S).text
        for path in (system.which("mpiexec"), system.python.parent / "mpiexec")
        if path is not None and path.exists()
    }
    if not programs:
        return warning(
            f"{library}; there is no mpiexec on PATH or in Python's environment",
            "Without it, MPI ranks can't be started by hand or on several machines.",
            "Add the bin directory of the MPI library to PATH.",
        )
    family = _family(library_text)
    first, text = next(iter(programs.items()))
    if _family(text) in (family, ""):
        return fine(f"{library}; {first} is from {_release(text)}")
    matching = [str(path) for path, other in programs.items() if _family(other) == family]
    return broken(
        f"{library}, but {first} is from {_release(text)}",
        "It starts ranks that don't find each other: every rank is rank 0 of 1, or MPI_Init fails.",
        f"Start ranks with {(*matching, f'the mpiexec of {family}')[0]}, or put its directory "
        "first on PATH.",
    )


def _family(text: str) -> str:
    """Return the family in a version text, or an empty text."""
    families = (name for name, words in FAMILIES.items() if re.search(words, text, re.IGNORECASE))
    return next(families, "")


def _release(text: str) -> str:
    """Return ``MPICH 5.0.2``."""
    number = re.search(r"(?<![\d.])\d+\.\d+(?:\.\d+)*", text)
    return f"{_family(text) or 'an unknown MPI'} {number[0] if number else ''}".strip()
