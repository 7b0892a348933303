"""What a contest and a simulation say, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.bench.view_fit_words import link_words
from distdemo.trace.contending import Arena, CompareReport, Contender
from distdemo.trace.view_amounts import short_bytes, whole_bytes
from distdemo.trace.view_counts import misprint_words
from distdemo.trace.view_standings import fastest, formula_state, handed_state, name, own, rivals
from distdemo.view.numbers import plural

ASSUMPTIONS = (
    "Every message costs α + s·β, on each hop, within a machine and between two.",
    "The network has full bisection bandwidth: messages at the same time share no link.",
    "A round is over when its largest message has arrived, and then the next one begins.",
    "All ranks start at once, none is late, and reducing costs nothing beside β.",
)
"""On which predicted times stand."""
ON_PAPER = "SIMULATION: nothing was run; rounds and bytes are counted from the schedule"


def title(arena: Arena, report: CompareReport) -> str:
    """``all_reduce · 1 KiB, one rank's tensor · 4 ranks · float32 sum · gloo · cpu``."""
    op, traffic, world = arena.op, arena.traffic, report.world
    about = f", {traffic.payload_is}" if traffic.payload_is else ""
    size = f"{whole_bytes(traffic.payload_bytes)}{about}"
    root = "" if op.root is None else f"root {op.root}"
    data = f"{op.dtype} {op.reduce_op or ''}".strip()
    ran = (world.backend, world.device) if world is not None else ("simulation",)
    return " · ".join(filter(None, (op.op, size, plural(report.n, "rank"), data, root, *ran)))


def legend(arena: Arena, report: CompareReport, best: str) -> Iterator[str]:
    """What the table of this size does not say by itself."""
    winner = fastest(arena)
    if winner is not None:
        by = "" if winner.timing else " by the model"
        near = ", ".join(name(each, report) for each in rivals(arena))
        but = f", but not clearly apart from {near}" if near else ""
        yield f"{best} {name(winner, report)} is the fastest{by} at {_size(arena)}{but}."
    for each in arena.contenders:
        if each.refused:
            yield f"— {name(each, report)} was not run: {each.refused.rstrip('.')}."
        elif each.timing is not None and each.timing.wrong:
            wrong, checked = each.timing.wrong, each.timing.checked
            yield f"{name(each, report)} gave {wrong:,} wrong elements of {checked:,}."


def below(report: CompareReport) -> Iterator[str]:
    """What holds for all sizes."""
    yield from _own(report)
    yield from _busiest(report)
    yield from _counted(report)
    yield from crossing(report)
    yield from _model(report)
    yield from misprints(report)


def _size(arena: Arena) -> str:
    return whole_bytes(arena.traffic.payload_bytes)


def _own(report: CompareReport) -> Iterator[str]:
    """What the columns of times are."""
    found = next((each for arena in report.arenas if (each := own(arena))), None)
    if found is not None:
        yield f"× own: the median beside that of {name(found, report)}."
    if any(each.timing for arena in report.arenas for each in arena.contenders):
        yield (
            "±: half of the median's 95 % interval, or of the range of all runs where they are "
            "too few; over the runs of this one world: another may differ by more."
        )


def _busiest(report: CompareReport) -> Iterator[str]:
    """Which rank is the busiest of each algorithm, at the largest size."""
    ranks: dict[str, list[str]] = {}
    for each in report.arenas[-1].contenders if report.arenas else ():
        if (counts := each.counts) is None:
            continue
        even = counts.sent_least == counts.sent_most
        even &= counts.received_least == counts.received_most
        who = "all ranks alike" if even else f"rank {counts.busiest_rank}"
        ranks.setdefault(who, []).append(each.about.name)
    if ranks:
        told = "; ".join(f"{who} of {', '.join(names)}" for who, names in ranks.items())
        yield f"Sent: by the rank that sends most. Busiest, in and out: {told}."


