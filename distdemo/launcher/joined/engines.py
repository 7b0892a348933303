"""Which engine started this process as one rank of a world: one ordered table, asked in turn.

To find out has no side effect: nothing is imported, resolved or connected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distdemo.errors import UsageError
from distdemo.launcher.joined import mpiexec, slurm
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.joined.variables import ALONE, is_set, master, number_or, place, said

_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE")
_BY_HAND = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that starts ranks.

    Attributes:
        summary: one line of what it is.
        looked_for: the variables that tell of it; one of them is enough if ``any_of``.
        find: the seat that the environment gives this process, or None.
        start: how people start ranks with it.
        overruled: says whether another engine's variables are nearer to this process.
        sets_rank: RANK and WORLD_SIZE are its own; those of others must agree with it.
    """

    name: str
    summary: str
    looked_for: tuple[str, ...]
    find: Callable[[Mapping[str, str]], Seat | None]
    start: str
    any_of: bool = False
    overruled: Callable[[Mapping[str, str], Seat], bool] | None = None
    sets_rank: bool = True


def torchrun(environ: Mapping[str, str]) -> Seat | None:
    """The seat of a worker of torchrun.

    Raises:
        UsageError: its variables contradict themselves, or some of them are gone.
    """
    if not is_set(environ, "TORCHELASTIC_RUN_ID"):
        return None
    rank, size = _ranked(environ)
    host, port = _master_or_refuse(environ)
    run, restart = (environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT"))
    return Seat(
        engine="torchrun",
        rank=rank,
        world_size=size,
        local_rank=number_or(environ, "LOCAL_RANK", 0),
        local_size=number_or(environ, "LOCAL_WORLD_SIZE", 0),
        node=number_or(environ, "GROUP_RANK", -1),
        master=host,
        port=port,
        hosted=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        job=f"{run}.{restart or 0}",
        why=said(_TORCHRUN),
    )


def environment(environ: Mapping[str, str]) -> Seat | None:
    """The seat that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT give, whoever set them.

    Raises:
        UsageError: some of them are missing, or contradict the others.
    """
    if not (is_set(environ, "RANK") or is_set(environ, "WORLD_SIZE")):
        return None
    rank, size = place(environ, "RANK", "WORLD_SIZE")
    host, port = _master_or_refuse(environ)
    return Seat(
        engine="environment",
        rank=rank,
        world_size=size,
        local_rank=number_or(environ, "LOCAL_RANK", 0),
        local_size=number_or(environ, "LOCAL_WORLD_SIZE", 0),
        node=number_or(environ, _node_name(environ), -1),
        master=host,
        port=port,
        why=said(_BY_HAND),
    )


TABLE = (
    Engine(
        "torchrun",
        "a worker of torchrun, on one host or many",
        _TORCHRUN,
        torchrun,
        "torchrun --nproc-per-node 4 -m distdemo …",
    ),
    Engine(
        "slurm",
        "a task of a Slurm step",
        slurm.VARIABLES,
        slurm.find,
        "srun -n 4 distdemo …",
        overruled=mpiexec.contradicts,
        sets_rank=False,
    ),
    Engine(
        "mpi",
        "a rank of an mpiexec: Open MPI, MPICH, Intel MPI, PMIx",
        mpiexec.VARIABLES,
        mpiexec.find,
        "mpiexec -n 4 distdemo …",
        any_of=True,
        sets_rank=False,
    ),
    Engine(
        "environment",
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, set by hand or an operator",
        _BY_HAND,
        environment,
        "RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 distdemo …",
    ),
)
"""In the order in which they are asked: who sets the variables nearest to the process comes first.
torchrun may have been started by srun, mpiexec or an operator; none of these is started by it."""

ENGINES: dict[str, str] = {engine.name: engine.summary for engine in TABLE}
"""What ``--launcher`` may name beside ``auto`` and ``local``, each with one line of what it is."""


def detect(environ: Mapping[str, str]) -> Seat | None:
    """The seat of this process, or None: no engine started it.

    Raises:
        UsageError: variables are only half there or contradict each other, so that which rank this
            is could only be guessed.
    """
    for engine in TABLE:
        seat = engine.find(environ)
        if seat is None or (engine.overruled and engine.overruled(environ, seat)):
            continue
        if not engine.sets_rank:
            _hold_against_rank(environ, seat)
        return seat
    return None


def named(name: str, environ: Mapping[str, str]) -> Seat:
    """The seat that this engine gives, whatever the others say.

    Raises:
        UsageError: it did not start this process, or its variables contradict themselves.
        ValueError: there is no such engine.
    """
    engine = next((each for each in TABLE if each.name == name), None)
    if engine is None:
        raise ValueError(f"there is no engine {name!r}: {', '.join(ENGINES)}")
    seat = engine.find(environ)
    if seat is None:
        listed = f"{' or '.join(engine.looked_for)}" if engine.any_of else _both(engine.looked_for)
        raise UsageError(
            f"--launcher {name}, but this process is no rank of {name}.",
            f"It looked for {listed} in the environment.",
            f"Start it so: {engine.start} Without an engine leave --launcher out.",
        )
    return seat


# -------------------------------------------------------------------------------------- the parts


def _hold_against_rank(environ: Mapping[str, str], seat: Seat) -> None:
    """Refuse a RANK and WORLD_SIZE that speak of another world than the engine."""
    if not (is_set(environ, "RANK") and is_set(environ, "WORLD_SIZE")):
        return
    rank, size = place(environ, "RANK", "WORLD_SIZE")
    if (rank, size) == (seat.rank, seat.world_size):
        return
    raise UsageError(
        f"RANK and WORLD_SIZE say rank {rank} of {size}; {seat.engine} says rank {seat.rank} of "
        f"{seat.world_size}.",
        f"{seat.why} too, and this process can be in one world only.",
        f"Unset RANK and WORLD_SIZE, or say which to follow: --launcher {seat.engine}, or "
        "--launcher environment.",
    )


def _ranked(environ: Mapping[str, str]) -> tuple[int, int]:
    if not (is_set(environ, "RANK") or is_set(environ, "WORLD_SIZE")):
        raise UsageError(
            "TORCHELASTIC_RUN_ID is set, but RANK and WORLD_SIZE are not.",
            "torchrun sets all three; the others say which rank of how many this process is.",
            f"Pass the environment of torchrun on whole. {ALONE}",
        )
    return place(environ, "RANK", "WORLD_SIZE")


def _master_or_refuse(environ: Mapping[str, str]) -> tuple[str, int]:
    """Where the ranks meet.

    Raises:
        UsageError: it is not there, or not whole.
    """
    host, port = master(environ)
    missing = [n for n, v in (("MASTER_ADDR", host), ("MASTER_PORT", port)) if not v]
    if missing:
        raise UsageError(
            f"RANK and WORLD_SIZE are set, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not.",
            "The ranks meet at a port of the host of rank 0, which these two name.",
            f"Set them alike for all ranks: MASTER_ADDR=10.0.0.1 MASTER_PORT=29500. {ALONE}",
        )
    return host, port


def _node_name(environ: Mapping[str, str]) -> str:
    """The variable that numbers the hosts; different operators name it differently."""
    return next((n for n in ("GROUP_RANK", "NODE_RANK") if is_set(environ, n)), "")


def _both(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
