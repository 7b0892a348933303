"""Placement from the environment variables that engines set."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from golden import matches

from distdemo.errors import UsageError
from distdemo.joined.engines import ENGINES, Placement, detect, named


def variables(text: str) -> dict[str, str]:
    """Parse names and values in a shell's notation."""
    return dict(pair.split("=", 1) for pair in text.split())


# As torch 2.13's torchrun, MPICH 5.0, Open MPI 5.0 and Intel MPI 2021 set them for the second of
# two ranks on one machine.
TORCHRUN = variables(
    "GROUP_RANK=1 GROUP_WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h0 "
    "MASTER_PORT=34167 RANK=3 ROLE_NAME=default ROLE_RANK=3 ROLE_WORLD_SIZE=4 WORLD_SIZE=4 "
    "TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_RUN_ID=7810781e-dcb9 "
    "TORCHELASTIC_USE_AGENT_STORE=True"
)
MPICH = variables(
    "HYDI_CONTROL_FD=7 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=11 PMI_HOSTNAME=vm PMI_RANK=1 "
    "PMI_SIZE=2"
)
INTEL = variables(
    "HYDRA_BSTRAP_NODE_ID=0 I_MPI_HYDRA_UUID=ae750000-b16f MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 "
    "PMI_FD=11 PMI_RANK=1 PMI_SIZE=2"
)
OPEN_MPI = variables(
    "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 "
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=prterun-vm-30114@1 PMIX_RANK=1"
)
STEP = variables(
    "SLURM_JOB_ID=1234 SLURM_JOB_NODELIST=node[01-04] SLURM_LOCALID=1 SLURM_NODEID=2 "
    "SLURM_NTASKS=5 SLURM_PROCID=4 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=node[02-04] "
    "SLURM_STEP_NUM_TASKS=5 SLURM_STEP_TASKS_PER_NODE=1,2(x2)"
)
HAND = variables("RANK=1 WORLD_SIZE=3 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500")
SHELL = variables("SLURM_PTY_PORT=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0")

