"""Checks of environment variables that affect worlds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.joined import engines

PREFIXES = (
    *("NCCL_", "GLOO_", "TORCH_", "UCX_", "FI_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_"),
    *("MPICH_", "HYDRA_", "KMP_", "GOMP_", "OMP_", "MKL_", "TENSORPIPE_", "CUDA_", "MPI4PY_"),
)
"""Prefixes of the variables that affect worlds."""

HARMFUL = {
    "NCCL_ALGO=.+": "It forces one algorithm for all sizes, and operations without it fail.",
    "NCCL_PROTO=.+": "It forces one protocol, and LL128 gives wrong results on some machines.",
    "NCCL_COMM_ID=.+": "All communicators rendezvous at this address, even unrelated ones.",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL": (
        "It compares every collective across ranks. DistributedDataParallel over gloo crashes, and "
        "right programs are rejected if they also send and receive."
    ),
    "GLOO_DEVICE_TRANSPORT=(?!tcp$).+": (
        "The CPU wheels of torch have only TCP. With a transport that is missing from the build, "
        "every rank fails when it joins."
    ),
}
"""Effects of variables that are easily forgotten and make worlds fail, by pattern."""

LIBRARIES = ("libnccl.so*", "libtorch*.so*", "libc10*.so*", "libcudart.so*", "libmpi.so*")


def harmful_variables(system: System) -> Sequence[Diagnosis]:
    """Check for variables that affect worlds; return one warning per harmful variable."""
    settings = {
        name: value for name, value in sorted(system.environ.items()) if name.startswith(PREFIXES)
    }
    findings = []
    for pattern, why in HARMFUL.items():
        name = pattern.partition("=")[0]
        setting = f"{name}={settings.get(name, '')}"
        if re.fullmatch(pattern, setting, re.IGNORECASE):
            del settings[name]
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
