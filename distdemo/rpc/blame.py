"""The verdict over a world of workers, with the workers named.

Pure logic. The launcher knows ranks and what they said last; that a caller waits for a callee, and
that an exception came from one, is known here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from distdemo.launcher.records import Outcome, Raised, TimedOut, Verdict, WorldReport
from distdemo.rpc.records import name_of

_RANK = re.compile(r"\b[Rr]ank (\d+)\b(?! \()")
_AWAITED = re.compile(r"(worker\d+(?:, worker\d+)*): (.+)")
"""A caller's phase: whose answer it waits for, and to what; of some calls several workers'."""
_ELSEWHERE = re.compile(r"On WorkerInfo\(id=(\d+), name=[\w:-]+\):\n(.+)")
"""How torch begins the text of an exception that was raised on another worker."""

_LOG = re.compile(
    r"^(?:\[Gloo\] Rank \d+ is |\[rank\d+\]:\[[WE]\d{4} ).*\n"
    r"(?:(?:Exception raised from|frame #).*\n|\n(?=\Z|\[))*",
    re.MULTILINE,
)
"""A line of torch's own log, with the C++ stack under it; and of gloo's, which torch 2.8 prints."""


def blamed(world: WorldReport) -> WorldReport:
    """The same, its verdict naming the worker at fault."""
    if world.verdict is None or world.interrupted_by is not None:
        return world
    found = _raised_elsewhere(world) or _silent(world) or world.verdict
    outcomes = tuple(replace(each, output=_own_words(each.output)) for each in world.outcomes)
    return replace(world, verdict=_named(found), outcomes=outcomes)


def _own_words(output: str) -> str:
    """What a worker wrote, without torch's own log."""
    return _LOG.sub("", output)


def _raised_elsewhere(world: WorldReport) -> Verdict | None:
    """The callee, where the first cause is an exception that came back from it."""
    old = world.verdict
    first = world.outcomes[old.ranks[0]] if old and old.ranks else None
    crossed = _ELSEWHERE.search(first.message) if isinstance(first, Raised) else None
    if old is None or first is None or crossed is None or int(crossed[1]) >= len(world.outcomes):
        return None
    guilty = int(crossed[1])
    others = tuple(each.rank for each in world.outcomes if each.rank != guilty)
    return replace(
        old,
        what=f"Rank {guilty} raised {crossed[2]}",
        why=f"Rank {first.rank} had called it, and got the exception: {first.phase.name}.",
        ranks=(guilty,),
        consequences=others,
    )


def _silent(world: WorldReport) -> Verdict | None:
    """Where time ran out and nobody failed: the worker that does not answer, or none."""
    late = [outcome for outcome in world.outcomes if isinstance(outcome, TimedOut)]
    old = world.verdict
    started = all(outcome.phase.step >= 0 for outcome in late)
    if old is None or not late or not started or any(isinstance(o, Raised) for o in world.outcomes):
        return None
    mute = tuple(outcome.rank for outcome in late if outcome.where is None)
    if 0 < len(mute) < len(world.outcomes):
        return _accused(old, world, mute, "did not answer: stopped, or stuck in the kernel")
    caller = world.outcomes[0]
    awaited = _AWAITED.fullmatch(caller.phase.name)
    if awaited:
        callees = tuple(int(rank) for rank in re.findall(r"\d+", awaited[1]))
        return _accused(old, world, callees, f"did not finish {awaited[2]}")
    if "training" in caller.phase.name:
        return _slow(old, caller)
    return None


def _accused(old: Verdict, world: WorldReport, guilty: tuple[int, ...], does: str) -> Verdict:
    others = tuple(each.rank for each in world.outcomes if each.rank not in guilty)
    lead = old.what.partition(":")[0]
    who = ", ".join(f"rank {rank}" for rank in guilty)
    why = f"Rank 0 had got as far as: {world.outcomes[0].phase.name}."
    return Verdict(f"{lead}: {who} {does}.", why, old.hint, guilty, others)


def _slow(old: Verdict, caller: Outcome) -> Verdict:
    return Verdict(
        f"{old.what.partition(':')[0]}: the training was not done.",
        f"Rank 0 had got as far as: {caller.phase.name}. All workers answer.",
        "Take fewer --steps, or a longer --timeout.",
    )


def _named(verdict: Verdict) -> Verdict:
    """The same with a worker's name before each rank's number."""
    what, why = (
        _RANK.sub(lambda found: f"{name_of(int(found[1]))} (rank {found[1]})", text)
        for text in (verdict.what, verdict.why)
    )
    return replace(verdict, what=what, why=why)
