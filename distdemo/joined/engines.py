"""Detect the engine (torchrun, srun, mpiexec) that started this process as one rank of a world.

An engine sets environment variables; ``ENGINES`` lists them. Detection has no side effects: it
imports, resolves and connects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from distdemo.errors import UsageError

Environ = Mapping[str, str]

_ALONE = "Or use --launcher local to start a world on this machine only."
_MOST = 2**31 - 1  # ranks and ports are C ints to every engine
MAX_DEPTH = 4  # of brackets in a list of hosts


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of this process in a world that an engine, or several terminals, started.

    A *node* is one process that starts ranks: several per terminal, one per process of an engine.
    Node 0 has rank 0; it judges the world and shows the result.

    Attributes:
        engine: ``torchrun``, ``slurm``, ``mpi``, ``environment`` (RANK, WORLD_SIZE and MASTER_*
            set by hand or by an operator such as Kubeflow's) or ``terminals`` (from the
            command line, never detected).
        rank: First rank of this process.
        world_size: Number of ranks on all nodes.
        local_rank: Number of this process's first rank on its host.
        local_size: Number of ranks on this host; 0 if unknown.
        master: Host name or address of the store; empty if unknown (mpiexec).
        port: Port of the store; 0 if unknown.
        hosted: True if the engine serves the store (torchrun's agent).
        job: Unique name of this run of the engine; empty if the engine has none.
        why: Sentence with the variables that were found.
        nnodes: Number of terminals; 0 under an engine.
        node_rank: Number of this terminal.
    """

    engine: str
    rank: int
    world_size: int
    local_rank: int = 0
    local_size: int = 0
    master: str = ""
    port: int = 0
    hosted: bool = False
    job: str = ""
    why: str = ""
    nnodes: int = 0
    node_rank: int = 0

    @property
    def one_world_only(self) -> bool:
        """True if no second world can follow: MPI can be initialized once per process."""
        return self.engine == "mpi"

    @property
    def one_host(self) -> bool:
        """True if all ranks are known to be on this host."""
        return self.local_size == self.world_size

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.nnodes or self.world_size

    @property
    def node(self) -> int:
        """Number of this node."""
        return self.node_rank if self.nnodes else self.rank

    @property
    def ranks_here(self) -> int:
        """Number of ranks on this host, or at least those of this node."""
        return len(self.ranks_of(self.node)) if self.nnodes else max(1, self.local_size)

    def sized(self, world_size: int) -> Placement:
        """Return a terminal's placement in a world of this size."""
        known = replace(self, world_size=world_size)
        return replace(known, rank=known.ranks_of(self.node).start)

    def ranks_of(self, node: int) -> range:
        """Return the ranks of a node; the first nodes have one more if it doesn't divide evenly."""
        share, more = divmod(self.world_size, self.nodes)
        start = node * share + min(node, more)
        return range(start, start + share + (node < more))


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that starts ranks, and its variables: of several, the first that is set counts.

    Attributes:
        rank: Variables with the rank.
        size: Variables with the number of ranks.
        local_rank: Variables with the number of the rank on its host.
        local_size: Variables with the number of ranks on that host.
        job: Variables that name the run, together.
        start: Example of a command line.
    """

    rank: Sequence[str]
    size: Sequence[str]
    local_rank: Sequence[str]
    local_size: Sequence[str]
    job: Sequence[str]
    start: str

    @property
    def looks_for(self) -> str:
        """Variables that it sets, for error messages."""
        pairs = zip(self.rank, self.size, strict=True)
        return ", or ".join(f"{rank} and {size}" for rank, size in pairs)


_TORCHRUN = (["RANK"], ["WORLD_SIZE"], ["LOCAL_RANK"], ["LOCAL_WORLD_SIZE"])
# Open MPI; MPICH, Intel MPI and Cray's PALS; PRRTE, which sets only the first
_MPI = (
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"],
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID"],
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"],
)
_MPI_JOB = ["I_MPI_HYDRA_UUID", "PALS_APID", "PMI_JOBID", "PMIX_NAMESPACE"]
_SLURM = (["SLURM_PROCID"], ["SLURM_STEP_NUM_TASKS"], ["SLURM_LOCALID"], ())
_TORCHRUN_JOB = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"]
_BY_HAND = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 distdemo ..."

ENGINES = {
    "torchrun": Engine(*_TORCHRUN, _TORCHRUN_JOB, "torchrun --nproc-per-node 4 -m distdemo ..."),
    "slurm": Engine(*_SLURM, ["SLURM_JOB_ID", "SLURM_STEP_ID"], "srun -n 4 distdemo ..."),
    "mpi": Engine(*_MPI, _MPI_JOB, "mpiexec -n 4 distdemo ..."),
    "environment": Engine(*_TORCHRUN, [], _BY_HAND),
}
"""Values of ``--launcher`` in addition to ``auto`` and ``local``."""

_SIGNS = (
    ("torchrun", ("TORCHELASTIC_RUN_ID",)),
    ("mpi", ENGINES["mpi"].local_rank),
    ("slurm", ("SLURM_PROCID",)),
    ("mpi", (*ENGINES["mpi"].rank, *ENGINES["mpi"].size[:-1])),
    ("environment", ("RANK", "WORLD_SIZE")),
)
"""Variables of which any shows the engine, in the order of detection: the innermost engine comes
first. srun, mpiexec or an operator may start torchrun. In a Slurm job, mpiexec starts a helper per
host through srun, whose variables the ranks inherit; only mpiexec sets the number of a rank on its
host. srun itself may set PMI's and PMIx's variables."""


def detect(environ: Environ) -> Placement | None:
    """Return the placement of this process, or None if no engine started it.

    A step of Slurm with one task isn't a world: batch scripts and interactive shells are such.

    Raises:
        UsageError: Variables are missing or invalid.
    """
    for name, variables in _SIGNS:
        alone = environ.get("SLURM_STEP_NUM_TASKS", "1").strip() in ("", "1")
        if _first_set(environ, variables) and not (name == "slurm" and alone):
            return named(name, environ)
    return None


def named(name: str, environ: Environ) -> Placement:
    """Return the placement that this engine gives, whatever other engines have set.

    Raises:
        UsageError: It didn't start this process, or variables are missing or invalid.
        KeyError: There is no such engine.
    """
    engine = ENGINES[name]
    rank_name = _first_set(environ, engine.rank)
    size_name = _first_set(environ, engine.size)
    if not (rank_name and size_name):
        only = f" Only {rank_name or size_name} is set." if rank_name or size_name else ""
        raise UsageError(
            f"This process is not a rank of {name}.",
            f"{name} sets {engine.looks_for}.{only}",
            f"Start it like this: {engine.start} {_ALONE}",
        )
    size = _number(environ, size_name, 1)
    host = environ.get("MASTER_ADDR", "").strip()
    port = 0
    if environ.get("MASTER_PORT", "").strip():
        port = _number(environ, "MASTER_PORT", 1, 65535)
    local_size = _number_or_0(environ, engine.local_size)
    if name == "slurm":
        host = host or _first_slurm_host(environ)
        port = port or _slurm_port(environ)
        local_size = _slurm_tasks_here(environ)
    if not (host and port) and name != "mpi":  # whose ranks can agree on an address
        raise UsageError(
            f"{'MASTER_PORT' if host else 'MASTER_ADDR'} is not set, although {rank_name} is.",
            "The ranks find each other at that address and port of rank 0's host.",
            f"Set both on all ranks: MASTER_ADDR=10.0.0.1 MASTER_PORT=29500. {_ALONE}",
        )
    return Placement(
        engine=name,
        rank=_number(environ, rank_name, most=size - 1),
        world_size=size,
        local_rank=_number_or_0(environ, engine.local_rank),
        local_size=local_size,
        master=host if port else "",
        port=port if host else 0,
        hosted=name == "torchrun" and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        job=".".join(environ[job].strip() for job in engine.job if job in environ),
        why=f"{rank_name} and {size_name} are set",
    )


# ------------------------------------------------------------------------------ reading variables


def _first_set(environ: Environ, names: Sequence[str]) -> str:
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


def _number_or_0(environ: Environ, names: Sequence[str]) -> int:
    name = _first_set(environ, names)
    return _number(environ, name) if name else 0


# ------------------------------------------------------------------------------------------ Slurm
# Source: srun's manual page, OUTPUT ENVIRONMENT VARIABLES.


def _slurm_port(environ: Environ) -> int:
    """Return the port of a step: 20000 + (job + 1009 × step) mod 10000.

    That is below Linux's ephemeral ports and, because 1009 is a prime, different for steps that run
    at the same time unless their numbers are far apart.
    """
    job = _number(environ, "SLURM_JOB_ID")
    return 20000 + (job + 1009 * _number(environ, "SLURM_STEP_ID")) % 10000


def _slurm_tasks_here(environ: Environ) -> int:
    """Return the number of tasks on this host, from ``2(x3),1``; 0 if unknown."""
    host = _number_or_0(environ, ["SLURM_NODEID"])
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
    text = environ.get("SLURM_STEP_NODELIST", "").strip()
    for _ in range(MAX_DEPTH):  # innermost brackets first
        text = re.sub(r"\[([^][,-]+)(?:[,-][^][]*)?\]", r"\1", text)
    host = re.split(r"[,\s]", text)[0]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise UsageError(
            f"SLURM_STEP_NODELIST is {environ.get('SLURM_STEP_NODELIST', '')[:60]!r}.",
            "The ranks find each other at the first host of that list.",
            f"Set MASTER_ADDR to the host of rank 0. {_ALONE}",
        )
    return host
