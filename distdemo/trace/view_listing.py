"""What every rank holds, as a list: where a table has no room, or would be mostly holes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from distdemo.trace.view_arrows import flow, named
from distdemo.trace.view_cells import Look, parts
from distdemo.trace.view_frames import Frame
from distdemo.view import colours
from distdemo.view.numbers import plural

FEW = 8  # chunks up to which all that a rank holds are listed


@dataclass(frozen=True, slots=True)
class Held:
    """A rank that may be shown."""

    rank: int


def more(look: Look, count: int) -> Text:
    """That so many ranks are left out."""
    return Text(f"{look.sign.more} {plural(count, 'rank')} more", style=colours.QUIET)


def listing(look: Look, frame: Frame, rows: Iterable[Held | int], width: int) -> Group:
    """A rank after the other: all its chunks; of many those that changed, and the complete ones.

    Args:
        look: of the trace.
        frame: which round.
        rows: ranks, and between them how many are left out.
        width: columns.
    """
    shown = [
        row if isinstance(row, int) else (row.rank, _row(look, frame, row.rank)) for row in rows
    ]
    first = max((r[1][0].cell_len for r in shown if not isinstance(r, int) and r[1]), default=0)
    lines: list[Text] = []
    for row in shown:
        if isinstance(row, int):
            lines.append(more(look, row))
        else:
            lines += _lines(look, *row, first, width)
    return Group(*lines)


def _lines(look: Look, rank: int, items: list[Text], first: int, width: int) -> list[Text]:
    """A rank's lines; the first item is as wide as those of the others."""
    head = Text.assemble(("rank ", "bold"), (str(rank), f"bold {colours.of_rank(rank)}"))
    head.pad_right(len(f"rank {look.n - 1}") - head.cell_len)
    if not items:
        return [head + Text("  nothing", style=colours.QUIET)]
    if len(items) > 1:
        items[0].pad_right(first - items[0].cell_len)
    found = flow(items, width, indent=head.cell_len + 2, gap=2)
    return [head + found[0][head.cell_len :], *found[1:]]


def _row(look: Look, frame: Frame, rank: int) -> list[Text]:
    return list(_items(look, frame, rank))


def _items(look: Look, frame: Frame, rank: int) -> Iterator[Text]:
    held = frame.held[rank]
    missed = [
        c for c in range(len(look.names)) if c not in held and _is_missed(look, frame, rank, c)
    ]
    if len(held) <= FEW:
        for chunk in sorted({*held, *missed}):
            yield _item(look, frame, rank, chunk)
    else:
        changed = [chunk for chunk in held if (rank, chunk) in frame.changed]
        for chunk in sorted({*changed, *missed}):
            yield _item(look, frame, rank, chunk)
        yield from _rest(look, frame, rank, set(changed))
    gone = sorted(chunk for owner, chunk in frame.gone if owner == rank)
    if gone:
        yield Text(f"gone: {named(look, gone)}", style=colours.QUIET)


def _is_missed(look: Look, frame: Frame, rank: int, chunk: int) -> bool:
    return look.is_wrong(rank, chunk, frame.number)


def _item(look: Look, frame: Frame, rank: int, chunk: int) -> Text:
    """``+1: 0–2 (33)``; of a chunk with a name of its own ``0→1 ✓ (3)``."""
    found = parts(look, frame, rank, chunk, 1)
    source = frame.held[rank][chunk].ranks if look.named and chunk in frame.held[rank] else ()
    style = colours.of_rank(source[0]) if source else ""
    name = (look.names[chunk] + ("" if look.named else ":"), style)
    value = Text.assemble("(", found.value, ")") if found.value else Text()
    told = [part for part in (Text.assemble(found.mark, name), found.words, value) if part.plain]
    return Text(" ").join(told)


def _rest(look: Look, frame: Frame, rank: int, told: set[int]) -> Iterator[Text]:
    """The chunks that this round did not change: which are complete, and how many are not.

    Where nothing is reduced a chunk is complete wherever it is: that it is held says it all.
    """
    held = frame.held[rank]
    complete = [chunk for chunk, cell in sorted(held.items()) if cell.complete]
    if complete:
        every = len(complete) == len(look.names)
        names = "all" if every else named(look, complete)
        words, style = ("complete", colours.RIGHT) if look.reduced else ("holds", "")
        yield Text.assemble(f"{words}: ", (names, f"bold {style}".strip()))
    others = [chunk for chunk in held if chunk not in told and not held[chunk].complete]
    own = [chunk for chunk in others if held[chunk].ranks == (rank,)]
    if own:
        yield Text(f"{plural(len(own), 'chunk')} of its own", style=colours.QUIET)
    if len(others) > len(own):
        yield Text(f"{plural(len(others) - len(own), 'chunk')} of several", style=colours.QUIET)
