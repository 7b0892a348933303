"""Checks of torch, with a test world, of MPI, and of the environment variables that affect them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from distdemo import backends
from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.joined import engines
from distdemo.measure.machine import TUNING
from distdemo.versions import torch_version, untried

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
    "MPICH": re.compile(r"hydra|mpich|mvapich|intel\(r\) mpi", re.IGNORECASE),
    "Open MPI": re.compile(r"open.?mpi|openrte|prrte", re.IGNORECASE),
}
"""Patterns of the version texts of libraries whose mpiexec can start each other's ranks."""
PREFIXES = (
    *TUNING,
    *("TORCH_", "OMPI_", "PRTE_", "PMIX_MCA_", "HYDRA_", "TENSORPIPE_", "CUDA_", "MPI4PY_"),
)
"""Prefixes of the variables that affect worlds: those of bench, and of launchers."""

ANY = re.compile(".+")
HARMFUL = {
    "NCCL_ALGO": (ANY, "It forces one algorithm for all sizes, and operations without it fail."),
    "NCCL_PROTO": (ANY, "It forces one protocol, and LL128 gives wrong results on some machines."),
    "NCCL_COMM_ID": (ANY, "All communicators rendezvous at this address, even unrelated ones."),
    "TORCH_DISTRIBUTED_DEBUG": (
        re.compile("DETAIL", re.IGNORECASE),
        "DDP over gloo crashes, and right programs are rejected if they also send and receive.",
    ),
    "GLOO_DEVICE_TRANSPORT": (
        re.compile("(?!tcp$).+", re.IGNORECASE),
        "CPU wheels have only TCP. Without the transport, every rank fails when it joins.",
    ),
}
"""Harmful values of variables that are easily forgotten, and their effects."""

LIBRARIES = ("libnccl.so*", "libtorch*.so*", "libc10*.so*", "libcudart.so*", "libmpi.so*")


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
        if clause := untried(module.__version__):
            return warning(
                f"{text}. {clause}",
                "Calls and private names of torch that distdemo uses may have changed.",
                "Look at the checks below, and at distdemo check. A newer distdemo may know it.",
            )
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


def sanitizer(system: System) -> Diagnosis:
    """Check on an untried torch that the sanitizer sees its calls, also those of DDP in C++."""
    clause = untried(torch_version())
    if not clause:
        return skipped("this version of distdemo was tried with this torch")
    if not system.runs_world:
        return skipped("no test world was started (--no-world)")
    verdict = system.faulty_world().verdict
    if verdict is not None and verdict.rows and verdict.ranks == (1,):
        return fine("it names the rank that leaves before DDP reduces the gradients")
    seen = "nothing" if verdict is None else verdict.what.rstrip(".")
    return broken(
        f"it doesn't name a rank that leaves before DDP reduces the gradients, but says: {seen}",
        "It finds calls from C++ through private names of torch, which differ in this one.",
        f"run, parity and tests on ranks may miss errors here. {clause}.",
    )


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
    if not _family(text):
        return warning(
            f"{library}; {first} --version names no known MPI",
            "If it isn't of this library, it starts ranks that don't find each other.",
            f"Try {first} -n 2 distdemo hello --backend mpi: two ranks must hear from each other.",
        )
    if _family(text) == family:
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
    families = (name for name, words in FAMILIES.items() if words.search(text))
    return next(families, "")


def _release(text: str) -> str:
    """Return ``MPICH 5.0.2``."""
    number = re.search(r"(?<![\d.])\d+\.\d+(?:\.\d+)*", text)
    return f"{_family(text) or 'an unknown MPI'} {number[0] if number else ''}".strip()


# -------------------------------------------------------------------------------------- environment


def harmful_variables(system: System) -> Sequence[Diagnosis]:
    """Check for variables that affect worlds; return one warning per harmful variable."""
    settings = {
        name: value for name, value in sorted(system.environ.items()) if name.startswith(PREFIXES)
    }
    findings = []
    for name, (values, why) in HARMFUL.items():
        if values.fullmatch(settings.get(name, "")):
            setting = f"{name}={settings.pop(name)}"
            findings.append(warning(setting, why, f"Unset {name}, unless it is intended."))
    listed = ", ".join(f"{name}={_short(value)}" for name, value in settings.items())
    text = f"set: {listed}" if listed else "no variable that affects worlds is set"
    return [*findings, fine(text)]


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def libraries(system: System) -> Diagnosis:
    """Check LD_LIBRARY_PATH, which can replace libraries of torch and MPI."""
    folders = filter(None, system.environ.get("LD_LIBRARY_PATH", "").split(":"))
    files = [
        str(file) for folder in folders for name in LIBRARIES for file in Path(folder).glob(name)
    ]
    if files:
        return warning(
            f"LD_LIBRARY_PATH contains {', '.join(files[:3])}",
            "It takes precedence over the libraries of torch and mpi4py, which mixes versions.",
            "Unset LD_LIBRARY_PATH, unless it is intended.",
        )
    return fine("LD_LIBRARY_PATH replaces no library of torch or MPI")


def master(system: System) -> Diagnosis:
    """Check whether MASTER_ADDR and MASTER_PORT are left over from an old session."""
    address = system.environ.get("MASTER_ADDR", "")
    port = system.environ.get("MASTER_PORT", "")
    if not (address or port):
        return skipped("MASTER_ADDR and MASTER_PORT are not set")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        return broken(
            f"MASTER_PORT={port} is not a port",
            "init_process_group reads it and fails.",
            "Unset it, or set a number from 1 to 65535.",
        )
    if address and not system.resolve(address)[0]:
        return broken(
            f"MASTER_ADDR={address} does not resolve",
            "Every rank that reads it waits for the store until its timeout.",
            "Unset it, or set it to the host of rank 0.",
        )
    endpoint = f"{address or '(no MASTER_ADDR)'}:{port or '(no MASTER_PORT)'}"
    here = engines.detect(system.environ)
    if here is not None:
        return fine(f"{endpoint}, for rank {here.rank} of {here.world_size} ({here.engine})")
    return warning(
        f"{endpoint} is set, and no engine started this process",
        "A shell profile, a batch script or an old session set it. A program that reads it joins, "
        "or waits for, the wrong world.",
        "Unset MASTER_ADDR and MASTER_PORT, unless they are intended.",
    )
