"""Programs: what their headers say, and that they behave so on real ranks."""

from __future__ import annotations

import faulthandler
import re
import runpy
import shlex
from math import inf, log2
from typing import Any
from unittest.mock import patch

import pytest
from forked import in_a_child
from mpi.worlds import needs_mpi

from distdemo import backends
from distdemo.cli.app import typer_command
from distdemo.cli.commands import COMMANDS, find_command
from distdemo.launcher import workers
from distdemo.launcher.records import WorldSpec
from distdemo.learn import trial
from distdemo.learn.catalogue import EXERCISES, HERE, MISTAKES, STEPS, Example
from distdemo.learn.folder import exercises_of
from distdemo.learn.records import MistakeReport, PlayedStep, compare
from distdemo.learn.view import BACKENDS, value_text
from distdemo.schedules import find
from distdemo.schedules.schedule import Schedule, by_formula, count
from distdemo.view.console import Signs

MPI = [pytest.mark.mpi, needs_mpi]
OVER_MPI = ("dtype", "order", "small-receive")  # different outcome from gloo
RUNS: list[Any] = [(name, "gloo") for name in MISTAKES]
RUNS += [pytest.param(name, "mpi", marks=MPI) for name in OVER_MPI]


def run(program: Example, backend: str) -> Any:
    """Run a program with a shorter hang timeout and a faster poll than usual.

    If the machine is too slow for that, ``trial.STALL_TIMEOUT_S`` applies.
    """
    faulthandler.disable()  # pytest's: a backend that aborts would write its whole stack
    world = WorldSpec(program.world_size, backend, deadline=60, start_method="fork", capture=True)
    with patch.object(trial, "HANG_TIMEOUT_S", 0.7), patch.object(workers, "POLL_S", 0.03):
        if program.question:
            return trial.try_example(program, world)
        return trial.try_mistake(program, backends.prepared(world))


def assert_hangs_in_calls(program: Example, outcomes: Any) -> None:
    """Check that every rank that hangs does so on a line with a call."""
    lines = program.program.splitlines()
    for outcome in outcomes:
        if outcome.kind == "hang":
            match = re.fullmatch(rf"in \w+ at {program.module}\.py:(\d+)", outcome.what)
            assert match is not None, outcome
            assert "dist." in lines[int(match[1]) - 1], outcome


@pytest.mark.processes
@pytest.mark.parametrize(("name", "backend"), RUNS)
def test_a_mistake_behaves_as_documented(name: str, backend: str) -> None:
    result: MistakeReport = in_a_child(run, MISTAKES[name], backend)
    assert result.problems == (), result.outcomes
    assert_hangs_in_calls(MISTAKES[name], result.outcomes)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_the_documented_answer(name: str) -> None:
    step = STEPS[name]
    outcomes = run(step, "gloo")
    played = PlayedStep(step, outcomes)
    assert played.ok, outcomes
    assert played.answer == step.answer
    assert compare(value_text(played.answer, Signs()), played.answer)
    assert_hangs_in_calls(step, outcomes)


def test_headers_are_complete() -> None:
    for programs in (STEPS, MISTAKES):
        assert [program.number for program in programs.values()] == [*range(1, len(programs) + 1)]
    for program in (*STEPS.values(), *MISTAKES.values()):
        names = ("gloo",) if program.question else BACKENDS
        sizes = [len(program.expected), *(len(program.documented(name)) for name in names)]
        assert {*sizes} == {program.world_size}, program.name
        assert program.why
    for step in STEPS.values():
        assert step.slides or exercises_of(step), step.name  # `learn STEP --write` has files
    for exercise in EXERCISES.values():
        assert len(exercise.hints) >= 3, exercise.name  # from vague to precise
    assert len(EXERCISES) == len(MISTAKES) + 15  # no name twice


def test_the_numbers_of_the_parallel_steps_follow_their_formulas() -> None:
    parameters, ranks = 6, STEPS["fsdp"].world_size
    for value in STEPS["fsdp"].expected:
        assert value["DDP"] == 16 * parameters
        assert value["ZeRO-1"] == 8 * parameters + 8 * parameters / ranks
        assert value["FSDP"] == 16 * parameters / ranks
    stages = STEPS["pipeline"].world_size
    for value in STEPS["pipeline"].expected:
        for column, bubble in value.items():
            micro_batches = int(column.split()[0])
            assert bubble == (stages - 1) / (micro_batches + stages - 1)


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_the_size_for_which_ring_and_doubling_are_equal(ranks: int) -> None:
    """Compare the costs in the step and the exercise with played schedules and with formulas."""
    alpha, beta, size = 20_000, 1, 16 * ranks  # ns, ns per byte, bytes
    played = []
    for name in ("doubling", "ring"):
        plan = Schedule.of(find("all_reduce", name), ranks, size // 4)
        counts, *_ = count(plan, itemsize=4)
        assert by_formula(plan, size) == counts
        assert counts.serial_bytes == counts.sent_bytes  # what a rank sends takes the whole time
        played.append([counts.rounds, counts.sent_bytes])
    rounds = log2(ranks)
    assert played == [[rounds, rounds * size], [2 * (ranks - 1), 2 * (ranks - 1) / ranks * size]]
    (few, most), (many, less) = played
    equal = (many - few) * alpha * size / ((most - less) * beta) if most > less else inf
    solution = runpy.run_path(str(HERE / "exercises/solutions/latency.py"))
    assert solution["equal_size"](alpha, beta, ranks) == pytest.approx(equal)
    step = STEPS["latency"]
    if ranks == step.world_size:
        assert [value["equal at S"] for value in step.expected] == [equal] * ranks
        assert [[value["doubling"], value["ring"]] for value in step.expected] == [played] * ranks


def test_commands_to_try_exist() -> None:
    for step in STEPS.values():
        for line in step.commands:
            program, *words = shlex.split(line)
            command, flags, rest = find_command(words)
            assert (program, command in COMMANDS) == ("distdemo", True), line
            arguments = [*flags, *rest]
            typer_command(command).make_context(command, arguments)  # raises what it refuses


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("[1 2]", [1.0, 2.0], True),
        (" tensor([1., 2.]) ", [1, 2], True),
        ("[[0 1] [2 3]]", [[0, 1], [2, 3]], True),
        ("−3", -3.0, True),
        ("8 bytes", 8, True),
        ("It hangs.", "hangs", True),
        ("deadlock", "hangs", True),
        ("All ranks wait forever: a deadlock.", "hangs", True),
        ("raises an exception", "error", True),
        ("2 1", [1, 2], False),
        ("right", "hangs", False),
        # another form is neither right nor wrong
        ("1 2 0", [1, 2], None),
        ("hangs, or right", "hangs", None),
        ("it doesn't hang", "hangs", None),
        ("no error", "error", None),
        ("?", 3, None),
        ("3", "hangs", None),
    ],
)
def test_an_answer_is_compared_leniently(text: str, value: Any, expected: bool | None) -> None:
    assert compare(text, value) is expected
