"""Build the report from worker 0's result, or find the rank at fault in a failed world."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    all_versions = versions() | backends.versions_of(world.world)
    if world.verdict is None:
        return RpcReport(world, world.values[0], all_versions)
    if world.interrupted_by is None:
        world = replace(world, verdict=_blame(world, world.verdict))
    return RpcReport(world, versions=all_versions)


def _blame(world: WorldReport, verdict: Verdict) -> Verdict:
    """Return the launcher's verdict, or a better one that accounts for callers and callees."""
    outcomes = world.outcomes

    def at_fault(what: str, why: str, ranks: Sequence[int]) -> Verdict:
        others = tuple(outcome.rank for outcome in outcomes if outcome.rank not in ranks)
        return replace(verdict, what=what, why=why, ranks=tuple(ranks), consequences=others)

    first = outcomes[verdict.ranks[0]] if verdict.ranks else None
    if isinstance(first, Raised) and (passed_on := re.search(RAISED, first.message)):
        why = f"Rank {first.rank} called it and received the exception: {first.phase.name}."
        what = f"Rank {passed_on[1]} raised {passed_on[2]}"
        return at_fault(what, why, [int(passed_on[1])])
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    has_raised = any(isinstance(outcome, Raised) for outcome in outcomes)
    if not late or has_raised or any(outcome.phase.step < 0 for outcome in late):
        return verdict
    lead = verdict.what.partition(":")[0]
    phase = outcomes[0].phase.name
    why = f"Last phase of rank 0: {phase}."
    silent = [outcome.rank for outcome in late if outcome.where is None]
    if 0 < len(silent) < len(outcomes):
        state = "did not answer: stopped, or stuck in the kernel"
        return at_fault(f"{lead}: {ranks_of(silent).lower()} {state}.", why, silent)
    if awaited := AWAITED.fullmatch(phase):
        callees = [int(rank) for rank in re.findall(r"\d+", awaited[1])]
        what = f"{lead}: {ranks_of(callees).lower()} did not finish {awaited[2]}."
        return at_fault(what, why, callees)
    return verdict
