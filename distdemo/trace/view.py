"""Blocks of a trace, and of the list of algorithms."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from time import sleep

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from distdemo.schedules.contract import LETTERS
from distdemo.schedules.count import AlgorithmInfo
from distdemo.trace.records import AlgorithmCost, AlgorithmList, TraceReport
from distdemo.trace.texts import (
    agreement_sign,
    cost_table,
    link_text,
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
from distdemo.view.format import duration, exact_size, plural, short_size
from distdemo.view.tables import Cell, Column, Grid

MOST_WRONG = 16  # wrong chunks that are listed
SLIDE_COLUMNS = (80, 105, 130)  # widths at which a table is tried before a list
STYLES = {"≠": colours.WRONG, "≈": colours.UNSURE}
COLUMNS = {"Rounds": "rounds", "Sent by a rank, max": "sent", "Total": "total"}
"""Columns of the list of algorithms, and the formulas in them."""
HINT = "distdemo trace OP -a NAME shows one round by round; distdemo bench OP -a all times them."
COSTS_NOTE = (
    "Values of the formulas, for equal chunks. Size: bytes of one rank's tensor, or of all n "
    "parts. Sent: by the rank that sends most. Busiest: sent plus received."
)
MODEL_NOTE = (
    "Time: α per round plus β per byte of its largest message. It assumes that no link is shared "
    "and that reducing is free."
)
STAR = "★"
ROUND_S = 1.2  # seconds that each round is shown at speed 1
BAR_COLUMNS = 20  # columns of the bar of rounds
BACK = (b"\x1b[D", b"\x1bOD", b"\x7f")  # left arrow, backspace
QUIT = (b"q", b"Q", b"\x04", b"")  # also Ctrl-D, and a terminal that was closed


def trace_view(
    report: TraceReport,
    sign: Signs,
    *,
    ranks: frozenset[int] | None = None,
    every: bool = False,
    player: Callable[[Picture, Console], None] | None = None,
) -> Iterator[Block]:
    """Yield setup, rounds, formulas and counts, and the verdict.

    Args:
        report: Report of a run.
        sign: Signs of the terminal.
        ranks: Ranks to show. None: all of up to 16, otherwise both ends and those with errors.
        every: True to show all rounds, however many there are.
        player: Function that shows the rounds in place if the terminal allows it, such as `play`.
    """
    yield Heading(title(report, sign))
    least = min(report.chunk_elements)
    most = plural(max(report.chunk_elements), "element")
    size = most if least == max(report.chunk_elements) else f"{least:,} to {most}"
    chunks = plural(len(report.chunk_elements), "chunk")
    yield Paragraph(f"S = {payload_text(report.traffic)}, in {chunks} of {size}.")
    yield Paragraph(report.algorithm.summary)
    yield Paragraph(f"Source: {report.algorithm.source}.", colours.QUIET)
    yield Paragraph()

    def draw(console: Console) -> RenderableType:
        return Picture(report, console, ranks).draw(every=every)

    def play_rounds(console: Console) -> None:
        if player is not None:
            player(Picture(report, console, ranks), console)

    yield Drawing(draw, play_rounds if player and report.rounds else None)
    yield from _costs(report, sign)
    for note in notes(report):
        yield Paragraph(note, colours.QUIET)
    for wrong in report.wrong[:MOST_WRONG]:
        yield Paragraph(wrong_text(wrong, report.chunk_names), colours.WRONG)
    if len(report.wrong) > MOST_WRONG:
        more = plural(len(report.wrong) - MOST_WRONG, "more wrong chunk")
        yield Paragraph(more, colours.QUIET)
    yield Summary(verdict_text(report), report.ok)


def play(picture: Picture, console: Console, *, speed: float | None = None) -> None:
    """Show all rounds in place: by keys, or at a speed.

    Args:
        picture: Picture of the trace.
        console: Terminal.
        speed: Speed at which the rounds follow each other; 1 shows each for 1.2 s. None: left and
            backspace show the round before, q quits, another key shows the next round; without a
            terminal for input, speed 1.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The terminal is restored.
    """
    last = len(picture.frames) - 1
    index = 0
    by_keys = speed is None and sys.stdin is not None and sys.stdin.isatty()
    console.print(picture.draw_legend(), Text(), sep="\n")
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with _unbuffered() if by_keys else nullcontext(), live:
        while index <= last:
            done = round(BAR_COLUMNS * index / last)
            status = f"{'━' * done}{'╌' * (BAR_COLUMNS - done)} {index}/{last}"
            status += "  any key: next · ←: back · q: quit" if by_keys else ""
            frame = (*picture.draw_still(index), Text(status, style=colours.QUIET))
            live.update(Group(*frame), refresh=True)
            keys = b" "
            if by_keys:
                keys = os.read(sys.stdin.fileno(), 16)  # several if they are pressed fast
            else:
                sleep(ROUND_S / (speed or 1.0))
            if keys[:1] in QUIT:
                break
            index = max(0, index - 1) if keys.startswith(BACK) else index + 1


@contextmanager
def _unbuffered() -> Iterator[None]:
    """Have the terminal pass on each key at once, without echo, and restore it."""
    saved = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def trace_text(report: TraceReport, ranks: frozenset[int] | None = None) -> str:
    """Return the content of a text file, with every round."""
    return to_text(partial(trace_view, report, ranks=ranks, every=True))


def trace_slides(report: TraceReport, ranks: frozenset[int] | None = None) -> dict[str, View]:
    """Return one slide per round, and one of the start that explains the signs, by ``-00``, ..."""

    @cache
    def picture(width: int) -> Picture:
        return Picture(report, in_memory(width), ranks)

    columns = next((width for width in SLIDE_COLUMNS if picture(width).is_table), 0)

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


def list_view(record: AlgorithmList, _: Signs) -> Iterator[Block]:
    """Yield one table per op. Its first algorithm is the default."""
    by_op: dict[str, list[AlgorithmInfo]] = {}
    for info in record.algorithms:
        by_op.setdefault(info.op, []).append(info)
    for op, infos in by_op.items():
        yield Heading(op.replace("_", "-"))
        grid = Grid([Column("Algorithm"), *(Column(head, folds=True) for head in COLUMNS)])
        for info in infos:
            formulas: list[Cell] = [info.formulas[name] for name in COLUMNS.values()]
            grid.rows.append([Text(info.name, style="bold"), *formulas])
        yield grid
        for info in infos:
            source = (f"\n  {info.source}.", colours.QUIET)
            yield Paragraph(Text.assemble((f"{info.name}: ", "bold"), info.summary, source))
        yield Paragraph()
    letters = f"S: bytes of one rank's tensor, or of all n parts; {LETTERS}"
    yield Paragraph(letters, colours.QUIET)
    yield Paragraph(HINT, colours.QUIET)


def costs_view(record: AlgorithmList, sign: Signs) -> Iterator[Block]:
    """Yield one table per op, with a row for each size and algorithm."""
    by_op: dict[str, list[AlgorithmCost]] = {}
    for row in record.costs:
        by_op.setdefault(row.op, []).append(row)
    for op, rows in by_op.items():
        ranks = plural(record.world_size or 0, "rank")
        yield Heading(f" {sign.dot} ".join([op.replace("_", "-"), ranks]))
        yield _costs_grid(rows)
        changes = record.crossovers.get(op, ())
        if changes:
            parts = [f"{change.below} up to {short_size(change.size_bytes)}" for change in changes]
            text = f"{', '.join(parts)}, {changes[-1].above} above"
            yield Paragraph(f"{STAR} Fastest by the α–β model: {text}.")
        if op in record.links:
            yield Paragraph(link_text(record.links[op]), colours.QUIET)
        yield Paragraph()
    yield Paragraph(COSTS_NOTE, colours.QUIET)
    if record.links:
        yield Paragraph(MODEL_NOTE, colours.QUIET)


def _costs_grid(rows: Sequence[AlgorithmCost]) -> Grid:
    """Return the table of one op; the fastest algorithm at each size has a star."""
    columns = [Column("Size", right=True), Column("Algorithm"), Column("Rounds", right=True)]
    columns += [Column("Sent", right=True), Column("Busiest", right=True, drop_order=4)]
    columns += [Column("Total", right=True, drop_order=1)]
    timed = rows[0].predicted_s is not None
    columns += [Column("Time", right=True)] if timed else []
    least: dict[int, float] = {}
    for row in rows:
        if row.predicted_s is not None:
            best = least.get(row.size_bytes, row.predicted_s)
            least[row.size_bytes] = min(best, row.predicted_s)
    grid = Grid(columns)
    for row in rows:
        fastest = timed and row.predicted_s == least[row.size_bytes]
        counts = row.counts
        amounts = (counts.sent_bytes, counts.busiest_bytes, counts.total_bytes)
        name = f"{row.algorithm} {STAR}" if fastest else row.algorithm
        cells: list[Cell] = [
            short_size(row.size_bytes),
            Text(name, style="bold"),
            f"{counts.rounds:,}",
            *map(short_size, amounts),
        ]
        grid.rows.append([*cells, duration(row.predicted_s)] if row.predicted_s else cells)
    return grid
