"""Keep the ranks' output, for documents and for the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.run.records import RankOutput
from distdemo.view import colours
from distdemo.view.blocks import Paragraph
from distdemo.view.console import Signs
from distdemo.view.foreign import lines_of
from distdemo.view.format import plural, ranks_text
from distdemo.view.stream import GLOO_NOISE

MAX_TOTAL_BYTES = 64 << 20  # bytes kept of all ranks' output
MIN_BYTES = 1 << 16  # bytes kept of every rank's output, even in large worlds
FIRST_LINES, LAST_LINES = 200, 300  # lines shown of long output


class Transcript:
    """Beginning and end of one rank's output.

    Args:
        kept: Bytes to keep, half of them from the beginning and half from the end.
    """

    def __init__(self, kept: int) -> None:
        self._half = kept // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._count = 0

    def add(self, piece: bytes) -> None:
        """Add a piece of output."""
        self._count += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half:  # not for every piece: it moves the whole tail
            del self._tail[: -self._half]

    def finished(self) -> tuple[str, int]:
        """Return the text and the number of bytes left out, between two lines if possible."""
        head, tail = bytes(self._head), bytes(self._tail)
        if len(head) + len(tail) == self._count:
            return _text(head + tail), 0
        tail = tail[-self._half :]
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self._count - len(head) - len(tail)
        between = "" if head.endswith(b"\n") else "\n"
        gap = f"{between}[... {left_out:,} bytes left out ...]\n"
        return _text(head) + gap + _text(tail), left_out


def transcripts(world_size: int) -> list[Transcript]:
    """Return an empty transcript per rank of a world."""
    kept = max(MIN_BYTES, MAX_TOTAL_BYTES // world_size)
    return [Transcript(kept) for _ in range(world_size)]


def _text(data: bytes) -> str:
    return GLOO_NOISE.sub("", data.decode(errors="replace"))


def captured_output(
    ranks: tuple[RankOutput, ...], sign: Signs, *, whole: bool
) -> Iterator[Paragraph]:
    """Yield the output of each rank, or of each group of ranks with the same output.

    Args:
        ranks: Output of each rank, in order.
        sign: Signs of the terminal.
        whole: True to show long output in full.
    """
    groups: dict[str, list[int]] = {}
    for own in ranks:
        groups.setdefault(own.output, []).append(own.rank)
    for text, members in groups.items():
        style = colours.of_rank(members[0]) if len(members) == 1 else ""
        who = f"Rank{'s' * (len(members) > 1)} {ranks_text(members)}"
        yield Paragraph(f"{who}:" if text else f"{who}: no output", f"bold {style}")
        lines = lines_of(text)
        left_out = len(lines) - FIRST_LINES - LAST_LINES
        if left_out > 0 and not whole:
            more = (
                f"{sign.more} {plural(left_out, 'line')} left out: --ranks {members[0]} shows all."
            )
            lines = [*lines[:FIRST_LINES], more, *lines[-LAST_LINES:]]
        if lines:
            yield Paragraph("\n".join(lines), verbatim=True)
    yield Paragraph()
