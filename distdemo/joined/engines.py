"""Detect the engine (torchrun, srun, mpiexec) that started this process as one rank of a world.

An engine sets environment variables. Each function below turns them into a `Placement`, or returns
None if they are not set. Detection has no side effects: it imports, resolves and connects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from distdemo.errors import UsageError
from distdemo.joined.placement import Placement

Environ = Mapping[str, str]

_ALONE = "Or use --launcher local to start a world on this machine only."
_MOST = 2**31 - 1  # ranks and ports are C ints to every engine


# ------------------------------------------------------------------------------ reading variables


def _set(environ: Environ, *names: str) -> str:
    """Return the first of these variables that is set; empty if none is."""
    return next((name for name in names if environ.get(name, "").strip()), "")


def _number(environ: Environ, name: str, least: int = 0, most: int = _MOST) -> int:
    """Return the value of a variable as an integer.

    Raises:
        UsageError: It isn't an integer between ``least`` and ``most``.
    """
    text = environ.get(name, "").strip()
    value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else -1
    if not least <= value <= most:
        allowed = f"of at least {least}" if most == _MOST else f"from {least} to {most}"
        why = f"It must be a whole number {allowed}."
        raise UsageError(f"{name} is {text[:60]!r}.", why, f"Set it right, or unset it. {_ALONE}")
    return value


def _number_or_0(environ: Environ, *names: str) -> int:
    name = _set(environ, *names)
    return _number(environ, name) if name else 0


def _rank_and_size(environ: Environ, rank_name: str, size_name: str) -> tuple[int, int]:
    """Return the rank and the world size from these two variables.

    Raises:
        UsageError: One is missing or not a number, or the rank is not below the size.
    """
    for name in (rank_name, size_name):
        if not _set(environ, name):
            raise UsageError(
                f"{name} is not set, although this looks like one rank of several.",
                f"{rank_name} and {size_name} are needed together.",
                f"Set {name} too. {_ALONE}",
            )
    size = _number(environ, size_name, 1)
    return _number(environ, rank_name, most=size - 1), size


def _master(environ: Environ) -> tuple[str, int]:
    """Return MASTER_ADDR and MASTER_PORT; empty and 0 if they are not set."""
    port = _number(environ, "MASTER_PORT", 1, 65535) if _set(environ, "MASTER_PORT") else 0
    return environ.get("MASTER_ADDR", "").strip(), port


# -------------------------------------------------------------------------- torchrun, and by hand


def _torchrun(environ: Environ) -> Placement | None:
    """Return the placement of a worker of torchrun, whose agent may serve a store."""
    if not _set(environ, "TORCHELASTIC_RUN_ID"):
        return None
    return replace(
        _by_rank(environ),
        engine="torchrun",
        hosted=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        job=f"{environ['TORCHELASTIC_RUN_ID']}.{environ.get('TORCHELASTIC_RESTART_COUNT') or 0}",
        why="TORCHELASTIC_RUN_ID, RANK and WORLD_SIZE are set",
    )


def _environment(environ: Environ) -> Placement | None:
    """Return the placement of a rank whose variables were set by hand or by an operator."""
    return _by_rank(environ) if _set(environ, "RANK", "WORLD_SIZE") else None


def _by_rank(environ: Environ) -> Placement:
    rank, size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    host, port = _master(environ)
    if not (host and port):
        missing = "MASTER_PORT" if host else "MASTER_ADDR"
        raise UsageError(
            f"{missing} is not set, although RANK and WORLD_SIZE are.",
            "The ranks find each other at that address and port of rank 0's host.",
            f"Set both on all ranks: MASTER_ADDR=10.0.0.1 MASTER_PORT=29500. {_ALONE}",
        )
    return Placement(
        engine="environment",
        rank=rank,
        world_size=size,
        local_rank=_number_or_0(environ, "LOCAL_RANK"),
        local_size=_number_or_0(environ, "LOCAL_WORLD_SIZE"),
        master=host,
        port=port,
        why="RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set",
    )


# ------------------------------------------------------------------------------------------ Slurm
# Source: srun's manual page, OUTPUT ENVIRONMENT VARIABLES; slurm.h for the step ids that are not
# steps of ranks. Some names differ between releases: the first that is set counts.

_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
_NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_NO_STEP = 0xFFFFFFF0  # slurm.h: interactive, batch, extern and pending "steps" are numbered above


def _slurm(environ: Environ) -> Placement | None:
    """Return the placement of a task of an srun step.

    A batch script and a shell of ``salloc`` or ``srun --pty`` have most of the variables, but are
    not ranks.

    Without MASTER_PORT the port is 20000 + (SLURM_JOB_ID + 1009 × SLURM_STEP_ID) mod 10000. That is
    below Linux's ephemeral ports and, because 1009 is a prime, different for steps that run at the
    same time unless their numbers are far apart.
    """
    step = _set(environ, *_STEP)
    if not (_set(environ, "SLURM_PROCID") and environ.get(step, "").strip().isdecimal()):
        return None
    if _is_slurm_shell(environ):
        return None
    tasks = _set(environ, *_TASKS) or _TASKS[0]
    rank, size = _rank_and_size(environ, "SLURM_PROCID", tasks)
    job = _number(environ, _set(environ, *_JOB) or _JOB[0])
    host, port = _master(environ)
    return Placement(
        engine="slurm",
        rank=rank,
        world_size=size,
        local_rank=_number_or_0(environ, "SLURM_LOCALID"),
        local_size=_slurm_tasks_here(environ),
        master=host or _first_slurm_host(environ),
        port=port or 20000 + (job + 1009 * _number(environ, step)) % 10000,
        job=f"{job}.{_number(environ, step)}",
        why=f"SLURM_PROCID, {step} and {tasks} are set",
    )


def _is_slurm_shell(environ: Environ) -> bool:
    """Return True if this process runs in an interactive shell of Slurm, as its only task."""
    step = environ.get(_set(environ, *_STEP), "").strip()
    if not (_set(environ, "SLURM_PROCID") and step.isdecimal()):
        return False
    alone = environ.get(_set(environ, *_TASKS), "").strip() == "1"
    return int(step) >= _NO_STEP or (alone and bool(_set(environ, "SLURM_PTY_PORT")))


def _slurm_tasks_here(environ: Environ) -> int:
    """Return the number of tasks on this host, from ``2(x3),1``; 0 if unknown."""
    if not _set(environ, "SLURM_NODEID"):
        return 0
    host = _number(environ, "SLURM_NODEID")
    counts: list[int] = []
    text = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    for tasks, hosts in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * min(int(hosts or 1), host + 1)
    return counts[host] if host < len(counts) else 0


def _first_slurm_host(environ: Environ) -> str:
    """Return the first host of the step, where Slurm puts rank 0.

    ``node[01-04,7],gpu3`` starts with node01, and ``rack[0-1]n[1-2]`` with rack0n1.

    Raises:
        UsageError: There is no list of hosts, or it can't be parsed.
    """
    name = _set(environ, *_NODES)
    text = environ[name].strip() if name else ""
    while True:  # replace the innermost brackets by the first item in them
        first = re.sub(r"\[([^][,-]+)[^][]*\]", r"\1", text)
        if first == text:
            break
        text = first
    host = re.split(r"[,\s]", text)[0]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        problem = f"{name} is {environ[name][:60]!r}" if name else f"{_NODES[0]} is not set"
        raise UsageError(
            f"This is a task of a Slurm step, but {problem}.",
            "The ranks find each other at the first host of that list.",
            f"Set MASTER_ADDR to the host of rank 0. {_ALONE}",
        )
    return host


# -------------------------------------------------------------------------------------------- MPI

_PMI = "PMI_RANK"  # MPICH, Intel MPI, Cray's PALS with its PMI, srun --mpi=pmi2, MS-MPI
_PMIX = "PMIX_RANK"  # PRRTE with a program that isn't Open MPI's; it doesn't set the size
_MPI_SIZES = {
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_RANK": "MV2_COMM_WORLD_SIZE",
    _PMI: "PMI_SIZE",
    _PMIX: "WORLD_SIZE",
}
"""Variables with the rank and the size, by MPI implementation."""
_PMI_LOCAL_RANKS = ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID")
_LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    *_PMI_LOCAL_RANKS,
    "PMIX_LOCAL_RANK",
)
_LOCAL_SIZES = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PMI_LOCAL_SIZE",
    "PALS_LOCAL_SIZE",
    "PMIX_LOCAL_SIZE",
)
_MPI_JOBS = ("I_MPI_HYDRA_UUID", "PALS_APID", "PMI_JOBID", "PMIX_NAMESPACE")


def _mpi(environ: Environ) -> Placement | None:
    """Return the placement of a rank of mpiexec. Only MASTER_* can set an address."""
    name = _mpi_rank(environ)
    if not name:
        return None
    rank, size = _rank_and_size(environ, name, _MPI_SIZES[name])
    host, port = _master(environ)
    return Placement(
        engine="mpi",
        rank=rank,
        world_size=size,
        local_rank=_number_or_0(environ, *_LOCAL_RANKS),
        local_size=_number_or_0(environ, *_LOCAL_SIZES),
        master=host if port else "",
        port=port if host else 0,
        job=environ.get(_set(environ, *_MPI_JOBS), "").strip(),
        why=f"{name} and {_MPI_SIZES[name]} are set",
    )


def _mpi_rank(environ: Environ) -> str:
    """Return the variable with the rank if MPI has set it or the size; empty otherwise.

    Slurm sets PMI's and PMIx's, too, in shells that are not ranks.
    """
    for rank, size in _MPI_SIZES.items():
        by_slurm = rank == _PMIX and environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
        in_shell = rank == _PMI and _is_slurm_shell(environ)
        if by_slurm or (in_shell and not _set(environ, *_PMI_LOCAL_RANKS)):
            continue
        if _set(environ, rank) or (rank != _PMIX and _set(environ, size)):
            return rank
    return ""


def _mpi_is_nearer(environ: Environ, placement: Placement) -> bool:
    """Return True if mpiexec started this process in a world different from Slurm's step.

    In a Slurm job, mpiexec starts one helper per host through srun, and the ranks inherit the
    variables of that step. srun itself sets PMI's and PMIx's variables, too.

    Raises:
        UsageError: Both worlds have the same size, but number this process differently.
    """
    name = _mpi_rank(environ)
    if name in ("", _PMIX):
        return name == _PMIX
    rank, size = _rank_and_size(environ, name, _MPI_SIZES[name])
    if size == placement.world_size and rank != placement.rank:
        raise UsageError(
            f"SLURM_PROCID is {placement.rank}, but {name} is {rank}.",
            f"Both describe a world of {size} ranks, but not the same one.",
            "Choose one: --launcher slurm or --launcher mpi.",
        )
    return size != placement.world_size


# -------------------------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that starts ranks.

    Attributes:
        find: Returns the placement of this process, or None.
        looks_for: Variables that it sets, for error messages.
        start: Example of a command line.
    """

    find: Callable[[Environ], Placement | None]
    looks_for: str
    start: str