def _counted(report: CompareReport) -> Iterator[str]:
    """Whether counts are what formulas give, and what runs handed to the backend."""
    rows = [each for arena in report.arenas for each in arena.contenders if each.counts]
    formulas = {formula_state(each) for each in rows} - {""}
    handed = {handed_state(each) for each in rows} - {""}
    if rows and formulas <= {"same", "unequal"} and handed <= {"same"}:
        over = ", and what the runs handed to the backend" * bool(handed)
        but = " where chunks are equal (≈: they are not)" * ("unequal" in formulas)
        yield f"Every count is what its formula gives{but}{over}. --list shows the formulas."
    for arena in report.arenas:
        for each in arena.contenders:
            yield from _differing(each, arena)


def _differing(each: Contender, arena: Arena) -> Iterator[str]:
    """A sentence for each count that is not what it should be."""
    if formula_state(each) == "different":
        found = next(check for check in each.checks if check.exact and not check.same)
        yield (
            f"≠ {each.about.name} at {_size(arena)}, {found.name}: {found.formula} gives "
            f"{float(found.value):,g}, counted {found.counted:,}."
        )
    if handed_state(each) == "different" and each.counts is not None and each.handed is not None:
        yield (
            f"≠ {each.about.name} at {_size(arena)} handed {whole_bytes(each.handed)} to the "
            f"backend, and its schedule sends {whole_bytes(each.counts.total)}."
        )


def crossing(report: CompareReport) -> Iterator[str]:
    """By the model: which algorithm is fastest up to which size."""
    found = report.crossovers
    if found:
        parts = [f"{each.below} up to {short_bytes(each.size)}" for each in found]
        yield f"Fastest by the α–β model: {', '.join(parts)}, {found[-1].above} above."
        return
    predicted = [
        min(known, key=lambda each: each.predicted or 0.0).about.name
        for arena in report.arenas
        if len(known := [c for c in arena.contenders if c.predicted is not None]) > 1
    ]
    if predicted and len(set(predicted)) == 1:
        yield f"Fastest by the α–β model at {_these(report)}: {predicted[0]}."


def _these(report: CompareReport) -> str:
    return "these sizes" if len(report.arenas) > 1 else "this size"


def _model(report: CompareReport) -> Iterator[str]:
    """α and β, where they are from, and what the second model is."""
    if report.link is None:
        return
    yield f"{link_words(report.link.link)}: {report.link.words.rstrip('.')}."
    yield "α–β model: α for each round, and β for each byte of its largest message."
    if any(each.shared is not None for arena in report.arenas for each in arena.contenders):
        cores = (
            ""
            if report.cores is None
            else f": {plural(report.n, 'rank')} on {report.cores:g} cores"
        )
        yield f"Shared model: the same, with the ranks sharing what they run on{cores}."


def misprints(report: CompareReport) -> Iterator[str]:
    """Other formulas in print, once each, with what they give at the largest size."""
    for each in report.arenas[-1].contenders if report.arenas else ():
        where = f" for {each.about.name} at {_size(report.arenas[-1])}"
        for found in each.misprints:
            if each.counts is not None:
                yield misprint_words(found, each.counts.total, short_bytes, where)


def verdict(report: CompareReport) -> str:
    """What came of it, in a line."""
    failed = report.failure.verdict if report.failure else None
    ran = [each.timing for arena in report.arenas for each in arena.contenders if each.timing]
    sizes = plural(len(report.arenas), "size")
    if failed is not None:
        return f"{failed.what} Measured by then: {plural(len(ran), 'row')}."
    if report.simulated:
        return f"Simulated: {sizes} on {plural(report.n, 'rank')}. Nothing was run."
    if report.interrupted and not ran:
        return "Interrupted before any size was done."
    wrong, checked = sum(each.wrong for each in ran), sum(each.checked for each in ran)
    lead = "Interrupted; by then: " if report.interrupted else ""
    if wrong:
        return f"{lead}{plural(wrong, 'wrong element')} of {checked:,}."
    return f"{lead}{plural(len(ran), 'row')} at {sizes} verified: {checked:,} elements are right."
