"""A round in sentences, for the page: who sends what to whom, and what is complete by now."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from distdemo.trace.scheduling import Fault, Transfer
from distdemo.trace.tracing import Cell, Played, TraceReport
from distdemo.trace.view_words import listed, spoiled
from distdemo.view.numbers import plural

MOST = 8  # messages or chunks that a sentence names; the others are counted
SIGNS = {"sum": "+", "avg": "+", "premul_sum": "+", "product": "×"}
VERBS = {"sum": "adds", "avg": "adds", "premul_sum": "adds", "product": "multiplies"}

Held = tuple[dict[int, Cell], ...]


Sentence = tuple[str, str, str]  # which round, what is sent in it, and what came of it


def sentences(report: TraceReport) -> list[Sentence]:
    """One before the first round, and one for each; its parts, as a round under way has no end."""
    states = list(report.states())
    head = "Before the first round" if report.rounds else "No round is needed"
    found = [(head, "", _progress(report, states[0], None))]
    for played, (before, after) in zip(report.rounds, pairwise(states), strict=True):
        head = f"Round {played.step.number} of {len(report.rounds)}"
        phase = f", {played.step.phase}" if played.step.phase else ""
        came = [_progress(report, after, before), *_spoiled(report.spec.fault, played)]
        found.append((f"{head}{phase}", _messages(report, played), " ".join(came)))
    return found


def _spoiled(fault: Fault | None, played: Played) -> list[str]:
    return [spoiled(fault)] if fault and fault.round == played.step.number else []


def runs(numbers: Sequence[int]) -> list[int]:
    """Numbers in order as first and last of each run: ``0 1 2 5`` is ``[0, 2, 5, 5]``."""
    found: list[int] = []
    for each in numbers:
        if found and each == found[-1] + 1:
            found[-1] = each
        else:
            found += [each, each]
    return found


def chunk_list(report: TraceReport, chunks: Sequence[int]) -> str:
    """``chunk 2``, ``chunks 0–3 and 6``; few of many are named."""
    names = report.chunk_names
    plain = all(names[each] == str(each) for each in chunks)
    ends = runs(chunks) if plain else [end for each in chunks for end in (each, each)]
    told = [
        text
        for first, last in zip(ends[::2], ends[1::2], strict=True)
        for text in _span(names, first, last)
    ]
    if len(told) > MOST:
        told[MOST:] = [f"{len(told) - MOST:,} more"]
    return f"{'chunk' if len(chunks) == 1 else 'chunks'} {listed(told)}"


def _span(names: Sequence[str], first: int, last: int) -> list[str]:
    """More than two in a row as their ends."""
    if last > first + 1:
        return [f"{names[first]}–{names[last]}"]
    return [names[each] for each in range(first, last + 1)]


def _messages(report: TraceReport, played: Played) -> str:
    """The first message of each kind in full, the others likewise."""
    kinds: dict[tuple[bool, bool], list[Transfer]] = {}
    for each in played.step.transfers:
        if each.elements:
            kinds.setdefault((each.reduce, each.original), []).append(each)
    if not kinds:
        return "no message carries anything."
    return " ".join(f"{_alike(report, sent)}." for sent in kinds.values())


def _alike(report: TraceReport, sent: list[Transfer]) -> str:
    first, *others = sent
    told = [
        f"rank {each.src} {chunk_list(report, each.chunks)} to rank {each.dst}"
        for each in others[: MOST - 1]
    ]
    if len(sent) > MOST:
        told.append(f"{plural(len(sent) - MOST, 'message')} more")
    return _message(report, first) + (f"; likewise {listed(told)}" if told else "")


def _message(report: TraceReport, transfer: Transfer) -> str:
    pronoun = "it" if len(transfer.chunks) == 1 else "them"
    verb = VERBS.get(report.spec.op.reduce_op or "sum", "combines")
    does = f"{verb} {pronoun} {'with' if verb == 'combines' else 'to'} its own"
    if verb == "multiplies":
        does = f"multiplies its own by {pronoun}"
    what = "what it began with of " if transfer.original else ""
    return (
        f"rank {transfer.src} sends {what}{chunk_list(report, transfer.chunks)} to rank "
        f"{transfer.dst}, which {does if transfer.reduce else f'keeps {pronoun}'}"
    )


def _progress(report: TraceReport, now: Held, before: Held | None) -> str:
    """How many of the chunks that are wanted are complete, and which are so since this round."""
    done = _complete(report, now)
    wanted = sum(map(len, report.wanted))
    told = f"Complete now: {len(done):,} of {plural(wanted, 'wanted chunk')}"
    fresh = sorted(done - _complete(report, before)) if before is not None else []
    if not fresh:
        return f"{told}."
    names = [f"chunk {report.chunk_names[c]} on rank {rank}" for rank, c in fresh[:MOST]]
    if len(fresh) > MOST:
        names.append(f"{len(fresh) - MOST:,} more")
    return f"{told}; new: {listed(names)}."


def _complete(report: TraceReport, state: Held) -> set[tuple[int, int]]:
    return {
        (rank, chunk)
        for rank, wanted in enumerate(report.wanted)
        for chunk in wanted
        if chunk in state[rank] and state[rank][chunk].complete
    }
