"""Mistakes are found with kind, ranks and line, and right programs have no findings.

Some run on real ranks. The recorded notes of all of them are read in several orders, and judged
after every note: a finding that later notes would change must be marked as so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from calls.programs import MISTAKES, SIZE, WORLDS
from calls.recorded import lines_at_fault, lines_named, recorded, sanitized, source_of

from distdemo.calls.match.judge import Judge, first_error
from distdemo.calls.records import Finding

ORDERS = ["ranks", "reversed", "by turns", *range(4)]


def interleaved(notes: list[list[str]], order: str | int) -> Iterator[tuple[int, str]]:
    """Yield the notes of all ranks: rank by rank, by turns, or in a random order."""
    ranks = [rank for rank in range(SIZE) for _ in notes[rank]]
    if order == "reversed":
        ranks.reverse()
    elif order == "by turns":
        turns = [(turn, rank) for rank in range(SIZE) for turn in range(len(notes[rank]))]
        ranks = [rank for _, rank in sorted(turns)]
    elif isinstance(order, int):
        random.Random(order).shuffle(ranks)
    rest = [iter(lines) for lines in notes]
    for rank in ranks:
        yield rank, next(rest[rank])


def judged(
    notes: list[list[str]], order: str | int, every: int = 1
) -> tuple[list[Finding | None], Judge]:
    """Return the first error after every n-th note, and the judge that has read all."""
    judge = Judge(SIZE)
    errors = []
    for number, (rank, line) in enumerate(interleaved(notes, order)):
        judge.feed(rank, f"{line}\n".encode())
        judge.read()
        if number % every == 0:
            errors.append(first_error(judge.matcher))
    assert not judge.matcher.stopped
    return errors, judge


@pytest.mark.processes
@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.real])
def test_a_mistake_is_found_on_real_ranks(name: str) -> None:
    mistake = MISTAKES[name]
    report, findings, _ = sanitized(name, buffers=mistake.kind == "buffers")
    assert findings, report.verdict
    (finding,) = findings
    assert (finding.kind, mistake.ranks and finding.ranks) == (mistake.kind, mistake.ranks), finding
    assert lines_named(finding, source_of(name)[1]) & lines_at_fault(mistake), finding


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_in_its_notes_in_any_order(name: str) -> None:
    mistake, notes = MISTAKES[name], recorded("mistakes")[name]
    for order in ORDERS:
        findings, judge = judged(notes, order)
        last = judge.conclude()
        assert last is not None
        assert last.kind == mistake.kind, last
        assert mistake.ranks in ((), last.ranks)
        assert lines_named(last) & lines_at_fault(mistake), last
        for finding in findings:
            if finding is not None and not finding.so_far:
                assert (finding.kind, finding.ranks) == (last.kind, last.ranks)
                assert lines_named(finding) == lines_named(last)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")  # DDP imports it
def test_right_programs_have_no_findings() -> None:
    for buffers in (False, True):
        for name in WORLDS:
            report, findings, _ = sanitized(name, buffers=buffers)
            assert findings == ()
            assert report.ok, report.verdict


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", WORLDS)
def test_right_programs_have_no_findings_in_any_order(name: str, order: str | int) -> None:
    notes = recorded("right")[name]
    findings, judge = judged(notes, order, every=37)
    assert [finding for finding in findings if finding is not None and not finding.so_far] == []
    assert judge.conclude() is None
    assert judge.warnings() == []


def test_every_kind_is_proved() -> None:
    """``device`` needs a GPU, and ``shift`` is a warning."""
    kinds = {mistake.kind for mistake in MISTAKES.values() if mistake.real}
    assert kinds == {mistake.kind for mistake in MISTAKES.values()}
