from __future__ import annotations

import sys

import pytest

from distdemo.cli.silence import fall_silent, murmur, speaks
from distdemo.errors import UsageError

WORLD = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
ASKED = ["all-reduce", "--format", "json"]


@pytest.mark.parametrize(
    ("variables", "alone"),
    [
        ({}, True),
        ({**WORLD, "RANK": "0"}, True),
        ({**WORLD, "RANK": "1"}, False),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"RANK": "1"}, True),  # half an engine: the command itself complains
    ],
)
def test_rank_0_alone_speaks(
    variables: dict[str, str], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", variables)
    assert speaks(ASKED) == alone


@pytest.mark.parametrize("words", [["--launcher", "local"], ["--launcher=local"]])
def test_a_world_of_its_own_speaks_whatever_the_engine_says(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {**WORLD, "RANK": "1"})
    assert speaks([*ASKED, *words])
    assert not speaks([*ASKED, "--launcher", "auto"])
    assert not speaks([*ASKED, "--launcher"])


def test_a_silent_process_still_complains(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back at the end
    fall_silent()
    with sys.stdout:
        print("a table")  # noqa: T201 - what must not be seen
        print("a complaint", file=sys.stderr)  # noqa: T201 - what must
        sys.stdout.flush()
    assert capfd.readouterr() == ("", "a complaint\n")


@pytest.mark.parametrize(
    "words", [["--nnodes", "1"], ["--node-rank=0"], ["--master", "10.0.0.1:29500"]]
)
def test_who_sits_in_front_of_the_terminal_is_spoken_to(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {**WORLD, "RANK": "1"})
    assert speaks([*ASKED, *words])


def test_the_engine_that_was_named_says_who_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**WORLD, "RANK": "1", "PMI_RANK": "0", "PMI_SIZE": "2"}
    monkeypatch.setattr("os.environ", variables)
    assert speaks([*ASKED, "--launcher", "mpi"])
    assert not speaks([*ASKED, "--launcher", "environment"])


def test_a_murmur_heeds_the_engine_that_was_named_whatever_others_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    half = {"RANK": "1", "PMI_RANK": "2", "PMI_SIZE": "4"}  # RANK without WORLD_SIZE is an error
    half |= {"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    monkeypatch.setattr("os.environ", half)
    monkeypatch.setattr("distdemo.cli.silence.HOLD_BACK", 0.0)
    murmur(UsageError("The file is missing.", "Nobody made it."), [*ASKED, "--launcher", "mpi"])
    said = capsys.readouterr().err
    assert said.startswith("distdemo: rank 2 on ")
    assert said.endswith(": The file is missing. Nobody made it.\n")
