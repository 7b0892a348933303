"""Checks of environment variables that affect worlds, and of the surrounding engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from distdemo.doctor.network import is_loopback
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.errors import UsageError
from distdemo.joined import engines

PREFIXES = (
    *("NCCL_", "GLOO_", "TORCH_", "UCX_", "FI_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_"),
    *("MPICH_", "HYDRA_", "KMP_", "GOMP_", "OMP_", "MKL_", "TENSORPIPE_", "CUDA_", "MPI4PY_"),
)


class HarmfulVariable(NamedTuple):
    """An environment variable that is easily forgotten and causes problems.

    Attributes:
        why: Explanation of its effect.
        harmless: Values without an effect; None if every value has one.
        harmful: The only values with an effect; empty for all except ``harmless``.
        hint: Suggested fix; empty for unsetting it.
    """

    name: str
    why: str
    harmless: tuple[str, ...] | None = ("0", "false", "no", "off", "n")
    harmful: tuple[str, ...] = ()
    hint: str = ""

    def is_harmful(self, environ: Mapping[str, str]) -> bool:
        """Return True if the variable is set to a harmful value."""
        value = environ.get(self.name, "").strip().lower()
        if self.harmful:
            return value in self.harmful
        return value != "" and value not in (self.harmless or ())


BLOCKS = "wait() blocks the host until the GPU is done, so nothing overlaps."
HARMFUL_VARIABLES = (
    HarmfulVariable(
        "NCCL_P2P_DISABLE",
        "GPUs on one machine copy through host memory instead of directly (NVLink, PCIe), which is "
        "several times slower.",
    ),
    HarmfulVariable(
        "NCCL_SHM_DISABLE",
        "GPUs on one machine that can't copy directly use the network instead of shared memory.",
    ),
    HarmfulVariable("NCCL_IB_DISABLE", "NCCL uses TCP instead of InfiniBand and RoCE."),
    HarmfulVariable("NCCL_ALGO", "It forces one algorithm for all sizes.", None),
    HarmfulVariable(
        "NCCL_PROTO",
        "It forces one protocol for all sizes, and LL128 gives wrong results on some machines.",
        None,
    ),
    HarmfulVariable(
        "NCCL_COMM_ID", "All communicators rendezvous at this address, even unrelated ones.", None
    ),
    HarmfulVariable("NCCL_DEBUG", "It logs every call, which is slow.", harmful=("trace",)),
    HarmfulVariable(
        "NCCL_ASYNC_ERROR_HANDLING",
        "It is a deprecated name that newer releases of torch may ignore.",
        None,
        hint="Set TORCH_NCCL_ASYNC_ERROR_HANDLING instead.",
    ),
    HarmfulVariable("NCCL_BLOCKING_WAIT", f"{BLOCKS} The name is also deprecated."),
    HarmfulVariable("TORCH_NCCL_BLOCKING_WAIT", BLOCKS),
    HarmfulVariable(
        "TORCH_DISTRIBUTED_DEBUG",
        "Every collective is compared across ranks before it runs, which is much slower and still "
        "misses a different ReduceOp.",
        harmful=("detail",),
    ),
    HarmfulVariable(
        "CUDA_LAUNCH_BLOCKING", "The host waits for every kernel, so nothing overlaps."
    ),
    HarmfulVariable(
        "GLOO_DEVICE_TRANSPORT",
        "The CPU wheels of torch have only TCP. With a transport that is missing from the build, "
        "every rank fails when it joins.",
        ("tcp",),
    ),
)


def harmful_variables(system: System) -> Sequence[Finding]:
    """Check for variables that affect worlds; return one warning per harmful variable."""
    environ = system.environ
    caught = [each for each in HARMFUL_VARIABLES if each.is_harmful(environ)]
    names = {each.name for each in caught}
    others = {
        name: environ[name]
        for name in sorted(environ)
        if name.startswith(PREFIXES) and name not in names
    }
    listed = ", ".join(f"{name}={_short(value)}" for name, value in others.items())
    return [
        *(
            warning(
                f"{each.name}={environ[each.name]}",
                each.why,
                each.hint or f"Unset {each.name}, unless it is intended.",
            )
            for each in caught
        ),
        fine(f"set: {listed}" if others else "no variable that affects worlds is set", **others),
    ]


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def libraries(system: System) -> Finding:
    """Check LD_PRELOAD and LD_LIBRARY_PATH, which can replace libraries of torch and MPI."""
    preload = system.environ.get("LD_PRELOAD", "").strip()
    if preload:
        return warning(
            f"LD_PRELOAD={_short(preload)}",
            "Every rank loads it before its own libraries. An NCCL or MPI library in it replaces "
            "the one that torch or mpi4py was built with.",
            "Unset LD_PRELOAD, unless it is intended.",
        )
    folders = filter(None, system.environ.get("LD_LIBRARY_PATH", "").split(":"))
    kinds = ("libnccl.so*", "libtorch*.so*", "libc10*.so*", "libcudart.so*", "libmpi.so*")
    found = [str(one) for folder in folders for kind in kinds for one in Path(folder).glob(kind)]
    if found:
        return warning(
            f"LD_LIBRARY_PATH contains {', '.join(found[:3])}",
            "It takes precedence over the libraries of torch and mpi4py, which mixes versions.",
            "Unset LD_LIBRARY_PATH, unless it is intended.",
        )
    return fine("no variable replaces libraries of torch or MPI")


DUMP_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Variables of torch's flight recorder: the new name and the old one."""


