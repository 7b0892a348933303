"""What the signs of a trace mean: only those that occur, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from distdemo.trace.scheduling import Transfer
from distdemo.trace.view_arrows import arrow, named
from distdemo.trace.view_board import Form
from distdemo.trace.view_cells import Look, bar, spans
from distdemo.trace.view_frames import Frame
from distdemo.view import colours

Line = tuple[Text, str]


def legend(look: Look, form: Form | None, frames: Sequence[Frame]) -> Table:
    """Sign and words, line by line.

    Args:
        look: of the trace.
        form: of its cells; None: they are listed.
        frames: all that are drawn.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style=colours.QUIET)
    lines = (
        *_messages(look, frames),
        *_contents(look, form, frames),
        *_changes(look, frames),
        *_times(frames),
    )
    for sign, words in lines:
        table.add_row(sign, words)
    return table


def _messages(look: Look, frames: Sequence[Frame]) -> Iterator[Line]:
    """The first arrow of each kind as an example."""
    sent = [each for frame in frames if frame.step for each in frame.step.transfers]
    sent = [each for each in sent if each.elements]
    own = ", as it was before the first round" if all(each.original for each in sent) else ""
    for reduce in (True, False):
        found = next((each for each in sent if each.reduce == reduce), None)
        if found is not None:
            yield arrow(look, found), f"{_said(look, found)}{own}, {_done(reduce=reduce)}"


def _said(look: Look, transfer: Transfer) -> str:
    noun = "chunk" if len(transfer.chunks) == 1 else "chunks"
    return f"rank {transfer.src} sends {noun} {named(look, transfer.chunks)}"


def _done(*, reduce: bool) -> str:
    return "combined with what is there" if reduce else "kept there as it came"


def _contents(look: Look, form: Form | None, frames: Sequence[Frame]) -> Iterator[Line]:
    if look.reduced and look.n > 1:
        some = tuple(rank for rank in range(look.n) if rank != 1) if look.n > 2 else (0,)
        yield _some(look, form, some), f"holds {_of(some, look.n)}{_then(form)}"
        yield Text("all", style="bold"), "holds everybody's contribution"
    elif not look.named:
        yield spans((0,), look.mark), f"comes from rank 0{_then(form)}"
    yield (
        Text(look.mark.right, style=f"bold {colours.RIGHT}"),
        "is complete, and where it has to be at the end",
    )
    held = {len(chunks) for frame in frames for chunks in frame.held}
    if form is not None and min(held, default=0) < len(look.names):
        yield Text(look.mark.absent, style=colours.QUIET), "is not held"


def _some(look: Look, form: Form | None, ranks: Sequence[int]) -> Text:
    """An example of a chunk that is not complete."""
    told = spans(ranks, look.mark)
    return Text.assemble(bar(look, ranks), " ", told) if form is not None and form.bar else told


def _of(ranks: Sequence[int], n: int) -> str:
    """``what 3 of the 4 ranks contribute, all but rank 1``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s contribution"
    return f"what {n - 1} of the {n} ranks contribute, all but rank 1"


def _then(form: Form | None) -> str:
    if form is not None and not form.numbers:
        return "; no room for its numbers here"
    return "; then its first numbers" if form else "; in brackets its first number"


def _changes(look: Look, frames: Sequence[Frame]) -> Iterator[Line]:
    changes = {how for frame in frames for how in frame.changed.values()}
    if True in changes:
        yield Text(look.mark.added, style="bold"), "something was combined with it in this round"
    if False in changes:
        yield Text(look.mark.came, style="bold"), "came in this round"
    if look.wrong:
        yield Text(look.mark.wrong, style=colours.WRONG), "is not what it should be by now"


def _times(frames: Sequence[Frame]) -> Iterator[Line]:
    if any(frame.moments for frame in frames):
        yield Text("µs, ms"), "of a round: mostly waiting for others; --compare times whole runs"
