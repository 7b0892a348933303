"""Blocks of a trace, and of the list of algorithms."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from distdemo.schedules.contract import LETTERS
from distdemo.schedules.schedule import Counts
from distdemo.trace.records import AlgorithmCost, AlgorithmInfo, AlgorithmList, TraceReport
from distdemo.trace.view_picture import Picture
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    distinct,
    exact_size,
    plural,
    ranks_text,
    shape_text,
    short_size,
)
from distdemo.view.tables import Column, Grid, grid_of

COSTS = {"Rounds": "rounds", "Sent by a rank": "sent", "Busiest rank": "busiest", "Total": "total"}
"""Costs and the names of their formulas."""
SENT = "Sent: by the rank that sends most. Busiest: sent plus received."
HINT = "distdemo trace OP -a NAME shows one round by round; distdemo bench OP -a all times them."
BACK = (b"\x1b[D", b"\x1bOD", b"\x7f")  # left arrow, backspace
QUIT = (b"q", b"Q", b"\x04", b"")  # also Ctrl-D, and a terminal that was closed


# ---------------------------------------------------------------------------------------- a trace


def trace_view(report: TraceReport, sign: Signs, *, animate: bool = False) -> Iterator[Block]:
    """Yield setup, rounds, formulas and counts, and the verdict.

    Args:
        report: Report of a run.
        sign: Signs of the terminal.
        animate: True to show the rounds in place, by keys, if the terminal allows it.
    """
    yield Heading(title(report, sign))
    yield Paragraph(f"S = {payload_text(report)}, in {plural(len(report.chunk_names), 'chunk')}.")
    yield Paragraph(report.algorithm.summary)
    yield Paragraph(f"Source: {report.algorithm.source}.", colours.QUIET)
    yield Paragraph()

    def draw(console: Console) -> RenderableType:
        return Picture(report, console).draw()

    def play_rounds(console: Console) -> None:
        play(Picture(report, console), console)

    yield Drawing(draw, play_rounds if animate else None)
    yield cost_table(report)
    letters = f"S: {payload_text(report)}; n: ranks; trace list explains the other letters."
    yield Paragraph(f"{letters} {notes(report)}", colours.QUIET)
    for text in wrong_texts(report).values():
        yield Paragraph(text, colours.WRONG)
    yield Summary(verdict_text(report), report.ok)


def play(picture: Picture, console: Console) -> None:
    """Show all rounds in place: left and backspace go back, q quits, another key continues.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The terminal is restored.
    """
    last = len(picture.frames) - 1
    index = 0
    console.print(picture.draw_legend(), Text(), sep="\n")
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with _unbuffered(), live:
        while index <= last:
            status = f"{index}/{last}  any key: next · ←: back · q: quit"
            frame = picture.draw_frame(picture.frames[index])
            live.update(Group(*frame, Text(status, style=colours.QUIET)), refresh=True)
            keys = os.read(sys.stdin.fileno(), 16)  # several if they are pressed fast
            if keys[:1] in QUIT:
                return
            index = max(0, index - 1) if keys.startswith(BACK) else index + 1


@contextmanager
def _unbuffered() -> Iterator[None]:
    """Have the terminal pass on each key at once, without echo, and restore it.

    `typer.getchar` would discard a key that is pressed before it is called.
    """
    saved = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def title(report: TraceReport, sign: Signs) -> str:
    """Return op, algorithm, reduce op, root, ranks, backend, device, dtype and shape."""
    op, world = report.op, report.world.world
    parts = [op.op, report.algorithm.name]
    parts += [] if op.reduce_op is None else [op.reduce_op]
    parts += [] if op.root is None else [f"root {op.root}"]
    parts += [plural(report.n, "rank"), world.backend, world.device]
    return f" {sign.dot} ".join([*parts, shape_text(op.dtype, op.shape)])


def payload_text(report: TraceReport) -> str:
    """Return the payload, such as ``16 B, one rank's tensor``."""
    traffic = report.traffic
    about = f", {traffic.payload_is}" if traffic.payload_is else ""
    return f"{exact_size(traffic.payload_bytes)}{about}"


def cost_table(report: TraceReport) -> Grid:
    """Return a row per cost: its formula, the value of that, and the count."""

    def amount(counts: Counts, name: str) -> str:
        return (
            str(counts.rounds) if name == "rounds" else exact_size(getattr(counts, f"{name}_bytes"))
        )

    return grid_of(
        COSTS,
        (Column("Cost"), lambda label: label),
        (Column("Formula", folds=True), lambda label: report.algorithm.formulas[COSTS[label]]),
        (Column("Gives", right=True), lambda label: amount(report.by_formula, COSTS[label])),
        (Column("Counted", right=True), lambda label: amount(report.counts, COSTS[label])),
    )


