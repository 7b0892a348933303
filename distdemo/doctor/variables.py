"""Environment variables that change what worlds do, and the engine that may be around us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from distdemo.doctor.network import is_loopback
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import Surroundings
from distdemo.errors import UsageError
from distdemo.launcher.joined import engines

PREFIXES = (
    *("NCCL_", "GLOO_", "TORCH_", "UCX_", "FI_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_"),
    *("MPICH_", "HYDRA_", "KMP_", "GOMP_", "OMP_", "MKL_", "TENSORPIPE_", "CUDA_", "MPI4PY_"),
)


class Trap(NamedTuple):
    """A variable that people forget, what it does, and which values do no harm.

    Attributes:
        harmless: beside none at all; None: every value does harm.
        harmful: the only values that do.
        do: what to do; by default unset it.
    """

    name: str
    why: str
    harmless: tuple[str, ...] | None = ("0", "false", "no", "off", "n")
    harmful: tuple[str, ...] = ()
    do: str = ""

    def catches(self, environ: Mapping[str, str]) -> bool:
        """Whether it is set and does harm."""
        value = environ.get(self.name, "").strip().lower()
        if self.harmful:
            return value in self.harmful
        return value != "" and value not in (self.harmless or ())


BLOCKS = "wait() blocks the host until the GPU is done: nothing overlaps any more."
TRAPS = (
    Trap(
        "NCCL_P2P_DISABLE",
        "GPUs of one machine no longer copy straight to each other (NVLink, PCIe), but through "
        "host memory: several times slower.",
    ),
    Trap(
        "NCCL_SHM_DISABLE",
        "GPUs of one machine that can't copy straight to each other then talk over the network.",
    ),
    Trap("NCCL_IB_DISABLE", "NCCL leaves InfiniBand and RoCE alone and takes TCP."),
    Trap("NCCL_ALGO", "It forces an algorithm for every size.", None),
    Trap(
        "NCCL_PROTO", "It forces a protocol for every size; LL128 is wrong on some machines.", None
    ),
    Trap("NCCL_COMM_ID", "All communicators meet at this one address, unrelated ones too.", None),
    Trap("NCCL_DEBUG", "Every call is logged; it is slow.", harmful=("trace",)),
    Trap(
        "NCCL_ASYNC_ERROR_HANDLING",
        "It is an old name, which a later torch may not read any more.",
        None,
        do="Set TORCH_NCCL_ASYNC_ERROR_HANDLING instead.",
    ),
    Trap("NCCL_BLOCKING_WAIT", f"{BLOCKS} It is an old name, too."),
    Trap("TORCH_NCCL_BLOCKING_WAIT", BLOCKS),
    Trap(
        "TORCH_DISTRIBUTED_DEBUG",
        "Every collective is compared between all ranks before it runs: much slower, and it still "
        "misses a different ReduceOp.",
        harmful=("detail",),
    ),
    Trap("CUDA_LAUNCH_BLOCKING", "Every kernel is waited for: nothing overlaps any more."),
    Trap(
        "GLOO_DEVICE_TRANSPORT",
        "The CPU wheels of torch have TCP alone; a transport that a build lacks ends every rank "
        "that joins.",
        ("tcp",),
    ),
)


def traps(around: Surroundings) -> Sequence[Finding]:
    """A warning for each that does harm, and a line with all the others that are set."""
    environ = around.environ
    caught = [trap for trap in TRAPS if trap.catches(environ)]
    names = {trap.name for trap in caught}
    others = {
        name: environ[name]
        for name in sorted(environ)
        if name.startswith(PREFIXES) and name not in names
    }
    listed = ", ".join(f"{name}={_short(value)}" for name, value in others.items())
    return [
        *(
            warning(
                f"{trap.name}={environ[trap.name]}",
                trap.why,
                trap.do or f"unset {trap.name}, unless you mean it.",
            )
            for trap in caught
        ),
        fine(f"set: {listed}" if others else "none that changes worlds is set", **others),
    ]


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def libraries(around: Surroundings) -> Finding:
    """LD_PRELOAD and LD_LIBRARY_PATH, which slip other libraries under torch's and MPI's."""
    preload = around.environ.get("LD_PRELOAD", "").strip()
    if preload:
        return warning(
            f"LD_PRELOAD={_short(preload)}",
            "Every rank loads it before its own libraries; an NCCL or MPI in it replaces the one "
            "that torch or mpi4py was made with.",
            "unset LD_PRELOAD, unless you mean it.",
        )
    folders = filter(None, around.environ.get("LD_LIBRARY_PATH", "").split(":"))
    kinds = ("libnccl.so*", "libtorch*.so*", "libc10*.so*", "libcudart.so*", "libmpi.so*")
    found = [str(one) for folder in folders for kind in kinds for one in Path(folder).glob(kind)]
    if found:
        return warning(
            f"LD_LIBRARY_PATH leads to {', '.join(found[:3])}",
            "It comes before the libraries that torch and mpi4py bring: their versions mix.",
            "unset LD_LIBRARY_PATH, unless you mean it.",
        )
    return fine("no variable slips libraries under torch or MPI")


def engine(around: Surroundings) -> Finding:
    """Whether an engine started this process as one rank of a world."""
    try:
        here = engines.detect(around.environ)
    except UsageError as error:
        return broken(error.what.rstrip("."), error.why, error.hint)
    if here is None:
        return skipped("no engine (torchrun, mpiexec, srun) started this process as a rank")
    text = f"rank {here.rank} of {here.world_size} ({here.engine}): {here.why}"
    return fine(text)


def master(around: Surroundings) -> Finding:
    """MASTER_ADDR and MASTER_PORT: set by an engine around us, or left behind by an old session."""
    address, port = (around.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not (address or port):
        return skipped("MASTER_ADDR and MASTER_PORT are not set")
    place = f"{address or '(no MASTER_ADDR)'}:{port or '(no MASTER_PORT)'}"
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        return broken(
            f"MASTER_PORT={port} is not a port",
            "init_process_group reads it and fails.",
            "Unset it, or set a number from 1 to 65535.",
        )
    if address and not around.resolve(address).found:
        return broken(
            f"MASTER_ADDR={address} does not resolve",
            "Every rank that reads it waits for the store until its timeout.",
            "Unset it, or name the machine of rank 0.",
        )
    with suppress(UsageError):  # the check of the engine tells of it
        here = engines.detect(around.environ)
        if here is not None:
            return fine(f"{place}, for rank {here.rank} of {here.world_size} ({here.engine})")
    own = {one for each in around.interfaces() for one in each.addresses}
    addresses = around.resolve(address).found if address else ()
    ours = bool(port) and any(one in own or is_loopback(one) for one in addresses)
    taken = around.bind(int(port)) if ours else ""
    held = f", and that port is {taken} here" if taken else ""
    return warning(
        f"{place} is set, and no engine started this process{held}",
        "A shell profile, a batch script or an old session set it. A program that reads it joins, "
        "or waits for, a world that it may not belong to.",
        "unset MASTER_ADDR MASTER_PORT, unless you mean them.",
    )
