from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.joined import engines
from distdemo.launcher.joined.engines import ENGINES, detect, named
from distdemo.launcher.joined.seat import Seat

# As torch 2.13's torchrun, MPICH 5.0, Open MPI 5.0 and Intel MPI 2021 set them for the second of
# two ranks on one machine.
TORCHRUN = {
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "h0",
    "MASTER_PORT": "34167",
    "RANK": "3",
    "ROLE_NAME": "default",
    "ROLE_RANK": "3",
    "ROLE_WORLD_SIZE": "4",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_RUN_ID": "7810781e-dcb9",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "WORLD_SIZE": "4",
}
MPICH = {
    "HYDI_CONTROL_FD": "7",
    "MPI_LOCALNRANKS": "2",
    "MPI_LOCALRANKID": "1",
    "PMI_FD": "11",
    "PMI_HOSTNAME": "vm",
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
}
INTEL = {
    "HYDRA_BSTRAP_NODE_ID": "0",
    "I_MPI_HYDRA_UUID": "ae750000-b16f",
    "MPI_LOCALNRANKS": "2",
    "MPI_LOCALRANKID": "1",
    "PMI_FD": "11",
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-vm-30114@1",
    "PMIX_RANK": "1",
    "PMIX_SERVER_URI2": "prterun-vm-30114@0.0;tcp4://127.0.0.1:34639",
}
PALS = {
    "PALS_APID": "6c4a",
    "PALS_LOCAL_RANKID": "3",
    "PALS_LOCAL_SIZE": "4",
    "PALS_NODEID": "1",
    "PALS_RANKID": "7",
    "PMI_RANK": "7",
    "PMI_SIZE": "8",
}
STEP = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NODELIST": "node[01-04]",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_NTASKS": "5",
    "SLURM_PROCID": "4",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "node[02-04]",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)",
}
HAND = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def seat(**changes: Any) -> Seat:
    plain: dict[str, Any] = {"local_rank": 0, "local_size": 0, "node": -1}
    return Seat(**{**plain, **changes})


SEATS = {
    "torchrun": (
        TORCHRUN,
        seat(
            engine="torchrun",
            rank=3,
            world_size=4,
            local_rank=1,
            local_size=2,
            node=1,
            master="h0",
            port=34167,
            hosted=True,
            job="7810781e-dcb9.2",
            why="TORCHELASTIC_RUN_ID, RANK and WORLD_SIZE are set",
        ),
    ),
    "MPICH": (
        MPICH,
        seat(
            engine="mpi",
            rank=1,
            world_size=2,
            local_rank=1,
            local_size=2,
            why="PMI_RANK and PMI_SIZE are set",
        ),
    ),
    "Intel MPI": (
        INTEL,
        seat(
            engine="mpi",
            rank=1,
            world_size=2,
            local_rank=1,
            local_size=2,
            job="ae750000-b16f",
            why="PMI_RANK and PMI_SIZE are set",
        ),
    ),
    "Open MPI": (
        OPEN_MPI,
        seat(
            engine="mpi",
            rank=1,
            world_size=2,
            local_rank=1,
            local_size=2,
            job="prterun-vm-30114@1",
            why="OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are set",
        ),
    ),
    "PALS": (
        PALS,
        seat(
            engine="mpi",
            rank=7,
            world_size=8,
            local_rank=3,
            local_size=4,
            node=1,
            job="6c4a",
            why="PMI_RANK and PMI_SIZE are set",
        ),
    ),
    "Slurm": (
        STEP,
        seat(
            engine="slurm",
            rank=4,
            world_size=5,
            local_rank=1,
            local_size=2,
            node=2,
            master="node02",
            port=20000 + (1234 + 1009 * 3) % 10000,
            job="1234.3",
            why="SLURM_PROCID, SLURM_STEP_ID and SLURM_STEP_NUM_TASKS are set",
        ),
    ),
    "by hand": (
        HAND,
        seat(
            engine="environment",
            rank=1,
            world_size=3,
            master="10.0.0.1",
            port=29500,
            why="RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set",
        ),
    ),
}


@pytest.mark.parametrize("name", SEATS)
def test_the_variables_of_an_engine_tell_the_seat(name: str) -> None:
    environ, expected = SEATS[name]
    assert detect(environ) == expected
    assert named(expected.engine, environ) == expected
    assert detect({"HOME": "/root", "MASTER_ADDR": "10.0.0.9", **environ}) is not None


def test_without_an_engine_there_is_no_seat() -> None:
    assert detect({}) is None
    assert detect({"HOME": "/root", "MASTER_ADDR": "h0", "MASTER_PORT": "1", "RANK": ""}) is None


def test_engines_are_listed_with_a_line_each() -> None:
    assert list(ENGINES) == ["torchrun", "slurm", "mpi", "environment"]
    assert all(text and "\n" not in text for text in ENGINES.values())


