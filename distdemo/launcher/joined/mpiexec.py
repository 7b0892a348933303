"""MPI's starters: a process finds its rank in the variables of Open MPI, hydra, PMIx and others.

None of them says where a store could be, so the master is known only where MASTER_ADDR and
MASTER_PORT are set too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdemo.errors import UsageError
from distdemo.launcher.joined import slurm
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.joined.variables import (
    ALONE,
    first_set,
    is_set,
    master,
    number_or,
    place,
    said,
)


@dataclass(frozen=True, slots=True)
class Family:
    """The names that one kind of MPI uses; the first that is set counts.

    Attributes:
        rank: the variable of the rank; where it is set, this family started the process.
        job: tells this start from another, on all its ranks alike.
    """

    name: str
    rank: str
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]
    node: str = ""
    job: tuple[str, ...] = ()


OPEN_MPI = Family(
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    ("OMPI_COMM_WORLD_SIZE",),
    ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    job=("PMIX_NAMESPACE",),
)
MVAPICH = Family(
    "MVAPICH",
    "MV2_COMM_WORLD_RANK",
    ("MV2_COMM_WORLD_SIZE",),
    ("MV2_COMM_WORLD_LOCAL_RANK",),
    ("MV2_COMM_WORLD_LOCAL_SIZE",),
)
HYDRA = Family(  # MPICH, Intel MPI, Cray's PALS with its PMI, srun --mpi=pmi2, MS-MPI
    "PMI",
    "PMI_RANK",
    ("PMI_SIZE",),
    ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    node="PALS_NODEID",
    job=("I_MPI_HYDRA_UUID", "PALS_APID", "PMI_JOBID"),
)
PMIX = Family(  # PRRTE with a program that is not Open MPI's; it does not tell the size
    "PMIx",
    "PMIX_RANK",
    ("WORLD_SIZE",),
    ("PMIX_LOCAL_RANK",),
    ("PMIX_LOCAL_SIZE",),
    job=("PMIX_NAMESPACE",),
)
FAMILIES = (OPEN_MPI, MVAPICH, HYDRA, PMIX)
VARIABLES = tuple(family.rank for family in FAMILIES)


def find(environ: Mapping[str, str]) -> Seat | None:
    """The seat of a rank that an mpiexec started; None if none did.

    Raises:
        UsageError: its variables are only half there, or contradict themselves.
    """
    family = _family(environ)
    if family is None:
        return None
    rank, size, told = _place(environ, family)
    host, port = master(environ)
    return Seat(
        engine="mpi",
        rank=rank,
        world_size=size,
        local_rank=number_or(environ, first_set(environ, family.local_rank), 0),
        local_size=number_or(environ, first_set(environ, family.local_size), 0),
        node=number_or(environ, family.node, -1),
        master=host,
        port=port,
        job=environ.get(first_set(environ, family.job), "").strip(),
        why=said(told),
    )


def contradicts(environ: Mapping[str, str], seat: Seat) -> bool:
    """Whether an mpiexec started this process as part of another world than the one of ``seat``.

    mpiexec within a Slurm job starts its helpers through srun, so the ranks inherit Slurm's
    variables of a step of helpers, one a host. srun itself sets PMI's and PMIx's variables as its
    own. All ranks of a world answer this alike.

    Raises:
        UsageError: both worlds have as many ranks, but number this process differently.
    """
    family = _family(environ)
    if family is None:
        return False
    if family is PMIX:
        return True
    rank, size, (rank_name, *_) = _place(environ, family)
    if size == seat.world_size and rank != seat.rank:
        raise UsageError(
            f"SLURM_PROCID is {seat.rank}, but {rank_name} is {rank}.",
            f"Both Slurm and {family.name} tell of a world of {size} ranks, but not of the same.",
            "Say which to follow: --launcher slurm or --launcher mpi.",
        )
    return size != seat.world_size


def _family(environ: Mapping[str, str]) -> Family | None:
    """Whose variables are there; one of a pair is enough to ask for the other."""
    for family in FAMILIES:
        if _of_slurm(environ, family):
            continue
        if is_set(environ, family.rank):
            return family
        if family is not PMIX and first_set(environ, family.size):
            return family
    return None


def _of_slurm(environ: Mapping[str, str], family: Family) -> bool:
    """Whether it was srun that set these variables, and they tell no more than Slurm's own.

    A shell of ``srun --pty`` has them too, and is no rank.
    """
    if family is PMIX:
        return environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    started_by_hydra = first_set(environ, family.local_rank)
    return family is HYDRA and slurm.is_shell(environ) and not started_by_hydra


def _place(environ: Mapping[str, str], family: Family) -> tuple[int, int, tuple[str, ...]]:
    """The rank, the size, and the variables that told.

    Raises:
        UsageError: one of them is missing, or there is no such rank.
    """
    size_name = first_set(environ, family.size) or family.size[0]
    if family is PMIX and not is_set(environ, size_name):
        raise UsageError(
            "PMIX_RANK is set, but nothing says how many ranks there are.",
            "PMIx tells the number only to programs that ask its server, as an MPI library does.",
            f"Set WORLD_SIZE for all ranks, or start them with Open MPI's mpiexec. {ALONE}",
        )
    rank, size = place(environ, family.rank, size_name)
    return rank, size, (family.rank, size_name)
