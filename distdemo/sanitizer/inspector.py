"""The notes of a world's ranks, read while it runs; what is wrong is told once it is certain.

Each rank writes into a pipe of its own, which is read now and then: no note wakes anybody, and what
a rank noted before it was killed is still there. The launcher is told to end the world when there
is a finding; that becomes the world's verdict.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from distdemo.launcher.limits import open_files
from distdemo.launcher.records import (
    Died,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    Verdict,
    WorldReport,
    WorldSpec,
)
from distdemo.sanitizer.matching import RULES, Matcher, rows_of
from distdemo.sanitizer.notes import Ended, Reader
from distdemo.sanitizer.records import Finding, Row
from distdemo.sanitizer.waiting import missed, stuck
from distdemo.view.format import ranks_text

if TYPE_CHECKING:
    from typing_extensions import Self

PIPES = 16 << 20  # bytes of notes that wait to be read, of all ranks
CHUNK = 1 << 18
GRACE = 1.0  # seconds that ranks get to come to a call at which others differ
STILL = 2  # looks in a row without a note after which what waits is taken to wait
WIDEST = 60  # characters of a call, up to which places stand in a column


class Inspector:
    """What the ranks of one world note, and what is wrong with it; a context manager.

    Args:
        world: that will be started.
        ranks: that this process starts; None: all.
    """

    def __init__(self, world: WorldSpec, ranks: range | None = None) -> None:
        self._world = world
        self._ranks = range(world.world_size) if ranks is None else ranks
        self._held = ExitStack()
        self._pipes: list[int] = []
        self._readers = [Reader() for _ in range(world.world_size)]
        self._matcher = Matcher(world.world_size)
        self._still = 0
        self._heard = False  # something of another node's ranks, since the last look
        self._since = 0.0  # when calls were first seen to differ
        self._finding: Finding | None = None
        self.paths: tuple[str, ...] = ()
        """Where each of its ranks writes; empty: this system has no such place."""

    def __enter__(self) -> Self:
        """Make the pipes."""
        if sys.platform != "linux":
            return self
        with open_files(self._world):
            for _ in self._ranks:
                reader, writer = os.pipe2(os.O_CLOEXEC)
                self._held.callback(os.close, reader)
                self._held.callback(os.close, writer)
                self._enlarge(writer)
                os.set_blocking(reader, False)
                self._pipes.append(reader)
                self.paths += (f"/proc/{os.getpid()}/fd/{writer}",)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close them."""
        self._held.close()

    def _enlarge(self, pipe: int) -> None:
        import fcntl

        with suppress(OSError, AttributeError):  # more than this user may have
            size = max(1 << 16, min(1 << 20, PIPES // self._world.world_size))
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)

    def look(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Read what there is to read; whether there is a finding, and so no use to go on.

        Args:
            outcomes: how each rank ended; None for one that runs.
        """
        if self._finding is not None:
            return True
        try:
            return self._look(outcomes)
        except Exception as error:  # noqa: BLE001 - the program must not suffer
            self._give_up(error)
            return False

    def _give_up(self, error: Exception) -> None:
        """Tell once that nothing is compared from here on."""
        self._matcher.off = True
        name = type(error).__name__
        sys.stderr.write(f"distdemo's sanitizer stopped: {name}: {error}\n")

    def _look(self, outcomes: Sequence[Outcome | None]) -> bool:
        moved = self._read()
        self._end(outcomes)
        self._still = 0 if moved else self._still + 1
        matcher = self._matcher
        if matcher.off:
            return False
        if matcher.suspects:
            # Those that come to the same call right after show who differs from whom.
            self._since = self._since or time.monotonic()
            if matcher.settled(matcher.suspects[0]) or time.monotonic() > self._since + GRACE:
                self._finding = matcher.mismatch(matcher.suspects[0])
        elif matcher.found:
            self._finding = matcher.first()
        elif self._still >= 1:
            self._finding = stuck(matcher) if self._still >= STILL else missed(matcher)
        return self._finding is not None

    def conclude(self, report: WorldReport) -> tuple[WorldReport, tuple[Finding, ...]]:
        """The report with the finding as its verdict, if there is one.

        Args:
            report: of the world, all of whose ranks are gone.
        """
        try:
            finding = self._conclude(report)
        except Exception as error:  # noqa: BLE001 - the program must not suffer
            self._give_up(error)
            finding = None
        if finding is None:
            return report, ()
        return replace(report, verdict=verdict(finding, report.verdict)), (finding,)

    def _conclude(self, report: WorldReport) -> Finding | None:
        self._read()
        self._end(report.outcomes)
        if report.interrupted_by is not None or (self._matcher.off and self._finding is None):
            return None
        finding = self._finding or self._certain() or self._at_the_end(report)
        if finding is not None and self._certain() is None:
            return _with_cause(finding, report)
        return finding

    def relay(self) -> list[tuple[int, str]]:
        """On a node without rank 0: by rank, what has been noted since, for ``hear`` on node 0."""
        return [(rank, piece.decode("ascii")) for rank, piece in self._pieces()]

    def hear(self, rank: int, text: object) -> bool:
        """On node 0: take what a rank of another node has noted.

        Args:
            rank: of the world.
            text: of ``relay``.

        Returns:
            Whether there is a finding, and so no use to go on.
        """
        if isinstance(text, str):
            self._heard = True
            self._feed(rank, text.encode())
        return self._finding is not None

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        for rank, pipe in zip(self._ranks, self._pipes, strict=True):
            while True:
                try:
                    piece = os.read(pipe, CHUNK)
                except BlockingIOError:
                    break
                yield rank, piece
                if len(piece) < CHUNK:
                    break

    def _feed(self, rank: int, piece: bytes) -> None:
        for note in self._readers[rank].read(piece):
            self._matcher.take(rank, note)

    def _read(self) -> bool:
        """Whether there was something new."""
        moved, self._heard = self._heard, False
        for rank, piece in self._pieces():
            moved = True
            self._feed(rank, piece)
        return moved

    def _end(self, outcomes: Sequence[Outcome | None]) -> None:
        """Ranks that could not say that they end."""
        for rank, outcome in enumerate(outcomes):
            state = self._matcher.ranks[rank]
            if state.ended is not None:
                continue
            if isinstance(outcome, Died):
                signal = f"was killed by signal {outcome.signal}"
                how = f"exited with {outcome.exit_code}" if outcome.signal is None else signal
                self._matcher.take(rank, Ended(how))
            elif isinstance(outcome, Returned) and outcome.left:
                self._matcher.take(rank, Ended("returned"))
            elif isinstance(outcome, Returned) and not state.lost:
                self._matcher.off = True  # it would have said so

    def _certain(self) -> Finding | None:
        matcher = self._matcher
        if matcher.suspects:
            return matcher.mismatch(matcher.suspects[0])
        return matcher.first()

    def _at_the_end(self, report: WorldReport) -> Finding | None:
        """What can be said when no rank will do anything any more."""
        accuser = next((o for o in report.outcomes if isinstance(o, Raised) and o.missing), None)
        if accuser is not None and report.verdict is not None:
            rows = rows_of({r: s.last for r, s in enumerate(self._matcher.ranks) if s.last})
            what, rule = report.verdict.what, RULES["absent"]
            return Finding("absent", what, tuple(rows), "", rule, accuser.missing)
        return missed(self._matcher) if report.ok else stuck(self._matcher) or self._late(report)

    def _late(self, report: WorldReport) -> Finding | None:
        """Ranks that computed while others waited for them, until time ran out."""
        late = {o.rank: o for o in report.outcomes if isinstance(o, TimedOut)}
        waiting = {
            rank: state.blocked[0]
            for rank, state in enumerate(self._matcher.ranks)
            if rank in late and state.blocked and self._matcher.awaited(state.blocked[0])
        }
        behind = tuple(
            sorted(
                {e for one in waiting.values() for e in self._matcher.awaited(one)} - set(waiting)
            )
        )
        if not behind or report.verdict is None:
            return None
        rows = rows_of({rank: entry.call for rank, entry in waiting.items()})
        for rank in behind:
            where = late[rank].where if rank in late else None
            rows.append(Row((rank,), "has not come", where.place if where else ""))
        first = next(iter(waiting.values()))
        before = self._matcher.before(first.group)
        old = report.verdict
        return Finding("absent", old.what, tuple(rows), before, old.hint, behind, tuple(waiting))


def _with_cause(finding: Finding, report: WorldReport) -> Finding:
    """Where a rank is missing because it failed by itself, that is what happened."""
    old = report.verdict
    failed = [
        outcome
        for outcome in report.outcomes
        if isinstance(outcome, Died) or (isinstance(outcome, Raised) and not outcome.consequence)
    ]
    if finding.kind in ("absent", "uneven", "p2p") and old is not None and failed:
        guilty = {outcome.rank for outcome in failed}
        if guilty & set(finding.ranks) and guilty & set(old.ranks):
            return replace(finding, kind="absent", what=old.what, ranks=old.ranks)
    return finding


def verdict(finding: Finding, old: Verdict | None) -> Verdict:
    """The finding as a world's verdict, with the traceback of a rank at fault if there is one."""
    why = "\n".join([*_lines(finding.rows), *([f"  {finding.before}"] if finding.before else [])])
    kept = old is not None and set(old.ranks) & set(finding.ranks)
    return Verdict(
        finding.what,
        why,
        finding.rule,
        finding.ranks,
        finding.consequences,
        old.traceback if kept and old else "",
        old.excerpt if kept and old else "",
    )


def _lines(rows: Sequence[Row]) -> list[str]:
    """The rows in columns."""
    ranks = [f"rank{'s' * (len(row.ranks) > 1)} {ranks_text(row.ranks)}" for row in rows]
    first = max(map(len, ranks), default=0)
    second = min(WIDEST, max((len(row.did) for row in rows if row.place), default=0))
    lines = zip(ranks, rows, strict=True)
    return [f"  {who:{first}}  {row.did:{second}}  {row.place}".rstrip() for who, row in lines]
