"""Checksums of several ranks are compared as the training means them to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from distdemo.calls.match.replicas import ReplicaCheck, equal_data_finding
from distdemo.calls.notes import Gradients, Moment, Parameters
from distdemo.calls.record.tensors import Names, checksum, is_constant
from distdemo.calls.records import Finding, SourceLine

LINE = SourceLine("train.py", 23)
NOTE = Parameters("next", ("w",), (7,), LINE, optimizer=1)
START = replace(NOTE, moment="first", reduced=True)


class Ranks:
    """Notes of the ranks of one group, in the order of their steps.

    Args:
        size: Number of ranks.
        start: Note before the first step.
    """

    def __init__(self, size: int = 4, start: Parameters = START) -> None:
        self.size = size
        self.check = ReplicaCheck()
        self.certain = self.write(start, *[7] * size)

    def write(self, note: Parameters, *sums: int, **values: Any) -> bool:
        """Write a note with another checksum on each rank; return True if one certainly differs."""
        note = replace(note, **values)
        differences = [
            self.check.add(rank, replace(note, sums=(sums[rank],)), note.step, self.size)
            for rank in range(self.size)
        ]
        return any(differences)

    def end(self, step: int, *, averaged: bool = False, unreduced: int = 0, why: str = "") -> None:
        """Write the notes at the end of the program."""
        note = replace(NOTE, moment="end", names=(), sums=(), step=step, averaged=averaged)
        for rank in range(self.size):
            self.check.add(rank, replace(note, unreduced=unreduced, why=why), 99, self.size)

    @property
    def findings(self) -> list[Finding]:
        """Findings so far."""
        return [*self.check.findings(range(self.size), str)]


@pytest.mark.parametrize(
    ("sums", "what", "guilty"),
    [
        ((8, 8, 9, 8), "Rank 2: w differs from ranks 0, 1, 3 after step 2.", (2,)),
        ((8, 9, 10, 11), "w differs between all ranks after step 2.", ()),
        ((8, 9, 8, 9), "w differs between ranks 0, 2 and ranks 1, 3 after step 2.", ()),
    ],
)
def test_ranks_are_at_fault_only_if_most_others_agree(
    sums: tuple[int, ...], what: str, guilty: tuple[int, ...]
) -> None:
    ranks = Ranks()
    ranks.write(NOTE, 8, 8, 8, 8, step=1)
    assert ranks.write(NOTE, *sums, step=2, reduced=True)
    (finding,) = ranks.findings
    assert (finding.kind, finding.what, finding.ranks) == ("replicas", what, guilty)
    assert finding.before == "It was equal after step 1."


@pytest.mark.parametrize("by_call", [True, False])
def test_what_is_averaged_again_is_no_drift(by_call: bool) -> None:
    ranks = Ranks()
    assert not ranks.write(NOTE, 1, 2, 3, 4, step=1)  # no reduction, so nothing is certain
    assert ranks.findings
    if not by_call:
        ranks.write(NOTE, 5, 5, 5, 5, step=4)
        ranks.write(NOTE, 1, 2, 3, 4, step=8)
    ranks.end(8, averaged=by_call, unreduced=8)
    assert not ranks.findings


@pytest.mark.parametrize(("last", "count"), [(1, 1), (2, 0)])
def test_what_differs_right_after_a_step_counts_only_after_the_last(last: int, count: int) -> None:
    ranks = Ranks()
    ranks.write(NOTE, 1, 2, 3, 4, step=1, moment="after")
    assert not ranks.findings  # the owners of the parts may broadcast them
    if last > 1:
        ranks.write(NOTE, 5, 5, 5, 5, step=1)
    ranks.end(last)
    assert len(ranks.findings) == count


def test_optimizers_of_one_rank_do_not_count() -> None:
    check = ReplicaCheck()
    for rank in range(2):
        other = rank == 0  # it has stepped an optimizer that rank 1 doesn't have
        if other:
            check.add(rank, replace(START, sums=(5,)), 3, 2)
        number = 1 + other
        for step, value in enumerate((7, 7, rank)):
            moment: Moment = "next" if step else "first"
            note = replace(START, moment=moment, optimizer=number, step=step, sums=(value,))
            check.add(rank, note, 8 + step, 2)
    (finding,) = check.findings(range(2), str)
    assert finding.what == "w differs between rank 0 and rank 1 after step 2."


@pytest.mark.parametrize(("is_reduced", "count"), [(True, 1), (False, 0)])
def test_parameters_that_ranks_exchange_are_replicas_only_if_gradients_are_reduced(
    is_reduced: bool, count: int
) -> None:
    ranks = Ranks()
    ranks.write(NOTE, 1, 2, 3, 4, step=2, reduced=is_reduced)
    ranks.end(4, averaged=True)
    assert len(ranks.findings) == count


@pytest.mark.parametrize("joined", [True, False])
def test_after_join_steps_are_told_apart_by_the_calls_before(joined: bool) -> None:
    ranks = Ranks(2)
    note = replace(NOTE, step=3, joined=joined)
    for rank in range(2):
        ranks.check.add(rank, replace(note, sums=(rank,)), 10 + rank, 2)
    assert bool(ranks.findings) is not joined


@pytest.mark.parametrize(
    ("is_reduced", "unreduced", "count"), [(True, 0, 1), (True, 4, 0), (False, 0, 0)]
)
def test_an_unequal_start_is_wrong_if_the_gradients_are_always_reduced(
    is_reduced: bool, unreduced: int, count: int
) -> None:
    ranks = Ranks(start=replace(START, names=("other",), reduced=False))
    ranks.write(START, 1, 2, 3, 4, reduced=is_reduced)
    ranks.end(8, unreduced=unreduced)
    assert [f.what.partition(" b")[0] for f in ranks.findings] == ["w differs"] * count


@pytest.mark.parametrize(
    ("why", "text", "advice"),
    [
        ("not called", "the DDP module was never called", "Call the wrapper, not model.module."),
        ("unused spare", "DDP didn't finish its reduction", "spare got no gradient: use find_"),
        ("no_sync", "their backward passes ran in no_sync()", "Leave no_sync() for the last"),
        ("", "no call carried a gradient", "Reduce the gradients between"),
    ],
)
def test_steps_without_a_reduction_are_the_cause_of_a_drift(
    why: str, text: str, advice: str
) -> None:
    ranks = Ranks(2)
    ranks.write(NOTE, 1, 2, step=1, unreduced=1, why=why)
    ranks.end(4, unreduced=3, why=why)
    (finding,) = ranks.findings
    assert finding.kind == "unreduced"
    assert finding.what == (
        f"Ranks 0, 1: 3 of 4 steps changed parameters without a reduction; {text}."
    )
    assert finding.rule.startswith(advice)
    assert finding.rule.endswith("Parameters now differ: w.")


def gradients(ranks: Ranks, step: int, *totals: int, names: tuple[str, ...] = ()) -> None:
    """Write the gradients of one step of each rank."""
    for rank, total in enumerate(totals):
        given = names if rank == 0 else names[::-1]
        ranks.check.add_gradients(rank, Gradients(step, given, total, LINE), ranks.size)


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([(5, 5), (6, 6), (7, 7)], 1),
        ([(5, 5), (6, 6)], 0),  # as in programs that only show how to make a step
        ([(5, 5), (6, 6), (7, 7), (8, 9)], 0),
        ([(0, 0), (0, 0), (0, 0)], 0),
    ],
)
def test_equal_gradients_come_from_equal_data(steps: list[tuple[int, int]], count: int) -> None:
    ranks = Ranks(2)
    for number, totals in enumerate(steps, 1):
        gradients(ranks, number, *totals)
    finding = equal_data_finding([((0, 1), ranks.check)], str)
    assert (finding is not None) is bool(count)


def test_equal_data_in_overlapping_groups_is_said_once() -> None:
    checks = []
    for members in ((0, 1), (2, 3), (1, 3), (4, 5)):
        ranks = Ranks(2)
        for step in (1, 2, 4):
            gradients(ranks, step, 5, 5)
        checks.append((members, ranks.check))
    finding = equal_data_finding(checks, str)
    assert finding is not None
    assert finding.what.startswith("Ranks 0, 1, 2, 3 and ranks 4, 5 reduced bit-identical")


def test_reductions_must_get_the_same_parameters() -> None:
    ranks = Ranks(2)
    gradients(ranks, 1, 3, 4, names=("a", "b"))
    (finding,) = ranks.findings
    assert (
        finding.what == "Rank 1 reduced a different parameter from rank 0 in reduction 1 of step 1."
    )
    assert [row.did for row in finding.rows] == ["gradient of a", "gradient of b"]


def test_a_checksum_notices_each_bit_and_the_order() -> None:
    values = torch.arange(10_000, dtype=torch.float32)
    changed = values.clone()
    changed[7_777] += 0.001
    assert len({checksum(values), checksum(changed), checksum(values.flip(0))}) == 3
    assert checksum(values.view(100, 100)[:, 1:]) == checksum(values.view(100, 100)[:, 1:].clone())
    for dtype in (torch.bfloat16, torch.float64, torch.bool, torch.complex64):
        assert checksum(torch.zeros(33, dtype=dtype)) == 0
        assert checksum(torch.ones(33, dtype=dtype)) != 0
        assert is_constant(torch.ones(33, dtype=dtype))
    assert not is_constant(values)


def test_parameters_are_named_by_their_path_without_wrappers() -> None:
    names = Names()
    names.install(lambda function, *args: function(*args))
    innermost = torch.nn.Linear(2, 2)
    inner = torch.nn.Sequential(innermost)
    outer = torch.nn.ModuleDict({"module": torch.nn.ModuleDict({"body": inner})})
    other = torch.nn.Linear(2, 2)
    parameters = [innermost.bias, other.weight, torch.nn.Parameter(torch.ones(1))]
    assert len(list(outer.parameters())) == 2
    assert names.of(parameters, "SGD") == [
        "body.0.bias",
        "model 2: weight",
        "parameter 2 of SGD",
    ]
