"""The messages of a round as arrows: ``0 ═[2]═▶ 1`` is combined there, ``0 ─[2]─▶ 1`` copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from distdemo.trace.scheduling import Transfer
from distdemo.trace.view_cells import Look, numbered
from distdemo.view import colours
from distdemo.view.numbers import plural

MANY = 6  # chunks of a message up to which those with names of their own are named
GAP = 3  # columns between two arrows
INDENT = 2  # columns before a line of them


def arrows(
    look: Look, transfers: Sequence[Transfer], ranks: frozenset[int] | None, width: int
) -> Text:
    """All messages that carry anything, side by side in as many lines as they need.

    Args:
        look: of the trace.
        transfers: of the round.
        ranks: messages from or to these are shown; None: all.
        width: columns.
    """
    sent = [each for each in transfers if each.elements]
    shown = [each for each in sent if ranks is None or {each.src, each.dst} & ranks]
    drawn = list(_aligned([arrow(look, each) for each in shown]))
    if len(shown) < len(sent):
        left_out = f"{look.sign.more} {plural(len(sent) - len(shown), 'message')} more"
        drawn.append(Text(left_out, style=colours.QUIET))
    if len(sent) < len(transfers):
        empty = plural(len(transfers) - len(sent), "empty message")
        drawn.append(Text(f"{empty} not sent", style=colours.QUIET))
    if not drawn:
        drawn.append(Text("nobody sends anything", style=colours.QUIET))
    return Text("\n").join(flow(drawn, width))


def arrow(look: Look, transfer: Transfer) -> Text:
    """One message: sender, chunks, receiver."""
    mark = look.mark
    line = mark.double if transfer.reduce else mark.single
    return Text.assemble(
        (str(transfer.src), colours.of_rank(transfer.src)),
        f" {line}[",
        (named(look, transfer.chunks), "bold"),
        f"]{line}{mark.head} ",
        (str(transfer.dst), colours.of_rank(transfer.dst)),
    )


def named(look: Look, chunks: Sequence[int]) -> str:
    """The chunks as people call them: ``0–3 5``, ``0→1 2→1``; of many with names how many."""
    if all(look.names[each] == str(each) for each in chunks):
        return numbered(tuple(chunks) if len(chunks) < 3 else tuple(sorted(chunks)), look.mark)
    if len(chunks) <= MANY:
        return " ".join(look.names[each] for each in chunks)
    return f"{look.names[chunks[0]]} {look.sign.more} {len(chunks)} chunks"


def _aligned(drawn: Sequence[Text]) -> Iterator[Text]:
    """All as wide as the widest, so that they stand below each other."""
    widest = max((each.cell_len for each in drawn), default=0)
    for each in drawn:
        each.pad_right(widest - each.cell_len)
        yield each


def flow(items: Iterable[Text], width: int, indent: int = INDENT, gap: int = GAP) -> list[Text]:
    """Lines of as many items as fit, each line indented."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + gap + item.cell_len <= width:
            lines[-1] = lines[-1] + Text(" " * gap) + item
        else:
            lines.append(Text(" " * indent) + item)
    for line in lines:
        line.rstrip()
    return lines