def engine(system: System) -> Finding:
    """Check for an engine that started this process as a rank."""
    try:
        here = engines.detect(system.environ)
    except UsageError as error:
        return broken(error.what.rstrip("."), error.why, error.hint)
    if here is None:
        return skipped("no engine (torchrun, mpiexec, srun) started this process as a rank")
    text = f"rank {here.rank} of {here.world_size} ({here.engine}): {here.why}"
    return fine(text)


def flight_recorder(system: System) -> Finding:
    """Check whether the ranks of a hung job leave dumps in a known place."""
    given = [system.environ.get(name, "") for name in DUMP_FILES]
    sizes = [system.environ.get(name, "") for name in RECORDER_SIZES]
    prefix, size = (next(filter(None, each), "") for each in (given, sizes))
    if prefix and size.isdigit() and int(size):
        return fine(f"the latest {int(size):,} calls, dumped to {prefix}RANK after a time-out")
    with suppress(UsageError):  # reported by ``engine``
        if engines.detect(system.environ) is None:
            return skipped("no engine started this process, so no job needs it")
    return warning(
        f"{' and '.join(RECORDER_SIZES[: not size] + DUMP_FILES[: not prefix])} not set",
        "After a hang, distdemo postmortem finds the rank and line in the ranks' dumps.",
        f"Set {RECORDER_SIZES[0]}=2000 and {DUMP_FILES[0]}=FOLDER/rank_; see docs/postmortem.md.",
    )


def master(system: System) -> Finding:
    """Check whether MASTER_ADDR and MASTER_PORT are left over from an old session."""
    address, port = (system.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not (address or port):
        return skipped("MASTER_ADDR and MASTER_PORT are not set")
    endpoint = f"{address or '(no MASTER_ADDR)'}:{port or '(no MASTER_PORT)'}"
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        return broken(
            f"MASTER_PORT={port} is not a port",
            "init_process_group reads it and fails.",
            "Unset it, or set a number from 1 to 65535.",
        )
    if address and not system.resolve(address).found:
        return broken(
            f"MASTER_ADDR={address} does not resolve",
            "Every rank that reads it waits for the store until its timeout.",
            "Unset it, or set it to the host of rank 0.",
        )
    with suppress(UsageError):  # reported by ``engine``
        here = engines.detect(system.environ)
        if here is not None:
            return fine(f"{endpoint}, for rank {here.rank} of {here.world_size} ({here.engine})")
    own = {one for each in system.interfaces() for one in each.addresses}
    addresses = system.resolve(address).found if address else ()
    ours = bool(port) and any(one in own or is_loopback(one) for one in addresses)
    taken = system.bind(int(port)) if ours else ""
    held = f", and that port is {taken} here" if taken else ""
    return warning(
        f"{endpoint} is set, and no engine started this process{held}",
        "A shell profile, a batch script or an old session set it. A program that reads it joins, "
        "or waits for, the wrong world.",
        "Unset MASTER_ADDR and MASTER_PORT, unless they are intended.",
    )
