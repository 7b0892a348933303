"""From what worker 0 brought back to the report; of a world that failed, who is at fault."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from distdemo import backends
from distdemo.launcher.records import Raised, TimedOut, Verdict, WorldReport
from distdemo.rpc.records import RAISED, RpcCall, RpcProof, RpcReport, RpcSpec, Trainings, apart
from distdemo.versions import versions

HOSTS_DIFFER = 1e-4  # largest difference between processors of several hosts, which may round so
AWAITED = re.compile(r"(worker\d+(?:, worker\d+)*): (.+)")
"""A caller's phase: whose answer it waits for, and to what."""


def report(spec: RpcSpec, world: WorldReport) -> RpcReport:
    """Everything that the views are drawn from."""
    found = versions() | backends.versions_of(world.world)
    if world.verdict is not None:
        if world.interrupted_by is None:
            world = replace(world, verdict=blame(world, world.verdict))
        return RpcReport(spec, world, versions=found)
    calls, training = world.values[0]
    tolerance = 0.0 if len(set(world.hosts)) <= 1 else HOSTS_DIFFER
    return RpcReport(spec, world, calls, training, prove(calls, training, tolerance), found)


def prove(
    calls: tuple[RpcCall, ...], training: Trainings, tolerance: float
) -> tuple[RpcProof, ...]:
    """All that has to hold. No comparison with NaN holds, so a training that broke down fails."""
    # Two calls of which each waits for the other: one after the other they would never end.
    pair = [call for call in calls if call.what.startswith("swap(")]
    ends = [call.start_s + call.time_s for call in pair]
    together = len(pair) == 2 and max(call.start_s for call in pair) < min(ends)
    losses = apart(training.losses, training.local_losses)
    weights = max((each.difference for each in training.parameters), default=math.inf)
    return (
        RpcProof("values", bool(calls) and all(call.ok for call in calls)),
        RpcProof("concurrency", together),
        RpcProof("learning", training.losses[-1] < training.losses[0]),
        RpcProof("losses", losses <= tolerance, tolerance, losses),
        RpcProof("weights", weights <= tolerance, tolerance, weights),
    )


def blame(world: WorldReport, verdict: Verdict) -> Verdict:
    """The verdict of the launcher, which knows ranks; or one that knows of callers and callees."""
    outcomes = world.outcomes

    def at_fault(what: str, why: str, *ranks: int) -> Verdict:
        others = tuple(each.rank for each in outcomes if ranks and each.rank not in ranks)
        return replace(verdict, what=what, why=why, ranks=ranks, consequences=others)

    first = outcomes[verdict.ranks[0]] if verdict.ranks else None
    if isinstance(first, Raised) and (crossed := re.search(RAISED, first.message)):
        what = f"Rank {crossed[1]} raised {crossed[2]}"
        why = f"Rank {first.rank} had called it, and got the exception: {first.phase.name}."
        return at_fault(what, why, int(crossed[1]))
    late = [each for each in outcomes if isinstance(each, TimedOut)]
    failed = any(isinstance(each, Raised) for each in outcomes)
    if not late or failed or any(each.phase.step < 0 for each in late):
        return verdict
    lead, phase = verdict.what.partition(":")[0], outcomes[0].phase.name
    reached = f"Rank 0 had got as far as: {phase}."
    silent = [each.rank for each in late if each.where is None]
    if 0 < len(silent) < len(outcomes):
        what = f"{lead}: {_names(silent)} did not answer: stopped, or stuck in the kernel."
        return at_fault(what, reached, *silent)
    if awaited := AWAITED.fullmatch(phase):
        callees = [int(rank) for rank in re.findall(r"\d+", awaited[1])]
        return at_fault(
            f"{lead}: {_names(callees)} did not finish {awaited[2]}.", reached, *callees
        )
    if "training" in phase:
        return at_fault(f"{lead}: the training was not done.", reached)
    return verdict


def _names(ranks: list[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)
