"""Placement from the environment variables that engines set."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.joined.engines import ENGINES, detect, named
from distdemo.launcher.joined.placement import Placement


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
PALS = variables(
    "PALS_APID=6c4a PALS_LOCAL_RANKID=3 PALS_LOCAL_SIZE=4 PALS_RANKID=7 PMI_RANK=7 PMI_SIZE=8"
)
STEP = variables(
    "SLURM_JOB_ID=1234 SLURM_JOB_NODELIST=node[01-04] SLURM_LOCALID=1 SLURM_NODEID=2 "
    "SLURM_NTASKS=5 SLURM_PROCID=4 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=node[02-04] "
    "SLURM_STEP_NUM_TASKS=5 SLURM_STEP_TASKS_PER_NODE=1,2(x2)"
)
OLD_STEP = variables(
    "SLURM_JOBID=77 SLURM_STEPID=2 SLURM_PROCID=1 SLURM_NPROCS=2 SLURM_NODELIST=n[1-3]"
)
HAND = variables("RANK=1 WORLD_SIZE=3 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500")
SHELL = variables("SLURM_PTY_PORT=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0")

# Engine, rank, world size, local rank, local size, master, port, job.
PLACEMENTS = (
    (TORCHRUN, ("torchrun", 3, 4, 1, 2, "h0", 34167, "7810781e-dcb9.2")),
    (MPICH, ("mpi", 1, 2, 1, 2, "", 0, "")),
    (INTEL, ("mpi", 1, 2, 1, 2, "", 0, "ae750000-b16f")),
    (OPEN_MPI, ("mpi", 1, 2, 1, 2, "", 0, "prterun-vm-30114@1")),
    (PALS, ("mpi", 7, 8, 3, 4, "", 0, "6c4a")),
    (STEP, ("slurm", 4, 5, 1, 2, "node02", 20000 + (1234 + 1009 * 3) % 10000, "1234.3")),
    (OLD_STEP, ("slurm", 1, 2, 0, 0, "n1", 20000 + 77 + 1009 * 2, "77.2")),
    (HAND, ("environment", 1, 3, 0, 0, "10.0.0.1", 29500, "")),
)


def found(environ: dict[str, str]) -> Placement:
    placement = detect(environ)
    assert placement is not None
    return placement


def refusal(environ: dict[str, str]) -> tuple[str, str, str]:
    """Return detect's error for these variables; all three parts must be present."""
    with pytest.raises(UsageError) as caught:
        detect(environ)
    assert all((caught.value.what, caught.value.why, caught.value.hint))
    return caught.value.what, caught.value.why, caught.value.hint


def test_the_variables_of_an_engine_say_the_placement() -> None:
    for environ, expected in PLACEMENTS:
        here = found(environ)
        assert named(here.engine, environ) == here
        where = (here.master, here.port, here.job)
        told = (here.engine, here.rank, here.world_size, here.local_rank, here.local_size, *where)
        assert told == expected
        assert here.why.endswith(" are set")
        assert here.hosted == (here.engine == "torchrun")
    for left in ({}, {"HOME": "/root", "MASTER_ADDR": "h0", "MASTER_PORT": "1", "RANK": ""}):
        assert detect(left) is None


# ------------------------------------------------------------------------ one engine in another

