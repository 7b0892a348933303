"""Gradients, samplers and steps without gradients are compared between ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdemo.calls.match.training import (
    CheckSet,
    GradientCheck,
    equal_data_finding,
    sampler_findings,
    untrained_findings,
)
from distdemo.calls.notes import Check, Gradients, SamplerNote, TrainingNote
from distdemo.calls.records import SourceLine

LINE = SourceLine("train.py", 23)


def as_it_is(line: SourceLine) -> SourceLine:
    """Return a line as the matcher shows one that needs no callers."""
    return line


def reduce(check: GradientCheck, step: int, *totals: int, names: tuple[str, ...] = ()) -> None:
    """Add the gradients of one step of each rank."""
    for rank, total in enumerate(totals):
        given = names if rank == 0 else names[::-1]
        check.add(rank, Gradients(step, given, total, LINE), len(totals))


@pytest.mark.parametrize(
    ("steps", "is_found"),
    [
        ([(5, 5), (6, 6), (7, 7)], True),
        ([(5, 5), (6, 6)], False),  # as in programs that only show how to make a step
        ([(5, 5), (6, 6), (7, 7), (8, 9)], False),
        ([(0, 0), (0, 0), (0, 0)], False),
    ],
)
def test_equal_gradients_come_from_equal_data(steps: list[tuple[int, int]], is_found: bool) -> None:
    check = GradientCheck()
    for number, totals in enumerate(steps, 1):
        reduce(check, number, *totals)
    assert (equal_data_finding([((0, 1), check)], as_it_is) is not None) is is_found


def test_equal_data_in_overlapping_groups_is_said_once() -> None:
    checks = []
    for members in ((0, 1), (2, 3), (1, 3), (4, 5)):
        check = GradientCheck()
        for step in (1, 2, 4):
            reduce(check, step, 5, 5)
        checks.append((members, check))
    finding = equal_data_finding(checks, as_it_is)
    assert finding is not None
    assert finding.what.startswith("Ranks 0, 1, 2, 3 and ranks 4, 5 reduced bit-identical")


def test_reductions_must_get_the_same_parameters() -> None:
    check = GradientCheck()
    reduce(check, 1, 3, 4, names=("a", "b"))
    finding = check.finding(as_it_is)
    assert finding is not None
    assert (
        finding.what == "Rank 1 reduced a different parameter from rank 0 in reduction 1 of step 1."
    )
    assert [row.did for row in finding.rows] == ["gradient of a", "gradient of b"]


def test_a_check_of_the_program_names_the_ranks_that_differ() -> None:
    checks = CheckSet()
    findings = [
        checks.add(rank, Check(1, ("mean", "w"), (7, 8 + (rank == 2)), LINE), 3, as_it_is)
        for rank in range(3)
    ]
    assert findings[:2] == [None, None]
    assert findings[2] is not None
    assert findings[2].what == "Rank 2: w differs from ranks 0, 1 in check 1."
    assert checks.compared == 1


SAMPLER = SamplerNote(0, LINE, seed=0, length=10, indices=3, replicas=2, repeated=2)


@pytest.mark.parametrize(
    ("other", "what", "level"),
    [
        ({"seed": 1}, "The seeds of DistributedSampler differ between ranks.", "warn"),
        ({"indices": 4}, "The indices of the dataset of DistributedSampler differ", "warn"),
        ({"length": 9}, "The lengths of the dataset of DistributedSampler differ", "warn"),
        ({"is_evaluation": True}, "DistributedSampler repeats 2 samples in a pass", "note"),
        ({}, "", ""),
    ],
)
def test_samplers_of_the_ranks_are_compared(other: dict[str, int], what: str, level: str) -> None:
    notes = {(0, 0): SAMPLER, (1, 0): replace(SAMPLER, **other)}  # type: ignore[arg-type]
    findings = [*sampler_findings(notes, 2, as_it_is)]
    assert [finding.level for finding in findings] == [level] * bool(what)
    assert all(finding.what.startswith(what) for finding in findings)
    assert [*sampler_findings({(1, 0): SAMPLER}, 2, as_it_is)] == []  # one rank's own


@pytest.mark.parametrize(
    ("steps", "without", "count"), [(3, 3, 1), (3, 2, 0), (1, 1, 0), (0, 0, 0)]
)
def test_steps_that_never_have_a_gradient_train_nothing(
    steps: int, without: int, count: int
) -> None:
    note = TrainingNote(1, "SGD", LINE, steps, without)
    notes = {(rank, 1): note for rank in range(2)}
    assert len([*untrained_findings(notes, 2, as_it_is)]) == count
    notes[1, 1] = replace(note, without_gradient=0)
    assert [*untrained_findings(notes, 2, as_it_is)] == []
