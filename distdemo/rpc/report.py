"""From what worker 0 brought back to the report; of a world that failed, who is at fault."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from distdemo import backends
from distdemo.launcher.records import Raised, Returned, TimedOut, Verdict, WorldReport
from distdemo.rpc.records import Call, Proof, RpcReport, RpcSpec, Training, apart, worker
from distdemo.versions import versions

HOSTS_DIFFER = 1e-4  # largest difference between processors of several hosts, which may round so
ELSEWHERE = re.compile(r"On WorkerInfo\(id=(\d+), name=[\w:-]+\):\n(.+)")
"""How torch begins the text of an exception that was raised on another worker."""
AWAITED = re.compile(r"(worker\d+(?:, worker\d+)*): (.+)")
"""A caller's phase: whose answer it waits for, and to what."""
RANK = re.compile(r"\b[Rr]ank (\d+)\b(?! \()")
LOG = re.compile(
    r"^(?:\[Gloo\] Rank \d+ is |\[rank\d+\]:\[[WE]\d{4} ).*\n"
    r"(?:(?:Exception raised from|frame #).*\n|\n(?=\Z|\[))*",
    re.MULTILINE,
)
"""A line of torch's own log, with the C++ stack under it: not what a worker wrote."""


def report(spec: RpcSpec, world: WorldReport) -> RpcReport:
    """Everything that the views are drawn from."""
    found = versions() | backends.versions_of(world.world)
    if world.verdict is not None:
        if world.interrupted_by is None:
            own = tuple(replace(o, output=LOG.sub("", o.output)) for o in world.outcomes)
            verdict = _named(blame(world, world.verdict))
            world = replace(world, verdict=verdict, outcomes=own)
        return RpcReport(spec, world, versions=found)
    values = [each.value for each in world.outcomes if isinstance(each, Returned)]
    calls, training = values[0]
    most = 0.0 if len(set(world.hosts)) <= 1 else HOSTS_DIFFER
    return RpcReport(spec, world, calls, training, prove(calls, training, most), found)


def prove(calls: tuple[Call, ...], training: Training, tolerance: float) -> tuple[Proof, ...]:
    """All that has to hold. NaN is less than nothing, so a training that broke down fails."""
    # Two calls of which each waits for the other: one after the other they would never end.
    pair = [call for call in calls if call.what.startswith("swap(")]
    ends = [call.start_s + call.time_s for call in pair]
    together = len(pair) == 2 and max(call.start_s for call in pair) < min(ends)
    losses = apart(training.losses, training.local_losses)
    weights = max((each.difference for each in training.parameters), default=math.inf)
    return (
        Proof("values", bool(calls) and all(call.ok for call in calls)),
        Proof("concurrency", together),
        Proof("learning", training.losses[-1] < training.losses[0]),
        Proof("losses", losses <= tolerance, tolerance, losses),
        Proof("weights", weights <= tolerance, tolerance, weights),
    )


def blame(world: WorldReport, verdict: Verdict) -> Verdict:
    """The verdict of the launcher, which knows ranks; or one that knows of callers and callees."""
    first = world.outcomes[verdict.ranks[0]] if verdict.ranks else None
    crossed = ELSEWHERE.search(first.message) if isinstance(first, Raised) else None
    if first is not None and crossed is not None and int(crossed[1]) < len(world.outcomes):
        return replace(
            verdict,
            what=f"Rank {crossed[1]} raised {crossed[2]}",
            why=f"Rank {first.rank} had called it, and got the exception: {first.phase.name}.",
            ranks=(int(crossed[1]),),
            consequences=_others(world, int(crossed[1])),
        )
    late = [each for each in world.outcomes if isinstance(each, TimedOut)]
    failed = any(isinstance(each, Raised) for each in world.outcomes)
    if not late or failed or any(each.phase.step < 0 for each in late):
        return verdict
    lead, phase = verdict.what.partition(":")[0], world.outcomes[0].phase.name
    reached = f"Rank 0 had got as far as: {phase}."
    mute = tuple(each.rank for each in late if each.where is None)
    if 0 < len(mute) < len(world.outcomes):
        what = f"{lead}: {_ranks(mute)} did not answer: stopped, or stuck in the kernel."
        return Verdict(what, reached, verdict.hint, mute, _others(world, *mute))
    awaited = AWAITED.fullmatch(phase)
    if awaited:
        callees = tuple(map(int, re.findall(r"\d+", awaited[1])))
        what = f"{lead}: {_ranks(callees)} did not finish {awaited[2]}."
        return Verdict(what, reached, verdict.hint, callees, _others(world, *callees))
    if "training" in phase:
        hint = "Take fewer --steps, or a longer --timeout."
        return Verdict(f"{lead}: the training was not done.", reached, hint)
    return verdict


def _others(world: WorldReport, *ranks: int) -> tuple[int, ...]:
    return tuple(each.rank for each in world.outcomes if each.rank not in ranks)


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def _named(verdict: Verdict) -> Verdict:
    """The same with a worker's name before each rank's number."""
    what, why = (
        RANK.sub(lambda found: f"{worker(int(found[1]))} (rank {found[1]})", text)
        for text in (verdict.what, verdict.why)
    )
    return replace(verdict, what=what, why=why)