def notes(report: TraceReport) -> str:
    """Return notes on the costs and the result."""
    text = f"{SENT} The formulas assume chunks of equal size."
    if report.op.reduce_op == "avg":
        text += f" After the last round every rank divides its result by {report.n}."
    return text


def wrong_texts(report: TraceReport) -> dict[int, str]:
    """Return a sentence with the first wrong element of each rank that has one."""
    texts = {}
    for rank in sorted(report.wrong_ranks):
        verification = report.verifications[rank]
        counts = f"{verification.wrong:,} of {plural(verification.checked, 'element')}"
        mismatch = verification.mismatches[0]
        got, expected = distinct(mismatch.got, mismatch.expected)
        place = f"piece {mismatch.piece}, index {', '.join(map(str, mismatch.index))}"
        texts[rank] = f"Rank {rank}: {counts} wrong; {place}: got {got}, expected {expected}."
    return texts


def verdict_text(report: TraceReport) -> str:
    """Return the verdict and the amount sent, in one line."""
    checked = sum(verification.checked for verification in report.verifications)
    ranks = report.wrong_ranks
    if ranks:
        wrong = sum(verification.wrong for verification in report.verifications)
        where = f"rank{'s' * (len(ranks) > 1)} {ranks_text(sorted(ranks))}"
        return f"Wrong: {wrong:,} of {plural(checked, 'element')}, on {where}."
    messages = sum(t.elements > 0 for played in report.rounds for t in played.transfers)
    sent = f"{plural(messages, 'message')}, {exact_size(report.counts.total_bytes)} in total"
    right = f"{plural(checked, 'element')} on {plural(report.n, 'rank')} right"
    return f"Verified: {right}; {sent}."


# --------------------------------------------------------------------------- the list of algorithms


def list_view(record: AlgorithmList, _: Signs) -> Iterator[Block]:
    """Yield one table per op. Its first algorithm is the default."""
    for op, group in groupby(record.algorithms, attrgetter("op")):
        infos = list(group)
        yield Heading(op.replace("_", "-"))
        yield grid_of(
            infos,
            (Column("Algorithm"), lambda info: Text(info.name, style="bold")),
            (Column("Rounds", folds=True), lambda info: info.formulas["rounds"]),
            (Column("Sent by a rank, max", folds=True), lambda info: info.formulas["sent"]),
            (Column("Total", folds=True), lambda info: info.formulas["total"]),
        )
        for info in infos:
            source = (f"\n  {info.source}.", colours.QUIET)
            yield Paragraph(Text.assemble((f"{info.name}: ", "bold"), info.summary, source))
        yield Paragraph()
    yield _count("algorithm", record.algorithms)
    letters = f"S: bytes of one rank's tensor, or of all n parts; {LETTERS}"
    yield Paragraph(f"{letters}\n{HINT}", colours.QUIET)


def costs_view(record: AlgorithmList, sign: Signs) -> Iterator[Block]:
    """Yield one table per op, with a row for each size and algorithm."""

    def bytes_of(name: str) -> Callable[[AlgorithmCost], str]:
        return lambda row: short_size(getattr(row.counts, name))

    for op, rows in groupby(record.costs, attrgetter("op")):
        ranks = plural(record.world_size or 0, "rank")
        yield Heading(f" {sign.dot} ".join([op.replace("_", "-"), ranks]))
        yield grid_of(
            rows,
            (Column("Size", right=True), lambda row: short_size(row.size_bytes)),
            (Column("Algorithm"), lambda row: Text(row.algorithm, style="bold")),
            (Column("Rounds", right=True), lambda row: f"{row.counts.rounds:,}"),
            (Column("Sent", right=True), bytes_of("sent_bytes")),
            (Column("Busiest", right=True, drop_order=4), bytes_of("busiest_bytes")),
            (Column("Total", right=True, drop_order=1), bytes_of("total_bytes")),
        )
        yield Paragraph()
    yield _count("cost", record.costs)
    size = "Size: bytes of one rank's tensor, or of all n parts."
    yield Paragraph(f"Values of the formulas, for equal chunks. {size} {SENT}", colours.QUIET)


def _count(noun: str, rows: Sequence[AlgorithmInfo | AlgorithmCost]) -> Summary:
    """Return the number of rows and of their ops."""
    ops = {row.op for row in rows}
    return Summary(f"{plural(len(rows), noun)}, {plural(len(ops), 'operation')}.", None)
