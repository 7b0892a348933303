"""Checks of torch, with a test world, and of MPI."""

from __future__ import annotations

import json
import re
from subprocess import SubprocessError
from typing import NamedTuple

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

VENDORS = {
    "Intel MPI": r"intel\(r\) mpi",
    "MVAPICH": "mvapich",
    "Cray MPICH": "cray mpich",
    "MPICH": "hydra|mpich",
    "Open MPI": "open.?mpi|openrte|prrte",
    "Microsoft MPI": "microsoft mpi",
}
"""Patterns of the version strings by vendor; the first that matches counts."""

USE_HYDRA = frozenset({"Intel MPI", "MVAPICH", "MPICH"})
"""Vendors whose mpiexec can start each other's ranks."""


# ------------------------------------------------------------------------------------------ torch


def build(system: System) -> Diagnosis:
    """Check that torch can be imported."""
    torch = system.torch()
    version = str(torch.__version__)
    cuda = str(torch.version.cuda or "")
    rocm = str(torch.version.hip or "")
    platform = "CPU"
    if cuda or rocm:
        platform = f"CUDA {cuda}" if cuda else f"ROCm {rocm}"
    return fine(f"{version}, for {platform}", version=version, cuda=cuda, rocm=rocm)


def built_in(system: System) -> Diagnosis:
    """Check the backends that torch was built with."""
    names = system.built_in_backends()
    listed = ", ".join(names.values())
    usual = backends.default_backend(1, "cpu").name
    if usual not in names:
        return broken(
            f"built in: {listed or 'none'}; {usual} is missing",
            f"CPU tensors, objects and most examples need {usual}.",
            "Install a wheel of torch for Linux: pip install torch.",
        )
    return fine(f"built in: {listed} (distdemo backends tests each)", backends=", ".join(names))


def test_world(system: System) -> Diagnosis:
    """Check the test world."""
    if not system.runs_world:
        return skipped("no test world was started (--no-world)")
    report = system.test_world()
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


# -------------------------------------------------------------------------------------------- MPI


class MpiRelease(NamedTuple):
    """Vendor and version of an MPI library or mpiexec; empty if unknown."""

    vendor: str
    version: str

    def __str__(self) -> str:
        return f"{self.vendor or 'an unknown MPI'} {self.version}".strip()


def release_in(text: str) -> MpiRelease:
    """Parse the output of ``mpiexec --version`` or ``MPI_Get_library_version``."""
    names = (vendor for vendor, words in VENDORS.items() if re.search(words, text, re.IGNORECASE))
    number = re.search(r"(?<![\d.])\d+\.\d+(?:\.\d+)*", text)
    return MpiRelease(next(names, ""), number[0] if number else "")


def load_mpi(system: System) -> tuple[str, MpiRelease]:
    """Return the version of mpi4py and the release of the library that it loads.

    Raises:
        SubprocessError: It can't be loaded.
    """
    output = system.run([str(system.python), "-c", LOAD_MPI], LOAD_TIMEOUT_S)
    if output.status is None:
        raise SubprocessError(f"It didn't load within {LOAD_TIMEOUT_S:g} s.")
    last_line = output.text.strip().rpartition("\n")[2]
    if output.status != 0:
        raise SubprocessError(last_line[:300] or f"The process exited with {output.status}.")
    version, text = json.loads(last_line)
    return version, release_in(text)


def mpi_library(system: System) -> Diagnosis:
    """Check the library that mpi4py loads, in a child process."""
    if not system.installed("mpi4py"):
        return skipped("mpi4py is not installed", INSTALL_MPI)
    try:
        version, library = load_mpi(system)
    except SubprocessError as error:
        hint = f"mpi4py needs an MPI library. {INSTALL_MPI}"
        return broken("mpi4py is installed but can't be loaded", str(error), hint)
    return fine(f"{library}, loaded by mpi4py {version}", library=str(library), mpi4py=version)


def mpiexec(system: System) -> Diagnosis:
    """Check that mpiexec on PATH, or else in Python's environment, matches the library."""
    if not system.installed("mpi4py"):
        return skipped("not needed without mpi4py", INSTALL_MPI)
    candidates = (system.which("mpiexec"), system.python.parent / "mpiexec")
    releases = {
        path: release_in(system.run([str(path), "--version"], VERSION_TIMEOUT_S).text)
        for path in candidates
        if path is not None and path.exists()
    }
    if not releases:
        return warning(
            "there is no mpiexec on PATH or in Python's environment",
            "Without it, MPI ranks can't be started by hand or on several machines.",
            "Add the bin directory of the MPI library to PATH.",
        )
    try:
        _, library = load_mpi(system)
    except SubprocessError:
        return skipped("mpi4py can't be loaded")
    first, release = next(iter(releases.items()))
    matching = [path for path, known in releases.items() if known.vendor == library.vendor]
    hint = f"Install the mpiexec of {library.vendor}."
    if matching:
        hint = f"Start ranks with {matching[0]}."
    if not release.vendor:
        return warning(
            f"{first} --version names no known MPI",
            f"It may not be an mpiexec, or it took longer than {VERSION_TIMEOUT_S:g} s.",
            hint,
        )
    is_same_vendor = release.vendor == library.vendor
    if is_same_vendor and release.version.split(".")[0] == library.version.split(".")[0]:
        return fine(f"{first} is from {release}, like the library")
    text = f"{first} is from {release}, but mpi4py loads {library}"
    if is_same_vendor or {release.vendor, library.vendor} <= USE_HYDRA:
        return warning(
            text,
            "They come from two installations, which usually work together, but not always.",
            "Use one installation: which -a mpiexec lists them.",
        )
    return broken(
        text,
        "It starts ranks that don't find each other: every rank is rank 0 of 1, or MPI_Init fails.",
        f"{hint} Or put its directory first on PATH.",
    )
