"""Blocks of a trace, and of the list of algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.schedules.count import AlgorithmInfo
from distdemo.trace.records import AlgorithmList, TraceReport
from distdemo.trace.texts import (
    LETTERS,
    agreement_sign,
    cost_table,
    formula,
    notes,
    payload_text,
    title,
    verdict_text,
    wrong_text,
)
from distdemo.trace.view_picture import Picture
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Heading, Paragraph, Summary, View, to_text
from distdemo.view.console import PLAIN_WIDTH, Signs, in_memory
from distdemo.view.format import exact_size, plural
from distdemo.view.tables import Cell, Column, Grid

MOST_WRONG = 16  # wrong chunks that are listed
SLIDE_COLUMNS = (80, 105, 130)  # widths at which a table is tried before a list
STYLES = {"≠": colours.WRONG, "≈": colours.UNSURE}
COLUMNS = {"Rounds": "rounds", "Sent by a rank, max": "sent", "Total": "total"}
"""Columns of the list of algorithms, and the formulas in them."""
HINT = "distdemo trace OP -a NAME shows one round by round; distdemo trace compare OP runs all."


def trace_view(
    report: TraceReport,
    sign: Signs,
    *,
    ranks: frozenset[int] | None = None,
    every: bool = False,
    speed: float | None = None,
) -> Iterator[Block]:
    """Yield setup, rounds, formulas and counts, and the verdict.

    Args:
        report: Report of a run or a simulation.
        sign: Signs of the terminal.
        ranks: Ranks to show. None: all of up to 16, otherwise both ends and those with errors.
        every: True to show all rounds, however many there are.
        speed: Speed at which the rounds are played if the terminal allows it. None: print them.
    """
    yield Heading(title(report, sign))
    least, most = min(report.chunk_elements), max(report.chunk_elements)
    each = plural(most, "element") if least == most else f"{least:,} to {plural(most, 'element')}"
    chunks = plural(len(report.chunk_elements), "chunk")
    yield Paragraph(f"S = {payload_text(report.traffic)}, in {chunks} of {each}.")
    yield Paragraph(report.algorithm.summary)
    yield Paragraph(f"Source: {report.algorithm.source}.", colours.QUIET)
    yield Paragraph()

    def draw(console: Console) -> RenderableType:
        return Picture(report, console, ranks).draw(every=every)

    def animate(console: Console) -> None:
        from distdemo.trace.view_animation import play

        play(Picture(report, console, ranks), console, speed or 1.0)

    yield Drawing(draw, animate if speed and report.rounds else None)
    yield from _costs(report, sign)
    for note in notes(report):
        yield Paragraph(note, colours.QUIET)
    for wrong in report.wrong[:MOST_WRONG]:
        yield Paragraph(wrong_text(wrong, report.chunk_names), colours.WRONG)
    if len(report.wrong) > MOST_WRONG:
        more = plural(len(report.wrong) - MOST_WRONG, "more wrong chunk")
        yield Paragraph(more, colours.QUIET)
    yield Summary(verdict_text(report), report.ok)


def trace_text(report: TraceReport, ranks: frozenset[int] | None = None) -> str:
    """Return the content of a text file, with every round."""
    return to_text(partial(trace_view, report, ranks=ranks, every=True))


def trace_slides(report: TraceReport, ranks: frozenset[int] | None = None) -> dict[str, View]:
    """Return one slide per round, and one of the start that explains the signs, by ``-00``, ..."""

    @cache
    def picture(width: int) -> Picture:
        return Picture(report, in_memory(width), ranks)

    columns = next((each for each in SLIDE_COLUMNS if picture(each).is_table), 0)

    def slide(index: int, report: TraceReport, sign: Signs) -> Iterator[Block]:
        yield Heading(title(report, sign))
        yield Paragraph()
        yield Drawing(
            lambda console: Group(*picture(console.width).draw_still(index)), slide_columns=columns
        )
        if index == 0:
            yield Paragraph()
            yield Drawing(lambda console: picture(console.width).draw_legend())
        if index == len(report.rounds):
            yield Paragraph()
            yield Summary(verdict_text(report), report.ok)

    return {
        f"-{index:02}": partial(slide, index) for index in picture(PLAIN_WIDTH).default_rounds()
    }


def _costs(report: TraceReport, sign: Signs) -> Iterator[Block]:
    """Yield formulas, their values, counts and bytes handed to the backend."""
    if not report.rounds:
        yield Paragraph("No rounds: there is no other rank to send to.")
    heads, rows = cost_table(report, sign)
    columns = [Column(heads[0]), Column(heads[1], folds=True)]
    columns += [Column(head, right=True) for head in heads[2:]]
    yield Grid(columns, [[Text(cell, STYLES.get(cell[-1], "")) for cell in row] for row in rows])
    letters = f"S: {payload_text(report.traffic)}; n: ranks; trace list explains the other letters."
    yield Paragraph(letters, colours.QUIET)
    sent = "Sent: by the rank that sends most. Busiest: sent plus received."
    if report.handed_bytes:
        sent += " Handed over: bytes that the ranks passed to the backend in this run."
    yield Paragraph(sent, colours.QUIET)
    marks = {agreement_sign(check) for check in report.checks}
    if "≈" in marks:
        equal = "≈: the formula assumes equal chunks, and these are unequal."
        yield Paragraph(equal, STYLES["≈"])
    if "≠" in marks:
        yield Paragraph("≠: the schedule doesn't match its formula.", STYLES["≠"])
    handed, counted = sum(report.handed_bytes), report.counts.total_bytes
    if report.handed_bytes and handed != counted:
        sends = f"the schedule sends {exact_size(counted)}."
        text = f"≠: {exact_size(handed)} were handed to the backend; {sends}"
        yield Paragraph(text, STYLES["≠"])


def list_view(record: AlgorithmList, sign: Signs) -> Iterator[Block]:
    """Yield one table per op. Its first algorithm is the default."""
    by_op: dict[str, list[AlgorithmInfo]] = {}
    for info in record.algorithms:
        by_op.setdefault(info.op, []).append(info)
    for op, infos in by_op.items():
        yield Heading(op.replace("_", "-"))
        grid = Grid([Column("Algorithm"), *(Column(head, folds=True) for head in COLUMNS)])
        for info in infos:
            formulas: list[Cell] = [formula(info.formulas[name], sign) for name in COLUMNS.values()]
            grid.rows.append([Text(info.name, style="bold"), *formulas])
        yield grid
        for info in infos:
            source = (f"\n  {info.source}.", colours.QUIET)
            yield Paragraph(Text.assemble((f"{info.name}: ", "bold"), info.summary, source))
        yield Paragraph()
    letters = f"S: bytes of one rank's tensor, or of all n parts; {LETTERS}"
    yield Paragraph(letters, colours.QUIET)
    yield Paragraph(HINT, colours.QUIET)
