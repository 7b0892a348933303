"""Build the report from worker 0's result, or find the rank at fault in a failed world."""

from __future__ import annotations

import re
from dataclasses import replace

from distdemo import backends
from distdemo.launcher.records import Raised, TimedOut, Verdict, WorldReport
from distdemo.launcher.verdict import ranks_of
from distdemo.rpc.records import RAISED, RpcReport
from distdemo.versions import versions

AWAITED = re.compile(r"(worker\d+(?:, worker\d+)*): (.+)")
"""Phase of a waiting caller: the callees and the call."""


def make_report(world: WorldReport) -> RpcReport:
    """Return the report of a world."""
    found = versions() | backends.versions_of(world.world)
    if world.verdict is not None:
        if world.interrupted_by is None:
            world = replace(world, verdict=_blame(world, world.verdict))
        return RpcReport(world, versions=found)
    return RpcReport(world, world.values[0], found)


def _blame(world: WorldReport, verdict: Verdict) -> Verdict:
    """Return the launcher's verdict, or a better one that accounts for callers and callees."""
    outcomes = world.outcomes

    def at_fault(what: str, why: str, *ranks: int) -> Verdict:
        others = tuple(each.rank for each in outcomes if ranks and each.rank not in ranks)
        return replace(verdict, what=what, why=why, ranks=ranks, consequences=others)

    first = outcomes[verdict.ranks[0]] if verdict.ranks else None
    if isinstance(first, Raised) and (crossed := re.search(RAISED, first.message)):
        what = f"Rank {crossed[1]} raised {crossed[2]}"
        why = f"Rank {first.rank} called it and received the exception: {first.phase.name}."
        return at_fault(what, why, int(crossed[1]))
    late = [each for each in outcomes if isinstance(each, TimedOut)]
    failed = any(isinstance(each, Raised) for each in outcomes)
    if not late or failed or any(each.phase.step < 0 for each in late):
        return verdict
    lead, phase = verdict.what.partition(":")[0], outcomes[0].phase.name
    reached = f"Last phase of rank 0: {phase}."
    silent = [each.rank for each in late if each.where is None]
    if 0 < len(silent) < len(outcomes):
        what = (
            f"{lead}: {ranks_of(silent).lower()} did not answer: stopped, or stuck in the kernel."
        )
        return at_fault(what, reached, *silent)
    if awaited := AWAITED.fullmatch(phase):
        callees = [int(rank) for rank in re.findall(r"\d+", awaited[1])]
        what = f"did not finish {awaited[2]}"
        return at_fault(f"{lead}: {ranks_of(callees).lower()} {what}.", reached, *callees)
    return verdict
