"""Environment variables that change what worlds do, and the engine that may be around us."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from distdemo.doctor.seen import Seen, broken, fine, plain, skipped, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.errors import UsageError
from distdemo.launcher.joined import engines
from distdemo.launcher.joined.placement import Placement

PREFIXES = (
    *("NCCL_", "GLOO_", "TORCH_", "UCX_", "FI_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_"),
    *("MPICH_", "HYDRA_", "KMP_", "GOMP_", "OMP_", "MKL_", "TENSORPIPE_", "CUDA_", "MPI4PY_"),
)


@dataclass(frozen=True, slots=True)
class Trap:
    """A variable that people forget.

    Attributes:
        name: the variable's.
        bad: whether a value, in lower case, does harm.
        why: what it does then.
        do: what to do.
    """

    name: str
    bad: Callable[[str], bool]
    why: str
    do: str = ""


def _on(value: str) -> bool:
    return value not in ("", "0", "false", "no", "off", "n")


def _any(value: str) -> bool:
    return value != ""


TRAPS = (
    Trap(
        "NCCL_P2P_DISABLE",
        _on,
        "GPUs of one machine no longer copy straight to each other (NVLink, PCIe), but through "
        "host memory: several times slower.",
    ),
    Trap(
        "NCCL_SHM_DISABLE",
        _on,
        "GPUs of one machine that can't copy straight to each other then talk over the network.",
    ),
    Trap("NCCL_IB_DISABLE", _on, "NCCL leaves InfiniBand and RoCE alone and takes TCP."),
    Trap(
        "NCCL_ALGO", _any, "It forces an algorithm for every size; what NCCL would choose is gone."
    ),
    Trap(
        "NCCL_PROTO", _any, "It forces a protocol for every size; LL128 is wrong on some machines."
    ),
    Trap("NCCL_COMM_ID", _any, "All communicators meet at this one address, also unrelated ones."),
    Trap("NCCL_DEBUG", lambda value: value == "trace", "Every call is logged; it is slow."),
    Trap(
        "NCCL_ASYNC_ERROR_HANDLING",
        _any,
        "It is an old name, which a later torch may not read any more.",
        "Set TORCH_NCCL_ASYNC_ERROR_HANDLING instead.",
    ),
    Trap(
        "NCCL_BLOCKING_WAIT",
        _on,
        "wait() blocks the host until the GPU is done: nothing overlaps any more. It is an old "
        "name, too.",
    ),
    Trap(
        "TORCH_NCCL_BLOCKING_WAIT",
        _on,
        "wait() blocks the host until the GPU is done: nothing overlaps any more.",
    ),
    Trap(
        "TORCH_DISTRIBUTED_DEBUG",
        lambda value: value == "detail",
        "Every collective is compared between all ranks before it runs: much slower, and it still "
        "misses a different ReduceOp.",
    ),
    Trap("CUDA_LAUNCH_BLOCKING", _on, "Every kernel is waited for: nothing overlaps any more."),
    Trap(
        "GLOO_DEVICE_TRANSPORT",
        lambda value: value not in ("", "tcp"),
        "The CPU wheels of torch have TCP alone; a transport that a build lacks ends every rank "
        "that joins.",
    ),
)
"""In one list, so that adding one is a line."""


def traps(around: Surroundings) -> Sequence[Seen]:
    """A warning for each that does harm, and a line with all the others that are set."""
    found = [trap for trap in TRAPS if trap.bad(around.environ.get(trap.name, "").strip().lower())]
    seen = [_caught(trap, around.environ[trap.name]) for trap in found]
    caught = {trap.name for trap in found}
    others = {n: v for n, v in around.set_variables(*PREFIXES).items() if n not in caught}
    listed = ", ".join(f"{name}={_short(value)}" for name, value in others.items())
    return [
        *seen,
        fine(f"set: {listed}" if others else "none that changes worlds is set", **others),
    ]


def _caught(trap: Trap, value: str) -> Seen:
    do = trap.do or f"unset {trap.name}, unless you mean it."
    return warning(f"{trap.name}={value}", trap.why, do, name=trap.name, value=value)


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def nccl_files(around: Surroundings) -> Seen:
    """Files that set NCCL's variables without anybody seeing it."""
    places = (around.root / "etc/nccl.conf", around.home / ".nccl.conf")
    found = [place for place in places if place.exists()]
    if not found:
        return skipped("there is no nccl.conf")
    lines = [
        line.strip()
        for place in found
        for line in place.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return warning(
        f"{' and '.join(map(str, found))}: {', '.join(lines) or 'empty'}",
        "NCCL reads its variables from there too, and no `env` shows them.",
        "Keep it if you mean it; what the environment says comes first.",
    )


def libraries(around: Surroundings) -> Seen:
    """LD_PRELOAD and LD_LIBRARY_PATH, which slip other libraries under torch's and MPI's."""
    preload = around.environ.get("LD_PRELOAD", "").strip()
    shadows = _shadows(around)
    if preload:
        return warning(
            f"LD_PRELOAD={_short(preload)}",
            "Every rank loads it before its own libraries; an NCCL or MPI in it replaces the one "
            "that torch or mpi4py was made with.",
            "unset LD_PRELOAD, unless you mean it.",
            preload=preload,
        )
    if shadows:
        return warning(
            f"LD_LIBRARY_PATH leads to {', '.join(shadows[:3])}",
            "It comes before the libraries that torch and mpi4py bring: their versions mix.",
            "unset LD_LIBRARY_PATH, unless you mean it.",
            found=shadows,
        )
    return fine("no variable slips libraries under torch or MPI")


def _shadows(around: Surroundings) -> list[str]:
    """Libraries of torch's or of MPI in the folders of LD_LIBRARY_PATH."""
    from pathlib import Path

    folders = filter(None, around.environ.get("LD_LIBRARY_PATH", "").split(":"))
    kinds = ("libnccl.so*", "libtorch*.so*", "libc10*.so*", "libcudart.so*", "libmpi.so*")
    return [str(found) for folder in folders for kind in kinds for found in Path(folder).glob(kind)]


def engine(around: Surroundings) -> Seen:
    """Whether an engine started this process as one rank of a world."""
    try:
        seat = engines.detect(around.environ)
    except UsageError as error:
        return broken(plain(error.what), error.why, error.hint)
    if seat is None:
        return skipped("no engine (torchrun, mpiexec, srun) started this process as a rank")
    text = f"rank {seat.rank} of {seat.world_size} ({seat.engine}): {seat.why}"
    return fine(text, engine=seat.engine, rank=seat.rank, world_size=seat.world_size)


def seated(around: Surroundings) -> Placement | None:
    """The place that an engine gives this process; None without one, and where it is not clear."""
    with suppress(UsageError):  # which the check of the engine tells
        return engines.detect(around.environ)
    return None
