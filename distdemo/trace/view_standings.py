"""What the views of a contest look up in it: who is fastest, against whom, whose count is right."""

from __future__ import annotations

from distdemo.trace.contending import Arena, CompareReport, Contender
from distdemo.trace.view_amounts import sameness


def seconds(contender: Contender) -> float | None:
    """What it took; of what was not run what it should take; None: nobody knows."""
    return contender.predicted if contender.timing is None else contender.timing.median


def fastest(arena: Arena) -> Contender | None:
    """Who took least, or should; a wrong result wins nothing. None of one alone."""
    times = {
        place: time
        for place, each in enumerate(arena.contenders)
        if (time := seconds(each)) is not None and not is_wrong(each) and not each.refused
    }
    if len(times) < 2:
        return None
    return arena.contenders[min(times, key=lambda place: times[place])]


def rivals(arena: Arena) -> list[Contender]:
    """Those whose intervals overlap with that of the fastest; none of what was not timed."""
    best = fastest(arena)
    if best is None or best.timing is None:
        return []
    others = (each for each in arena.contenders if each is not best and not is_wrong(each))
    high = best.timing.high
    return [each for each in others if each.timing is not None and each.timing.low < high]


def own(arena: Arena) -> Contender | None:
    """The backend's own call, if it was timed."""
    return next((each for each in arena.contenders if each.own and each.timing), None)


def ratio(contender: Contender, arena: Arena) -> float | None:
    """How many times as long as the backend's own it took; None: one of them was not timed."""
    theirs = own(arena)
    if contender.own or contender.timing is None or theirs is None or theirs.timing is None:
        return None
    median = theirs.timing.median
    return contender.timing.median / median if median > 0 else None


def is_wrong(contender: Contender) -> bool:
    """Whether any element of its results was."""
    return contender.timing is not None and contender.timing.wrong > 0


def formula_state(contender: Contender) -> str:
    """``same``, ``unequal`` or ``different``: the worst of its checks; empty without any."""
    found = {sameness(each) for each in contender.checks}
    return next((each for each in ("different", "unequal", "same") if each in found), "")


def handed_state(contender: Contender) -> str:
    """``same`` or ``different``: bytes that the run handed over and those counted; or empty."""
    if contender.handed is None or contender.counts is None:
        return ""
    return "same" if contender.handed == contender.counts.total else "different"


def name(contender: Contender, report: CompareReport) -> str:
    """The algorithm's; ``gloo's own``."""
    if not contender.own:
        return contender.about.name
    return f"{report.world.backend}'s own" if report.world else "the backend's own"
