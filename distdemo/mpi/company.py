"""Whether what started this process belongs to the MPI library that mpi4py loads.

Where it does not, the ranks don't find each other: each is rank 0 of 1, or the library ends the
process in MPI_Init. Both are said here in words that tell what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from mpi4py import MPI

from distdemo.errors import UsageError


@dataclass(frozen=True, slots=True)
class Launcher:
    """One kind of launcher.

    Attributes:
        size: the variable in which it writes how many processes it started.
        name: what a user calls it.
        of_mpi: it starts ranks of some MPI.
    """

    size: str
    name: str
    of_mpi: bool = True


_TORCHRUN = Launcher("WORLD_SIZE", "torchrun", of_mpi=False)
_LAUNCHERS = (
    Launcher("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"),
    Launcher("PMI_SIZE", "an mpiexec of MPICH or Intel MPI"),
    Launcher("SLURM_STEP_NUM_TASKS", "Slurm's srun"),
    Launcher("WORLD_SIZE", "torchrun, or what sets WORLD_SIZE,", of_mpi=False),
)
_MIXED = (
    "A mixed installation: start the program with the mpiexec of that library "
    "(the one beside this Python, if both came from wheels)."
)
_SPEAKS_PMIX = re.compile(r"--with-(?:pmi=|pmilib=)?pmix", re.IGNORECASE)


def library() -> str:
    """The name and version of the MPI library, ``MPICH 5.0.2``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def expect_understanding() -> None:
    """Refuse to begin MPI where MPICH would end the process over it.

    It does so where it finds PMIX_NAMESPACE, which launchers of Open MPI set, and was not built for
    PMIx (its ``check_MPIR_CVAR_PMI_VERSION``).

    Raises:
        UsageError: it would.
    """
    environment = os.environ
    if MPI.get_vendor()[0] != "MPICH" or "PMIX_NAMESPACE" not in environment:
        return
    if "MPIR_CVAR_PMI_VERSION" in environment or _SPEAKS_PMIX.search(MPI.Get_library_version()):
        return
    ompi = "OMPI_COMM_WORLD_SIZE" in environment
    launcher = "Open MPI's mpiexec" if ompi else "A launcher that speaks PMIx"
    raise UsageError(
        f"{launcher} started this process, but the library that mpi4py loads is {library()}.",
        "PMIX_NAMESPACE is set, and that library was not built for PMIx: it would end the process.",
        _MIXED,
    )


def expect_company() -> None:
    """Refuse to be one of one where a launcher says that it started several.

    Raises:
        UsageError: one does.
    """
    if MPI.COMM_WORLD.Get_size() > 1:
        return
    for launcher in (_TORCHRUN,) if "TORCHELASTIC_RUN_ID" in os.environ else _LAUNCHERS:
        said = os.environ.get(launcher.size, "1")
        if said.isdigit() and int(said) > 1:
            raise _alone(launcher, int(said))


def _alone(launcher: Launcher, many: int) -> UsageError:
    if launcher.of_mpi:
        why, hint = "which that launcher does not belong to.", _MIXED
    else:
        why = "which learns of other ranks from a launcher of MPI alone."
        hint = f"{_started_by_mpiexec(many)}; or take another backend, as gloo."
    return UsageError(
        f"{launcher.name} started {many} processes, but MPI says that each is rank 0 of 1.",
        f"{launcher.size} is {many}; the library that mpi4py loads is {library()}, {why}",
        hint,
    )


def _started_by_mpiexec(many: int) -> str:
    return (
        f"MPI's ranks are started by mpiexec or srun: mpiexec -n {many} python program.py "
        "(the mpiexec beside this Python, if it came as a wheel)"
    )


def agree(rank: int, world_size: int) -> None:
    """Refuse a rank and a world size that contradict MPI's; -1 stands for not given.

    Raises:
        UsageError: they do.
    """
    world = MPI.COMM_WORLD
    if rank in (-1, world.rank) and world_size in (-1, world.size):
        return
    alone = world.size == 1 < world_size
    raise UsageError(
        f"This process was to be rank {rank} of {world_size}, "
        f"but MPI says that it is rank {world.rank} of {world.size}.",
        f"MPI numbers the ranks itself; the library that mpi4py loads is {library()}.",
        f"{_started_by_mpiexec(world_size)}. If one did start them, it is another MPI's: "
        "a mixed installation."
        if alone
        else "Leave rank and world_size out: MPI knows them.",
    )