ENGINES = {
    "torchrun": Engine(
        _torchrun,
        "TORCHELASTIC_RUN_ID, RANK and WORLD_SIZE",
        "torchrun --nproc-per-node 4 -m distdemo ...",
    ),
    "slurm": Engine(
        _slurm,
        "SLURM_PROCID, SLURM_STEP_ID and SLURM_STEP_NUM_TASKS",
        "srun -n 4 distdemo ...",
    ),
    "mpi": Engine(_mpi, " or ".join(_MPI_SIZES), "mpiexec -n 4 distdemo ..."),
    "environment": Engine(
        _environment,
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        "RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 distdemo ...",
    ),
}
"""Values of ``--launcher`` in addition to ``auto`` and ``local``, in the order of detection: the
innermost engine comes first. srun, mpiexec or an operator may start torchrun, which starts none of
them."""


def detect(environ: Environ) -> Placement | None:
    """Return the placement of this process, or None if no engine started it.

    Raises:
        UsageError: Variables are missing or contradict each other.
    """
    for name, engine in ENGINES.items():
        placement = engine.find(environ)
        if placement is None or (name == "slurm" and _mpi_is_nearer(environ, placement)):
            continue
        if name in ("slurm", "mpi") and all(_set(environ, n) for n in ("RANK", "WORLD_SIZE")):
            _check_rank_agrees(environ, placement)
        return placement
    return None


def named(name: str, environ: Environ) -> Placement:
    """Return the placement that this engine gives, whatever other engines have set.

    Raises:
        UsageError: It didn't start this process, or its variables contradict each other.
        KeyError: There is no such engine.
    """
    engine = ENGINES[name]
    placement = engine.find(environ)
    if placement is None:
        raise UsageError(
            f"--launcher {name}, but this process is not a rank of {name}.",
            f"It looked for {engine.looks_for} in the environment.",
            f"Start it like this: {engine.start} Without an engine leave out --launcher.",
        )
    return placement


def _check_rank_agrees(environ: Environ, placement: Placement) -> None:
    """Raise `UsageError` if RANK and WORLD_SIZE contradict the engine."""
    rank, size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    if (rank, size) != (placement.rank, placement.world_size):
        raise UsageError(
            f"RANK and WORLD_SIZE mean rank {rank} of {size}; {placement.engine} has rank "
            f"{placement.rank} of {placement.world_size}.",
            f"{placement.why}, too, and a process can be in one world only.",
            f"Unset RANK and WORLD_SIZE, or choose one: --launcher {placement.engine}, or "
            "--launcher environment.",
        )