HELPER = {**STEP, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
NESTED: list[tuple[dict[str, str], tuple[Any, ...]]] = [
    # torchrun within any other engine is torchrun.
    *(({**outer, **TORCHRUN}, ("torchrun", 3, 4)) for outer in (STEP, MPICH, OPEN_MPI)),
    # srun that speaks PMI or PMIx is Slurm, because that knows the master.
    ({**STEP, "PMI_RANK": "4", "PMI_SIZE": "5", "PMI_JOBID": "1234.3"}, ("slurm", 4, 5)),
    ({**STEP, "PMIX_RANK": "4", "PMIX_NAMESPACE": "slurm.pmix.1234.3"}, ("slurm", 4, 5)),
    # An mpiexec that started its helpers through srun is mpi.
    ({**HELPER, **MPICH, "PMI_RANK": "5", "PMI_SIZE": "8"}, ("mpi", 5, 8)),
    (
        {**HELPER, "PMIX_NAMESPACE": "prterun-n1-9@1", "PMIX_RANK": "5", "WORLD_SIZE": "8"},
        ("mpi", 5, 8),
    ),
    # An mpiexec in a shell within Slurm starts ranks.
    *(({**STEP, **SHELL, **spoken}, ("mpi", 1, 2)) for spoken in (MPICH, INTEL, OPEN_MPI)),
    # RANK and WORLD_SIZE may repeat the engine's values, and MASTER_* may also be set.
    ({**MPICH, **HAND, "WORLD_SIZE": "2"}, ("mpi", 1, 2, "10.0.0.1", 29500)),
    ({**OPEN_MPI, **HAND, "WORLD_SIZE": "2"}, ("mpi", 1, 2, "10.0.0.1", 29500)),
    ({**STEP, **HAND, "RANK": "4", "WORLD_SIZE": "5"}, ("slurm", 4, 5, "10.0.0.1", 29500)),
    ({**OPEN_MPI, "WORLD_SIZE": "2"}, ("mpi", 1, 2, "", 0)),
    ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-vm-1@1", "WORLD_SIZE": "4"}, ("mpi", 1, 4)),
    # Half an address is ignored where the ranks can find it on their own.
    ({**MPICH, "MASTER_ADDR": "h0"}, ("mpi", 1, 2, "", 0)),
]


def test_of_several_engines_the_nearest_one_counts() -> None:
    for environ, expected in NESTED:
        here = found(environ)
        told = (here.engine, here.rank, here.world_size, here.master, here.port)
        assert told[: len(expected)] == expected, environ


def test_a_shell_within_slurm_is_no_rank() -> None:
    for shell in (
        {"SLURM_STEP_ID": "4294967290", "SLURM_PTY_PORT": "34889"},  # salloc's interactive step
        {"SLURM_STEP_ID": "4294967291"},  # a batch script
        {"SLURM_STEP_ID": "0", "SLURM_PTY_PORT": "34889"},  # srun --pty bash
        {"SLURM_STEP_ID": ""},  # a batch script, as older releases set it
    ):
        environ = {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", **shell}
        spoken = {"PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_RANK": "0"}
        assert detect(environ) is detect({**environ, **spoken}) is None, shell
        with pytest.raises(UsageError, match="--launcher slurm"):
            named("slurm", environ)


CONTRADICTIONS = [
    ({**STEP, "PMI_RANK": "3", "PMI_SIZE": "5"}, "SLURM_PROCID is 4, but PMI_RANK is 3."),
    ({**MPICH, **HAND, "RANK": "0"}, "RANK and WORLD_SIZE mean rank 0 of 3; mpi has rank 1 of 2."),
    ({**STEP, **HAND}, "RANK and WORLD_SIZE mean rank 1 of 3; slurm has rank 4 of 5."),
    ({"PMIX_RANK": "1"}, "WORLD_SIZE is not set, although"),
    ({**HAND, "WORLD_SIZE": "0"}, "WORLD_SIZE is '0'."),
    ({**HAND, "RANK": "3"}, "RANK is '3'."),
    ({**STEP, "SLURM_PROCID": "5"}, "SLURM_PROCID is '5'."),
    ({**HAND, "MASTER_ADDR": ""}, "MASTER_ADDR is not set, although RANK and WORLD_SIZE are."),
    ({**TORCHRUN, "MASTER_PORT": ""}, "MASTER_PORT is not set, although RANK and WORLD_SIZE are."),
    ({**MPICH, "MASTER_PORT": "65536"}, "MASTER_PORT is '65536'."),
    ({**STEP, "MASTER_PORT": "http"}, "MASTER_PORT is 'http'."),
    ({"TORCHELASTIC_RUN_ID": "none"}, "RANK is not set, although"),
    ({**STEP, "SLURM_STEP_NODELIST": "n[1-"}, "This is a task of a Slurm step, but SLURM_STEP_"),
    ({**OLD_STEP, "SLURM_NODELIST": ""}, "This is a task of a Slurm step, but "),
]
PAIRS = [
    ("RANK", "WORLD_SIZE", HAND),
    ("PMI_RANK", "PMI_SIZE", MPICH),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", OPEN_MPI),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", {**STEP, "SLURM_NTASKS": ""}),
]


def test_contradictions_halves_of_pairs_and_what_is_no_number_are_errors() -> None:
    for environ, what in CONTRADICTIONS:
        assert refusal(environ)[0].startswith(what)
    for name, other, environ in PAIRS:
        what, why, _ = refusal({**environ, name: ""})
        assert what == f"{name} is not set, although this looks like one rank of several."
        assert other in why
        for value in ("two", "-1", "1.0", "9" * 40, "٣"):
            what, why, _ = refusal({**environ, name: value})
            assert what.startswith(f"{name} is ")
            assert "whole number" in why


def test_a_named_engine_counts_whatever_the_others_say_or_says_what_it_looked_for() -> None:
    assert named("environment", {**MPICH, **HAND}).rank == 1
    assert named("mpi", {**STEP, "PMI_RANK": "3", "PMI_SIZE": "5"}).rank == 3
    for name, engine in ENGINES.items():
        with pytest.raises(UsageError) as caught:
            named(name, {"HOME": "/root"})
        assert engine.looks_for in caught.value.why
        assert engine.start in caught.value.hint


# ------------------------------------------------------------------------------------------ Slurm


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
        assert found({**STEP, "SLURM_STEP_NODELIST": text}).master == host
    for text in ("[]", "$", "[", "a[", "a]b", "-,"):
        with suppress(UsageError):
            assert found({**STEP, "SLURM_STEP_NODELIST": text}).master


def test_steps_and_jobs_side_by_side_have_ports_of_their_own() -> None:
    ports = {
        found({**STEP, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}).port
        for job in range(5_000_000, 5_000_200)
        for step in range(4)
    }
    assert len(ports) == 200 * 4
    assert all(20000 <= port < 30000 for port in ports)


def test_tasks_of_a_host() -> None:
    for text, node, expected in (
        ("2(x3),1", 0, 2),
        ("2(x3),1", 3, 1),
        ("2(x3),1", 4, 0),
        ("", 0, 0),
        ("8(x4000000000)", 1, 8),
    ):
        environ = {**STEP, "SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": str(node)}
        assert found(environ).local_size == expected, (text, node)


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


def test_under_an_engine_each_rank_is_a_node_of_its_own() -> None:
    place = Placement("torchrun", 2, 4, 0, 2)
    assert (place.node, place.nodes, place.ranks_here) == (2, 4, 2)
    assert [place.ranks_of(node) for node in range(4)] == [range(n, n + 1) for n in range(4)]
