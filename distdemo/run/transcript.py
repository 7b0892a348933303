"""What ranks write, kept as it comes: all of it, or of very much its beginning and its end."""

from __future__ import annotations

from distdemo.run.records import Transcript, without_chatter

KEPT = 8 << 20  # bytes of one rank's output that are kept
KEPT_IN_ALL = 64 << 20  # bytes that are kept of all ranks together
LEAST = 1 << 16  # bytes that every rank may keep, however many there are


class Transcripts:
    """The output of every rank of a world.

    Args:
        world_size: how many ranks.
        kept: bytes of one rank's output that are kept; by default what ``KEPT`` allows.
    """

    def __init__(self, world_size: int, kept: int | None = None) -> None:
        each = max(LEAST, min(KEPT, KEPT_IN_ALL // world_size)) if kept is None else kept
        self._scrolls = [_Scroll(each // 2) for _ in range(world_size)]

    def wrote(self, rank: int, piece: bytes) -> None:
        """A rank has written this."""
        self._scrolls[rank].add(piece)

    def finished(self) -> tuple[Transcript, ...]:
        """What each rank wrote, in order."""
        return tuple(scroll.transcript() for scroll in self._scrolls)


class _Scroll:
    """One rank's output: the first bytes, the last ones, and how many there were.

    Args:
        half: how many bytes are kept of the beginning, and as many of the end.
    """

    def __init__(self, half: int) -> None:
        self._half = half
        self._head = bytearray()
        self._tail = bytearray()
        self._count = 0

    def add(self, piece: bytes) -> None:
        self._count += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half:  # not at every piece: each time, all of it moves
            del self._tail[: -self._half]

    def transcript(self) -> Transcript:
        if len(self._head) + len(self._tail) == self._count:
            return Transcript(_text(self._head + self._tail))
        return self._with_gap()

    def _with_gap(self) -> Transcript:
        """Cut at the ends of lines, where there are such, so that none looks like another."""
        head = bytes(self._head)
        tail = bytes(self._tail[-self._half :])
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self._count - len(head) - len(tail)
        line = f"[... {left_out:,} bytes left out ...]\n"
        first = _text(head)
        return Transcript(
            f"{first}{'' if first.endswith(chr(10)) else chr(10)}{line}{_text(tail)}", left_out
        )


def _text(data: bytes | bytearray) -> str:
    return without_chatter(data.decode(errors="replace"))
