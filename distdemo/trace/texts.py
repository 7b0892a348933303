"""What the views of schedules have in common: amounts, formulas and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdemo.ops.contract import Traffic
from distdemo.trace.records import CostModel, Fault, FormulaCheck, TraceReport, WrongChunk
from distdemo.view.console import ASCII_SIGNS, Signs
from distdemo.view.format import distinct, duration, exact_size, listing, plural, rate, short_size

COSTS = {
    "rounds": "Rounds",
    "sent_bytes": "Sent by a rank",
    "busiest_bytes": "Busiest rank",
    "total_bytes": "In all",
}
"""What the names of checks read as; in this order."""
LETTERS = (
    "n: ranks; C: chunks; lg: logarithm to base 2, rounded up (⌊ ⌋: down); p: largest power of 2 "
    "that is not above n; e = n − p; [e>0]: 1 if so, else 0."
)
"""What formulas are written with, B apart."""


def amount(check: FormulaCheck, value: float) -> str:
    """Rounds are a number, all else bytes, exactly."""
    if check.name == "rounds":
        return f"{value:,.10g}"
    return exact_size(int(value)) if value == int(value) else f"{value:,.2f} B"


def formula(text: str, sign: Signs) -> str:
    """A formula with the characters that this terminal has."""
    return text.replace("·", "*") if sign == ASCII_SIGNS else text


def sameness(check: FormulaCheck) -> str:
    """``✓``; ``≠``, or ``≈``: the formula is of equal chunks, and these are not."""
    if check.same:
        return "✓"
    return "≠" if check.exact else "≈"


def cost_table(report: TraceReport, sign: Signs) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: each formula beside what was counted, and handed to the backend."""
    handed = report.handed_bytes
    given = {"sent_bytes": max(handed), "total_bytes": sum(handed)} if handed else {}
    heads = ["Cost", "Formula", "Gives", "Counted", *(["Handed over"] if handed else [])]
    rows = []
    for check in report.checks:
        counted = f"{amount(check, check.counted)} {sameness(check)}"
        row = [COSTS[check.name], formula(check.formula, sign), amount(check, check.value), counted]
        if check.name in given:
            same = "✓" if given[check.name] == check.counted else "≠"
            row.append(f"{exact_size(given[check.name])} {same}")
        elif handed:
            row.append(sign.none)
        rows.append([cell.replace("✓", sign.right) for cell in row])
    return heads, rows


def payload_text(traffic: Traffic) -> str:
    """``16 B, one rank's tensor``."""
    about = f", {traffic.payload_is}" if traffic.payload_is else ""
    return f"{exact_size(traffic.payload_bytes)}{about}"


def link_text(link: CostModel) -> str:
    """α and β, and where they are from."""
    beta = link.beta_s_per_byte
    bandwidth = rate(1 / beta) if beta > 0 else "without limit"
    told = f"α = {duration(link.alpha_s)}, β = {1e9 * beta:.3g} ns/B ({bandwidth})"
    if link.origin == "given":
        return f"{told}, as given."
    if link.origin == "fitted":
        return f"{told}, fitted to {listing(link.files)}: {link.series}."
    sizes = " and ".join(map(short_size, link.message_bytes))
    return f"{told}, measured between ranks 0 and 1: {sizes}, {plural(link.runs, 'time')} each."


def fault_text(fault: Fault) -> str:
    """What was done wrong on purpose."""
    done = {
        "drop": "is left out",
        "neighbour": "goes to the rank after the right one",
        "twice": "is combined twice",
    }[fault.fault]
    return f"Spoiled on purpose: rank {fault.src}'s message of round {fault.round} {done}."


def wrong_text(each: WrongChunk, names: Sequence[str]) -> str:
    """Where, what is there and should be, whose contribution is missing or too many, since when."""
    told = f"rank {each.rank}, chunk {names[each.chunk]}"
    if each.element is None:
        told += " is not there"
    elif each.got is None:
        told += " is incomplete"
    elif each.got == each.expected:
        told += ": the number is right by chance"
    elif each.expected is not None:
        got, expected = distinct(each.got, each.expected)
        told += f", element {each.element}: got {got}, expected {expected}"
    if each.missing and each.element is not None:
        told += f"; without {_ranks(each.missing)}"
    if each.extra:
        told += f"; too much of {_ranks(each.extra)}"
    if each.round is not None:
        told += f"; wrong since round {each.round}"
    return f"{told}."


def _ranks(numbers: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0, 1 and 3``, ``ranks 0–3 and 5``."""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listing(run_names(numbers))}"


def run_names(numbers: Sequence[int]) -> list[str]:
    """``0–3``, ``5``, ``6``: a run of three or more in one."""
    told: list[str] = []
    for first, last in runs(numbers):
        told += [f"{first}–{last}"] if last > first + 1 else map(str, range(first, last + 1))
    return told


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers that follow each other."""
    found: list[tuple[int, int]] = []
    for each in numbers:
        if found and each == found[-1][1] + 1:
            found[-1] = (found[-1][0], each)
        else:
            found.append((each, each))
    return found


def notes(report: TraceReport) -> Iterator[str]:
    """What a reader should know."""
    op, world = report.spec.op, report.world
    if op.reduce_op == "premul_sum":
        yield f"Before the first round every rank multiplies what it holds by {op.factor:g}."
    if report.spec.divides:
        yield f"After the last round every rank divides its result by {op.group_size}."
    if world is not None and len(set(world.hosts)) > 1:
        yield "Times are counted on each host from its own first round."
    if report.spec.fault is not None and not report.wrong:
        yield "This fault does no harm: every rank gets all that it must."
    if report.spec.fault is None and any(not (e.missing or e.extra) for e in report.wrong):
        yield "The schedule is right on paper: the fault is the backend's or this program's."


def verdict_text(report: TraceReport, sign: Signs) -> str:
    """Right or wrong, in one line, and what was sent."""
    checked = sum(each.checked for each in report.verifications)
    if not report.ok:
        who = sorted({each.rank for each in report.wrong})
        wrong = sum(each.wrong for each in report.verifications)
        told = f"{plural(len(report.wrong), 'chunk')}, {wrong:,} of {checked:,} elements"
        return f"{sign.wrong} Wrong: {told}, on {_ranks(who)}."
    counts = report.counts
    same = ", as the formulas say" if all(each.same for each in report.checks) else ""
    sent = f"{plural(report.messages, 'message')}, {exact_size(counts.total_bytes)} in all{same}"
    right = f"{plural(checked, 'element')} on {plural(report.n, 'rank')} right"
    lead = f"Verified: {right}" if report.world else "On paper: nothing was run"
    return f"{sign.right} {lead}; {sent}."
