"""The notes of a world's ranks, read while it runs; what is wrong is told once it is certain.

Each rank writes into memory that is read now and then: no note wakes anybody or calls the kernel,
and what a rank noted before it was killed is still there. The launcher is told to end the world
when there is a finding; that becomes the world's verdict.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo.launcher.local import run_world
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
from distdemo.sanitizer.judge import Judge
from distdemo.sanitizer.matching import RULES
from distdemo.sanitizer.notes import Ended, Ring, shared
from distdemo.sanitizer.records import Finding, Notes
from distdemo.sanitizer.text import reason, stopped_text
from distdemo.view.foreign import write_message

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.sanitizer.timeline import Timeline

RINGS = 16 << 20  # bytes of notes that wait to be read, of all ranks


class Inspector:
    """What the ranks of one world note, and what is wrong with it.

    Each rank writes to memory that is gone with the last who holds it.

    Args:
        world: that will be started.
        ranks: that this process starts; None: all.
        timeline: gets every note; None: nothing does.
    """

    def __init__(
        self, world: WorldSpec, ranks: range | None = None, timeline: Timeline | None = None
    ) -> None:
        self._ranks = range(world.world_size) if ranks is None else ranks
        self._rings: list[Ring] = []
        self.judge = Judge(world.world_size, timeline)
        self.notes = Notes("", 0)
        """What its ranks have to note; without a path if this system has no such memory."""
        self.judge.matcher.stopped = "there is no memory that ranks could write to"
        if not hasattr(os, "memfd_create"):
            return
        size = max(1 << 16, min(1 << 20, RINGS // len(self._ranks)))
        fd = os.memfd_create("distdemo-notes", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, fd)
        os.ftruncate(fd, size * len(self._ranks))
        path = f"/proc/{os.getpid()}/fd/{fd}"
        if os.access(path, os.R_OK | os.W_OK):
            self._rings = [Ring(shared(path, size, nth)) for nth in range(len(self._ranks))]
            self.notes = Notes(path, size, self._ranks.start)
            self.judge.matcher.stopped = ""

    @property
    def stopped(self) -> str:
        """Why calls were not compared, or not to the end; empty: they were."""
        return self.judge.matcher.stopped

    def look(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Read what there is to read; whether there is a finding, and so no use to go on.

        Args:
            outcomes: how each rank ended; None for one that runs.
        """
        try:
            self._feed()
            self._end(outcomes)
            return self.judge.look() is not None
        except Exception as error:  # noqa: BLE001 - the program must not suffer
            self._give_up(error)
            return False

    def relay(self) -> list[tuple[int, str]]:
        """On a node without rank 0: by rank, what has been noted since, for ``hear`` on node 0."""
        pieces = zip(self._ranks, (ring.read() for ring in self._rings), strict=False)
        return [(rank, piece.decode("ascii", "replace")) for rank, piece in pieces if piece]

    def hear(self, rank: int, text: object) -> bool:
        """On node 0: take what a rank of another node has noted.

        Args:
            rank: of the world.
            text: of ``relay``.

        Returns:
            Whether there is a finding, and so no use to go on.
        """
        if isinstance(text, str):
            self.judge.feed(rank, text.encode())
        return self.judge.finding is not None

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
        for shift in self.judge.matcher.shifts():
            where = " and ".join(row.place for row in shift.rows)
            told = f"{shift.what[:-1]}: {where}."
            finding = replace(finding, before=f"{finding.before}\n  {told}".strip())
        return replace(report, verdict=verdict(finding, report.verdict)), (finding,)

    def _give_up(self, error: Exception) -> None:
        """Nothing is compared from here on."""
        self.judge.give_up(f"{type(error).__name__}: {error}")

    def _feed(self) -> None:
        for rank, ring in zip(self._ranks, self._rings, strict=False):
            if piece := ring.read():
                self.judge.feed(rank, piece)

    def _conclude(self, report: WorldReport) -> Finding | None:
        self._feed()
        self.judge.read()
        self._end(report.outcomes)
        found = self.judge.finding
        if report.interrupted_by is not None:
            return None
        certain = self.judge.certain()
        finding = found or self._at_the_end(report)
        return finding if finding is None or certain else _with_cause(finding, report)

    def _end(self, outcomes: Sequence[Outcome | None]) -> None:
        """Ranks that could not say that they end."""
        matcher = self.judge.matcher
        for rank, outcome in enumerate(outcomes):
            state = matcher.ranks[rank]
            if outcome is None or state.ended is not None:
                continue
            if isinstance(outcome, Died):
                self.judge.read()
                signal = f"was killed by signal {outcome.signal}"
                how = f"exited with {outcome.exit_code}" if outcome.signal is None else signal
                matcher.take(rank, Ended(how))
            elif isinstance(outcome, Returned):
                self.judge.read()
                if outcome.left:
                    matcher.take(rank, Ended("returned"))
                elif state.ended is None and not state.lost:
                    matcher.stop(f"rank {rank} left no notes")

    def _at_the_end(self, report: WorldReport) -> Finding | None:
        """What can be said when no rank will do anything any more."""
        matcher = self.judge.matcher
        accuser = next((o for o in report.outcomes if isinstance(o, Raised) and o.missing), None)
        told = matcher.stopped or self.judge.certain() is not None
        if accuser is not None and report.verdict is not None and not told:
            rows = matcher.rows({r: s.last for r, s in enumerate(matcher.ranks) if s.last})
            what, rule = report.verdict.what, RULES["absent"]
            return Finding("absent", what, tuple(rows), "", rule, accuser.missing)
        late = {o.rank: o.where for o in report.outcomes if isinstance(o, TimedOut)}
        found = self.judge.conclude(
            {rank: where.place if where else "" for rank, where in late.items()}
        )
        if found is not None and found.kind == "absent" and not found.what:
            old = report.verdict
            return None if old is None else replace(found, what=old.what, rule=old.hint)
        return found


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
    kept = old is not None and set(old.ranks) & set(finding.ranks)
    return Verdict(
        finding.what,
        reason(finding),
        finding.rule,
        finding.ranks,
        finding.consequences,
        old.traceback if kept and old else "",
        old.excerpt if kept and old else "",
    )


def run_noted(
    world: WorldSpec, target: Callable[..., Any], args: tuple[Any, ...] = ()
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world, and compare what they call.

    The arguments and errors are those of ``launcher.local.run_world``; a finding is the verdict.
    """
    inspector = Inspector(world)
    work = (inspector.notes, target, args)
    report, findings = inspector.conclude(run_world(world, _noted, work, look=inspector.look))
    if not findings and inspector.stopped:
        write_message(f"{stopped_text(inspector.stopped)}\n")
    return report


def _noted(rank: Rank, notes: Notes, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - the user's value
    """On each rank."""
    from distdemo.sanitizer.hooks import noting

    with noting(notes, rank.rank, rank.world_size):
        value = target(rank, *args)
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads that may call yet, as Python does at its end
        return value
