"""Texts shared by the views of schedules: amounts, formulas and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdemo.ops.contract import Traffic
from distdemo.schedules.count import CostModel, FormulaCheck
from distdemo.trace.records import TraceReport, WrongChunk
from distdemo.view.console import Signs
from distdemo.view.format import (
    distinct,
    duration,
    exact_size,
    listing,
    plural,
    ranks_text,
    rate,
    shape_text,
)

COSTS = {
    "rounds": "Rounds",
    "sent_bytes": "Sent by a rank",
    "busiest_bytes": "Busiest rank",
    "total_bytes": "Total",
}
"""Labels of the checks, in display order."""


def amount(check: FormulaCheck, value: float) -> str:
    """Return rounds as a number, anything else as an exact number of bytes."""
    if check.name == "rounds":
        return f"{value:,.10g}"
    return exact_size(int(value)) if value == int(value) else f"{value:,.2f} B"


def agreement_sign(check: FormulaCheck) -> str:
    """Return ``✓``, ``≠``, or ``≈`` if the formula assumes equal chunks and these are unequal."""
    if check.same:
        return "✓"
    return "≠" if check.exact else "≈"


def cost_table(report: TraceReport, sign: Signs) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: each formula, its count, and the bytes handed to the backend."""
    handed = report.handed_bytes
    given = {"sent_bytes": max(handed), "total_bytes": sum(handed)} if handed else {}
    heads = ["Cost", "Formula", "Gives", "Counted", *(["Handed over"] if handed else [])]
    rows = []
    for check in report.checks:
        counted = f"{amount(check, check.counted)} {agreement_sign(check)}"
        row = [COSTS[check.name], check.formula, amount(check, check.value), counted]
        if check.name in given:
            same = "✓" if given[check.name] == check.counted else "≠"
            row.append(f"{exact_size(given[check.name])} {same}")
        elif handed:
            row.append(sign.none)
        rows.append([cell.replace("✓", sign.right) for cell in row])
    return heads, rows


def title(report: TraceReport, sign: Signs) -> str:
    """Return op, algorithm, reduce op, root, ranks, backend, device, dtype and shape."""
    op, world = report.op, report.world
    parts = [op.op, report.algorithm.name]
    parts += [] if op.reduce_op is None else [op.reduce_op]
    parts += [] if op.root is None else [f"root {op.root}"]
    parts.append(plural(report.n, "rank"))
    parts += [world.world.backend, world.world.device]
    return f" {sign.dot} ".join([*parts, shape_text(op.dtype, op.shape)])


def payload_text(traffic: Traffic) -> str:
    """Return the payload, such as ``16 B, one rank's tensor``."""
    about = f", {traffic.payload_is}" if traffic.payload_is else ""
    return f"{exact_size(traffic.payload_bytes)}{about}"


def link_text(link: CostModel) -> str:
    """Return α and β with their origin."""
    beta = link.beta_s_per_byte
    bandwidth = rate(1 / beta) if beta > 0 else "unlimited"
    text = f"α = {duration(link.alpha_s)}, β = {1e9 * beta:.3g} ns/B ({bandwidth})"
    return f"{text}, fitted to {listing(link.files)}: {link.series}."


def wrong_text(wrong: WrongChunk, names: Sequence[str]) -> str:
    """Describe a wrong chunk: rank, chunk, got and expected."""
    text = f"rank {wrong.rank}, chunk {names[wrong.chunk]}"
    if wrong.element is None:
        text += " is missing"
    elif wrong.got is not None:
        got, expected = distinct(wrong.got, wrong.expected)
        text += f", element {wrong.element}: got {got}, expected {expected}"
    return f"{text}."


def notes(report: TraceReport) -> Iterator[str]:
    """Yield notes for the reader."""
    op, world = report.op, report.world
    if op.reduce_op == "premul_sum":
        yield f"Before the first round every rank multiplies its data by {op.factor:g}."
    if report.spec.divides:
        yield f"After the last round every rank divides its result by {report.n}."
    if len(set(world.hosts)) > 1:
        yield "Times on each host start at its own first round."
    if report.wrong:
        yield "The schedule is right on paper, so this is a bug in the backend or in distdemo."


def verdict_text(report: TraceReport) -> str:
    """Return the verdict and the amount sent, in one line."""
    checked = sum(verification.checked for verification in report.verifications)
    if not report.ok:
        ranks = sorted({chunk.rank for chunk in report.wrong})
        wrong = sum(verification.wrong for verification in report.verifications)
        amounts = f"{plural(len(report.wrong), 'chunk')}, {wrong:,} of {checked:,} elements"
        return f"Wrong: {amounts}, on rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}."
    same = ", matching the formulas" if all(check.same for check in report.checks) else ""
    total = exact_size(report.counts.total_bytes)
    sent = f"{plural(report.messages, 'message')}, {total} in total{same}"
    right = f"{plural(checked, 'element')} on {plural(report.n, 'rank')} right"
    return f"Verified: {right}; {sent}."
