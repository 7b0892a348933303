"""A trace in the terminal: round by round who sends what to whom, and what everybody then holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.trace.records import Counts, Moment, TraceReport, Transfer
from distdemo.trace.texts import (
    COSTS,
    amount,
    fault_words,
    handed_over,
    letters_line,
    mark,
    notes,
    plain,
    sameness,
    wrong_words,
)
from distdemo.trace.view_cells import (
    Frame,
    Look,
    arrow,
    arrows,
    bar,
    chunk_names,
    frames,
    spans,
    telling,
)
from distdemo.trace.view_holdings import Form, HoldingsView
from distdemo.view import colours
from distdemo.view.console import as_text, signs
from distdemo.view.format import duration, exact_size, plural, shape_text
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

MANY = 16  # wrong chunks that are named
STYLES = {"same": "", "different": colours.WRONG, "unequal": "yellow"}


def table(
    report: TraceReport,
    console: Console,
    *,
    ranks: frozenset[int] | None = None,
    every: bool = False,
    speed: float | None = None,
) -> Group:
    """The whole view: what ran, every round, formulas beside counts, verdict.

    Args:
        report: of a run or of paper.
        console: that it will be printed on; its width and encoding matter.
        ranks: those to show; None: all of up to 16, else the ends and whatever is wrong.
        every: print all rounds, however many there are.
        speed: play them in place, where that can be seen; None: print them.
    """
    if speed is not None:
        from distdemo.trace.view_animate import can_play, play

        if can_play(report, console):
            play(report, console, speed, ranks)
            return Group(*ending(report, console))
    return Group(
        *preamble(report, console),
        *Rounds(report, console, ranks).all(every=every),
        Text(),
        *ending(report, console),
    )


def summary(report: TraceReport, console: Console) -> Text:
    """Right or wrong, in one line, and what was sent."""
    sign = signs(console)
    if report.ok:
        return Text(f"{sign.right} {_right(report)}", style=colours.RIGHT)
    ranks = sorted({each.rank for each in report.wrong})
    who = ", ".join(map(str, ranks[:8])) + (sign.more if len(ranks) > 8 else "")
    wrong = sum(each.wrong for each in report.verifications)
    checked = sum(each.checked for each in report.verifications)
    elements = f", {wrong:,} of {checked:,} elements," if wrong else ""
    where = f"on {'rank' if len(ranks) == 1 else 'ranks'} {who}"
    told = f"Wrong: {plural(len(report.wrong), 'chunk')}{elements} {where}."
    return Text(f"{sign.wrong} {told}", style=colours.WRONG)


def _right(report: TraceReport) -> str:
    counts = report.counts
    sent = f"{plural(counts.messages, 'message')}, {exact_size(counts.total_bytes)} in all"
    same = all(each.same for each in report.checks)
    formula = ", as the formulas say" if same else ", not what the formulas say"
    if not all(each.exact for each in report.checks):
        formula = "; the formulas take all chunks for equal"
    if report.world is None:
        return f"On paper: every chunk is complete where it must be; {sent}{formula}."
    checked = sum(each.checked for each in report.verifications)
    elements = f"{plural(checked, 'element')} on {plural(report.n, 'rank')} right"
    return f"Verified: {elements}; {sent}{formula}."


def _page(report: TraceReport) -> str:
    from distdemo.trace.page import page

    return page(report)


FILES = {
    ".html": _page,
    ".txt": lambda report: as_text(lambda console: table(report, console, every=True)),
}
"""What ``--output`` writes by the file's ending, beside JSON."""


# ------------------------------------------------------------------------------------ before them


def title(report: TraceReport, dot: str) -> str:
    """Op, algorithm, reduce op, root, ranks, where, dtype and shape."""
    op, world = report.spec.op, report.world
    told = [op.op, report.algorithm.name]
    told += [] if op.reduce_op is None else [op.reduce_op]
    told += [] if op.root is None else [f"root {op.root}"]
    told.append(plural(op.group_size, "rank"))
    told += [world.world.backend, world.world.device] if world else ["on paper"]
    return f" {dot} ".join([*told, shape_text(op.dtype, op.shape)])