def test_looking_is_without_side_effects() -> None:
    """No import that a command line would pay for, no name resolved, nothing set."""
    script = (
        "import os, socket, sys\n"
        "before = dict(os.environ)\n"
        "def refuse(*a, **k): raise AssertionError('a name was looked up')\n"
        "socket.getaddrinfo = socket.gethostbyname = refuse\n"
        "from distdemo.launcher.joined import codec, engines, interfaces\n"
        f"for environ in {[environ for environ, _ in SEATS.values()]!r}:\n"
        "    assert engines.detect(environ)\n"
        "assert before == dict(os.environ)\n"
        "print([m for m in ('torch', 'mpi4py', 'rich', 'typer') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# ------------------------------------------------------------------------ one engine in another


def test_torchrun_within_any_other_engine_is_torchrun() -> None:
    for outer in (STEP, MPICH, OPEN_MPI):
        found = detect({**outer, **TORCHRUN})
        assert found is not None
        assert (found.engine, found.rank, found.world_size) == ("torchrun", 3, 4)


def test_srun_that_speaks_pmi_is_slurm_because_it_knows_the_master() -> None:
    for spoken in (
        {"PMI_RANK": "4", "PMI_SIZE": "5", "PMI_FD": "9", "PMI_JOBID": "1234.3"},
        {"PMIX_RANK": "4", "PMIX_NAMESPACE": "slurm.pmix.1234.3"},
    ):
        found = detect({**STEP, **spoken})
        assert found is not None
        assert (found.engine, found.rank, found.master) == ("slurm", 4, "node02")


def test_an_mpiexec_that_started_its_helpers_with_srun_is_mpi() -> None:
    helper = {**STEP, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    for spoken in (
        {**MPICH, "PMI_RANK": "5", "PMI_SIZE": "8"},
        {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"},
        {"PMIX_NAMESPACE": "prterun-n1-9@1", "PMIX_RANK": "5", "WORLD_SIZE": "8"},
    ):
        found = detect({**helper, **spoken})
        assert found is not None
        assert (found.engine, found.rank, found.world_size) == ("mpi", 5, 8)


def test_two_worlds_of_one_size_that_number_a_process_differently_are_a_contradiction() -> None:
    environ = {**STEP, "PMI_RANK": "3", "PMI_SIZE": "5"}
    what, why, hint = refusal(environ)
    assert what == "SLURM_PROCID is 4, but PMI_RANK is 3."
    assert "a world of 5 ranks" in why
    assert "--launcher slurm or --launcher mpi" in hint
    assert named("slurm", environ).rank == 4
    assert named("mpi", environ).rank == 3


@pytest.mark.parametrize("spoken", [{}, {"PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_RANK": "0"}])
@pytest.mark.parametrize(
    "shell",
    [
        {"SLURM_STEP_ID": "4294967290", "SLURM_PTY_PORT": "34889"},  # salloc's interactive step
        {"SLURM_STEP_ID": "4294967291"},  # a batch script
        {"SLURM_STEP_ID": "0", "SLURM_PTY_PORT": "34889"},  # srun --pty bash
        {"SLURM_STEP_ID": ""},  # a batch script, as older releases set it
    ],
)
def test_a_shell_within_slurm_is_no_rank(shell: dict[str, str], spoken: dict[str, str]) -> None:
    one = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}
    assert detect({**STEP, **one, **shell, **spoken}) is None
    with pytest.raises(UsageError, match="no rank of slurm"):
        named("slurm", {**STEP, **one, **shell})


def test_an_mpiexec_in_a_shell_within_slurm_starts_ranks() -> None:
    shell = {"SLURM_PTY_PORT": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    for spoken in (MPICH, INTEL, OPEN_MPI):
        found = detect({**STEP, **shell, **spoken})
        assert found is not None
        assert (found.engine, found.rank, found.world_size) == ("mpi", 1, 2)
    asked = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9"}  # srun --pty --mpi=pmi2 bash
    assert detect({**STEP, **shell, **asked}) is None


def test_a_rank_set_by_hand_may_repeat_what_the_engine_says_and_name_the_master() -> None:
    for environ in (MPICH, OPEN_MPI):
        found = detect({**environ, **HAND, "WORLD_SIZE": "2"})
        assert found is not None
        assert (found.engine, found.master, found.port) == ("mpi", "10.0.0.1", 29500)
    found = detect({**STEP, **HAND, "RANK": "4", "WORLD_SIZE": "5"})
    assert found is not None
    assert (found.engine, found.master, found.port) == ("slurm", "10.0.0.1", 29500)


@pytest.mark.parametrize("environ", [MPICH, OPEN_MPI, STEP])
def test_a_rank_set_by_hand_that_contradicts_the_engine_is_an_error(
    environ: dict[str, str],
) -> None:
    what, why, hint = refusal({**environ, **HAND, "RANK": "0", "WORLD_SIZE": "3"})
    engine = "slurm" if environ is STEP else "mpi"
    assert what.startswith(f"RANK and WORLD_SIZE say rank 0 of 3; {engine} says rank ")
    assert "one world only" in why
    assert f"--launcher {engine}" in hint
    assert named("environment", {**environ, **HAND}).rank == 1


def test_a_world_size_that_mpiexec_passed_on_alone_is_no_contradiction() -> None:
    found = detect({**OPEN_MPI, "WORLD_SIZE": "2", "MASTER_ADDR": "h0", "MASTER_PORT": "29500"})
    assert found is not None
    assert (found.engine, found.master, found.port) == ("mpi", "h0", 29500)


def test_pmix_alone_needs_to_be_told_the_size() -> None:
    environ = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-vm-1@1"}
    what, _, hint = refusal(environ)
    assert what.startswith("PMIX_RANK is set, but nothing says how many ranks")
    assert "WORLD_SIZE" in hint
    found = detect({**environ, "WORLD_SIZE": "4"})
    assert found is not None
    assert (found.engine, found.rank, found.world_size) == ("mpi", 1, 4)


# ---------------------------------------------------------------------------- half-set and wrong


def refusal(environ: dict[str, str]) -> tuple[str, str, str]:
    """What detect says of these variables: all three parts, none of them empty."""
    with pytest.raises(UsageError) as caught:
        detect(environ)
    assert all((caught.value.what, caught.value.why, caught.value.hint))
    return caught.value.what, caught.value.why, caught.value.hint


PAIRS = {
    ("RANK", "WORLD_SIZE"): (HAND, TORCHRUN),
    ("PMI_RANK", "PMI_SIZE"): (MPICH, INTEL),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"): (OPEN_MPI,),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"): (STEP,),
}
NAMES = [
    (name, environ) for names, environs in PAIRS.items() for name in names for environ in environs
]


@pytest.mark.parametrize(("name", "environ"), NAMES)
@pytest.mark.parametrize("value", ["two", "-1", "1.0", "9" * 40, "٣"])
def test_what_is_no_number_is_named(name: str, environ: dict[str, str], value: str) -> None:
    what, why, hint = refusal({**environ, name: value})
    assert what.startswith(f"{name} is ")
    assert "whole number" in why
    assert "--launcher local" in hint


@pytest.mark.parametrize(("name", "environ"), [*NAMES[:2], *NAMES[4:6], NAMES[8], NAMES[9]])
def test_half_of_a_pair_is_an_error_that_names_both(name: str, environ: dict[str, str]) -> None:
    left = {key: value for key, value in environ.items() if key != name}
    pair = next(pair for pair in PAIRS if name in pair)
    other = pair[1 - pair.index(name)]
    what, why, hint = refusal(left)
    assert what == f"{other} is set, but {name} is not."
    assert "one alone says nothing" in why
    assert f"Set {name} too" in hint


@pytest.mark.parametrize(("names", "environs"), PAIRS.items())
def test_a_rank_beyond_its_world_is_an_error(
    names: tuple[str, str], environs: tuple[dict[str, str], ...]
) -> None:
    for environ in environs:
        rank, size = names
        what, why, _ = refusal({**environ, rank: "7", size: "7"})
        assert what == f"{rank} is 7, but {size} is 7."
        assert "from 0 to 6" in why


def test_a_world_has_at_least_one_rank() -> None:
    what, why, _ = refusal({**HAND, "WORLD_SIZE": "0"})
    assert what == "WORLD_SIZE is '0'."
    assert why == "It is a whole number from 1 up."


@pytest.mark.parametrize("environ", [HAND, TORCHRUN])
@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_without_a_place_to_meet_there_is_no_world(missing: str, environ: dict[str, str]) -> None:
    what, _, hint = refusal({key: value for key, value in environ.items() if key != missing})
    assert what == f"RANK and WORLD_SIZE are set, but {missing} is not."
    assert "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500" in hint


@pytest.mark.parametrize("environ", [HAND, TORCHRUN, MPICH, STEP])
@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_a_port_that_is_none_is_named(port: str, environ: dict[str, str]) -> None:
    what, why, _ = refusal({**environ, "MASTER_PORT": port})
    assert what == f"MASTER_PORT is {port!r}."
    assert why == "It is a whole number from 1 to 65535."


def test_torchrun_without_its_rank_is_an_error() -> None:
    environ = {k: v for k, v in TORCHRUN.items() if k not in ("RANK", "WORLD_SIZE")}
    assert refusal(environ)[0] == "TORCHELASTIC_RUN_ID is set, but RANK and WORLD_SIZE are not."


# ------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize("name", ENGINES)
def test_a_named_engine_that_started_nothing_says_what_it_looked_for(name: str) -> None:
    engine = next(each for each in engines.TABLE if each.name == name)
    with pytest.raises(UsageError) as caught:
        named(name, {"HOME": "/root"})
    assert caught.value.what == f"--launcher {name}, but this process is no rank of {name}."
    assert all(variable in caught.value.why for variable in engine.looked_for)
    assert engine.start in caught.value.hint


def test_a_name_of_no_engine_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=re.escape("there is no engine 'smoke'")):
        named("smoke", TORCHRUN)