SPOKEN = {"PMI_RANK": "4", "PMI_SIZE": "5", "PMI_JOBID": "1234.3"}
PMIX = {"PMIX_RANK": "4", "PMIX_NAMESPACE": "slurm.pmix.1234.3"}
HELPER = {**STEP, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
IN_SHELL = {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
ENVIRONMENTS = {
    "torchrun": TORCHRUN,
    "mpich": MPICH,
    "intel": INTEL,
    "open mpi": OPEN_MPI,
    "slurm": STEP,
    "by hand": HAND,
    "nothing": {},
    "an address alone": {"HOME": "/root", "MASTER_ADDR": "h0", "MASTER_PORT": "1", "RANK": ""},
    "torchrun within slurm": {**STEP, **TORCHRUN},
    # srun that speaks PMI or PMIx is Slurm, because that knows the master.
    "srun with PMI": {**STEP, **SPOKEN},
    "srun with PMIx": {**STEP, **PMIX},
    # An mpiexec that started its helpers through srun is mpi.
    "mpich through srun": {**HELPER, **MPICH, "PMI_RANK": "5", "PMI_SIZE": "8"},
    # An mpiexec in a shell within Slurm starts ranks.
    "mpich in a shell": {**STEP, **SHELL, **MPICH},
    # The engine counts, not RANK and WORLD_SIZE that were left in a shell.
    "prte and a size": variables("PMIX_RANK=1 PMIX_NAMESPACE=prterun-vm-1@1 WORLD_SIZE=4"),
    # A shell within Slurm is no rank.
    "salloc": {**IN_SHELL, "SLURM_STEP_ID": "4294967290", "SLURM_PTY_PORT": "34889"},
    "sbatch": {**IN_SHELL, "SLURM_STEP_ID": "4294967291"},
    "srun --pty": {**IN_SHELL, "SLURM_STEP_ID": "0", "SLURM_PTY_PORT": "34889"},
    "mpich and by hand": {**MPICH, **HAND, "RANK": "0"},
    "slurm and by hand": {**STEP, **HAND},
    # Errors.
    "PMIx alone": {"PMIX_RANK": "1"},
    "no rank": {**HAND, "WORLD_SIZE": "0"},
    "a rank too large": {**HAND, "RANK": "3"},
    "no master": {**HAND, "MASTER_ADDR": ""},
    "no port": {**TORCHRUN, "MASTER_PORT": ""},
    "a port too large": {**MPICH, "MASTER_PORT": "65536"},
    "a port that is a name": {**STEP, "MASTER_PORT": "http"},
    "torchrun without a rank": {"TORCHELASTIC_RUN_ID": "none"},
    "half a host list": {**STEP, "SLURM_STEP_NODELIST": "n[1-"},
}


def described(environ: dict[str, str]) -> str:
    """Return the placement from these variables, or the error."""
    try:
        here = detect(environ)
    except UsageError as error:
        return str(error)
    if here is None:
        return "no engine"
    assert named(here.engine, environ) == here
    local = f"local rank {here.local_rank} of {here.local_size}"
    where = f"{here.master}:{here.port}, job '{here.job}'{', hosted' if here.hosted else ''}"
    return f"{here.engine}: rank {here.rank} of {here.world_size}, {local}, {where}\n{here.why}"


def test_the_variables_of_engines_say_the_placement() -> None:
    texts = [f"## {name}\n{described(environ)}\n" for name, environ in ENVIRONMENTS.items()]
    matches(Path(__file__).parent / "golden" / "engines.txt", "\n".join(texts))


def refusal(engine: str, environ: dict[str, str]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        named(engine, environ)
    return caught.value


def test_halves_of_pairs_and_what_is_no_number_are_errors() -> None:
    for engine, name, environ in (
        ("environment", "RANK", HAND),
        ("mpi", "PMI_RANK", MPICH),
        ("mpi", "OMPI_COMM_WORLD_SIZE", OPEN_MPI),
        ("slurm", "SLURM_STEP_NUM_TASKS", STEP),
    ):
        assert f"not a rank of {engine}" in refusal(engine, {**environ, name: ""}).what
        for value in ("two", "-1", "1.0", "9" * 40, "٣"):
            error = refusal(engine, {**environ, name: value})
            assert error.what.startswith(f"{name} is ")
            assert "whole number" in error.why


def test_a_named_engine_counts_whatever_the_others_say_or_says_what_it_looked_for() -> None:
    assert named("environment", {**MPICH, **HAND}).rank == 1
    assert named("mpi", {**STEP, "PMI_RANK": "3", "PMI_SIZE": "5"}).rank == 3
    for name, engine in ENGINES.items():
        error = refusal(name, {"HOME": "/root"})
        assert engine.looks_for in error.why
        assert engine.start in error.hint


# ------------------------------------------------------------------------------------------ Slurm


def found(**variables: str) -> Placement:
    placement = detect({**STEP, **variables})
    assert placement is not None
    return placement


def test_the_first_host_of_a_list_is_the_master() -> None:
    for text, host in {
        "node1": "node1",
        "node[01-04,7],gpu3": "node01",
        "gpu3,node[9-11]": "gpu3",
        "n[1-2]-ib": "n1-ib",
        "rack[0-1]n[1-2]": "rack0n1",
        "n[2[3-4],x]": "n23",
        "a b,c": "a",
        "node.example.org": "node.example.org",
        "n[0-999999999]m[0-999999999]": "n0m0",
    }.items():
        assert found(SLURM_STEP_NODELIST=text).master == host
    for text in ("[]", "$", "[", "a[", "a]b", "-,"):
        with suppress(UsageError):
            assert found(SLURM_STEP_NODELIST=text).master


# -------------------------------------------------------------------------------------- placement


def test_every_rank_is_on_one_node_in_order_and_the_first_nodes_have_one_more() -> None:
    for size in range(1, 13):
        for nnodes in range(1, size + 1):
            place = Placement("terminals", 0, 0, nnodes=nnodes, node_rank=nnodes - 1).sized(size)
            shares = [place.ranks_of(node) for node in range(place.nodes)]
            assert [rank for share in shares for rank in share] == list(range(size))
            lengths = [len(share) for share in shares]
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1
            assert (place.rank, place.ranks_here) == (shares[-1].start, len(shares[-1]))