def preamble(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """What ran, how it works and who says so."""
    sign = signs(console)
    yield heading(title(report, sign.dot))
    payload = f"B = {exact_size(report.traffic.payload_bytes)}, {report.traffic.payload_is}"
    yield Text(f"{payload}, in {_cut(report.chunk_elements)}.")
    yield Text(plain(report.algorithm.summary, sign))
    yield Text(plain(f"Source: {report.algorithm.source}.", sign), style=colours.QUIET)
    if report.spec.fault:
        yield Text(fault_words(report.spec.fault), style=colours.WRONG)


def _cut(elements: Sequence[int]) -> str:
    """``4 chunks of 1 element``, ``6 chunks: 4 of 2 elements, 2 of 1``."""
    kinds = sorted(set(elements), reverse=True)
    if len(kinds) == 1:
        return f"{plural(len(elements), 'chunk')} of {plural(kinds[0], 'element')}"
    first, *rest = ((elements.count(kind), kind) for kind in kinds)
    told = [f"{first[0]:,} of {plural(first[1], 'element')}"]
    told += [f"{count:,} of {kind:,}" if kind else f"{count:,} empty" for count, kind in rest]
    return f"{plural(len(elements), 'chunk')}: {', '.join(told)}"


# -------------------------------------------------------------------------------------- the rounds


class Rounds:
    """All frames of a trace, drawn in the same columns.

    Attributes:
        frames: the start, and each round.
    """

    def __init__(
        self, report: TraceReport, console: Console, ranks: frozenset[int] | None = None
    ) -> None:
        self._report, self._console = report, console
        self._look = Look.of(report, console)
        self.frames = frames(report)
        self._holdings = HoldingsView(self._look, self.frames, ranks, console.width)

    def all(self, *, every: bool) -> Iterator[RenderableType]:
        """The legend, then frame by frame, a blank line before each."""
        yield Text()
        yield self.legend()
        before = 0
        for frame in self.frames if every else telling(self._report, self.frames):
            yield Text()
            if isinstance(frame, int):
                last = before + frame
                named = f"Round {last} is" if frame == 1 else f"Rounds {before + 1} to {last} are"
                yield Text(f"{named} left out; --output FILE.txt has all.", style=colours.QUIET)
            else:
                yield from self.draw(frame)
                before = frame.number

    def legend(self) -> Table:
        """What the signs mean."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold", style=colours.QUIET)
        for sign, words in _legend(self._look, self._holdings.form, self.frames):
            grid.add_row(sign, words)
        return grid

    def draw(self, frame: Frame, *, steady: bool = False) -> Iterator[RenderableType]:
        """Title, arrows and what everybody holds.

        Args:
            frame: which.
            steady: fill up with blank lines, so that the table of every frame is at one place.
        """
        told = ["Before the first round"]
        if frame.round is not None:
            told = [f"Round {frame.number} of {len(self._report.rounds)}", frame.round.phase]
            told.append(_times(frame.moments))
        yield heading(f" {self._look.sign.dot} ".join(filter(None, told)))
        lines = self._messages(frame)
        yield from lines
        if steady:
            yield from [Text()] * (self._most_lines - _height(lines))
        yield self._holdings.draw(frame)

    def _messages(self, frame: Frame) -> list[Text]:
        found, fault = [], self._report.spec.fault
        if fault and fault.round == frame.number:
            found.append(Text(fault_words(fault), style=colours.WRONG))
        if frame.round is not None:
            shown = self._holdings.shown
            ranks = None if len(shown) == self._look.n else shown
            found.append(arrows(self._look, frame.transfers, ranks, self._console.width))
        return found

    @cached_property
    def _most_lines(self) -> int:
        """Lines between title and table, of the frame that needs most."""
        return max(_height(self._messages(frame)) for frame in self.frames)


def _height(texts: Sequence[Text]) -> int:
    return sum(text.plain.count("\n") + 1 for text in texts)


def _times(moments: Sequence[Moment]) -> str:
    """The quickest rank's and the slowest one's time; of those that had a message."""
    times = {rank: m.ended_s - m.began_s for rank, m in enumerate(moments) if m.ended_s > m.began_s}
    if not times:
        return ""
    slowest = max(times, key=lambda rank: times[rank])
    least, most = duration(min(times.values())), duration(times[slowest])
    if least == most:
        return most
    if least.split()[1] == most.split()[1]:
        least = least.split()[0]
    return f"{least} to {most}, rank {slowest} slowest"


def _legend(look: Look, form: Form | None, every: Sequence[Frame]) -> Iterator[tuple[Text, str]]:
    """Sign and words of what occurs; the first arrow of each kind as an example."""
    examples: dict[tuple[bool, str], Transfer] = {}
    for frame in every:
        for each in frame.transfers:
            if each.elements:
                examples.setdefault((not each.reduce, each.content), each)
    for _, each in sorted(examples.items()):
        done = "combined with what is there" if each.reduce else "kept there as it came"
        yield arrow(look, each), f"{_said(look, each)}, {done}"
    then = "; in brackets its first number"
    if form is not None:
        then = "; then its first numbers" if form.numbers else "; no room for its numbers here"
    if look.reduced and look.n > 1:
        some = tuple(rank for rank in range(look.n) if rank != 1) if look.n > 2 else (0,)
        told = spans(some, look.mark)
        if form is not None and form.bar:
            told = Text.assemble(bar(look, some), " ", told)
        whose = f"what {look.n - 1} of the {look.n} ranks contribute, all but rank 1"
        whose = "rank 0's contribution" if look.n == 2 else whose
        yield told, f"holds {whose}{then}"
        yield Text("all", style="bold"), "holds everybody's contribution"
    elif not look.named:
        yield spans((0,), look.mark), f"comes from rank 0{then}"
    right = Text(look.mark.right, style=f"bold {colours.RIGHT}")
    yield right, "is complete, and where it must be at the end"
    least = min((len(chunks) for frame in every for chunks in frame.held), default=0)
    if form is not None and least < len(look.names):
        yield Text(look.mark.absent, style=colours.QUIET), "is not held"
    changes = {how for frame in every for how in frame.changed.values()}
    if True in changes:
        yield Text(look.mark.added, style="bold"), "something was combined with it in this round"
    if False in changes:
        yield Text(look.mark.came, style="bold"), "came in this round"
    if look.wrong:
        yield Text(look.mark.wrong, style=colours.WRONG), "is not what it should be by now"
    if any(frame.moments for frame in every):
        yield Text("µs, ms"), "of a round: mostly waiting for others; --compare times whole runs"


def _said(look: Look, transfer: Transfer) -> str:
    noun = "chunk" if len(transfer.chunks) == 1 else "chunks"
    what = {
        "held": "",
        "original": " as it was before the first round",
        "last": " as it got it last",
    }
    named = f"{noun} {chunk_names(look, transfer.chunks)}"
    return f"rank {transfer.src} sends {named}{what[transfer.content]}"


# -------------------------------------------------------------------------------------- after them


def ending(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """Formulas beside counts, notes, what is wrong, and the verdict."""
    if not report.rounds:
        yield Text("No rounds: with one rank there is nobody to send to.")
    yield from _checks(report, console)
    yield from (Text(note, style=colours.QUIET) for note in notes(report))
    look = Look.of(report, console)
    for each in report.wrong[:MANY]:
        yield Text(wrong_words(each, look.names, look.mark.to), style=colours.WRONG)
    hidden = len(report.wrong) - MANY
    if hidden > 0:
        yield Text(f"{look.sign.more} {plural(hidden, 'wrong chunk')} more", style=colours.QUIET)
    yield summary(report, console)


def _checks(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """Rounds and bytes: the formula, what it gives, what was counted, and what was handed over."""
    sign, handed = signs(console), handed_over(report)
    heads = [Column("Cost"), Column("Formula", folds=True), Column("Gives", right=True)]
    heads += [Column("Counted", right=True)]
    heads += [Column("Handed over", right=True)] if handed else []
    rows: list[list[Cell]] = []
    for check in report.checks:
        how = sameness(check)
        counted = f"{amount(check, check.counted)} {mark(how, sign)}"
        rows.append([COSTS[check.name], plain(check.formula, sign), amount(check, check.value)])
        rows[-1].append(Text(counted, style=STYLES[how]))
        if check.name in handed:
            same = "same" if handed[check.name] == check.counted else "different"
            text = f"{exact_size(handed[check.name])} {mark(same, sign)}"
            rows[-1].append(Text(text, style=STYLES[same]))
        elif handed:
            rows[-1].append(Text(sign.none, style=colours.QUIET))
    yield fitting(console, lambda _: Grid(heads, rows))
    for text, style in _below(report):
        yield Text(plain(text, sign), style=style)


def _below(report: TraceReport) -> Iterator[tuple[str, str]]:
    """Sentences under the table, each with its style."""
    yield letters_line(report.checks, report.traffic), colours.QUIET
    yield (
        f"Sent: by the rank that sends most. {busiest_words(report.counts, report.n)}",
        colours.QUIET,
    )
    how = {sameness(check) for check in report.checks}
    if "unequal" in how:
        least, most = min(report.chunk_elements), max(report.chunk_elements)
        told = (
            f"≈: the formula is of equal chunks; here they have {least:,} to {most:,} elements, and"
        )
        yield f"{told} the count is right.", STYLES["unequal"]
    if "different" in how:
        yield "≠: the schedule does not do what its formula says.", STYLES["different"]
    handed, counted = sum(report.handed_bytes), report.counts.total_bytes
    if report.handed_bytes and handed != counted:
        told = f"≠: {exact_size(handed)} were handed to the backend, and {exact_size(counted)} is"
        yield f"{told} what the schedule sends.", STYLES["different"]


def busiest_words(counts: Counts, n: int) -> str:
    """Which rank the busiest is; sent and received count together."""
    if counts.busiest_ranks == n:
        return "Busiest, sent and received together: all ranks alike."
    others = counts.busiest_ranks - 1
    more = f" and {plural(others, 'other')}" if others else ""
    return f"Busiest, sent and received together: rank {counts.busiest_rank}{more}."
