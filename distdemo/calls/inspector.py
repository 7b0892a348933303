"""Read the notes of a world's ranks while it runs, and report a finding once it is certain.

Ranks write to shared memory that is polled: a note needs no wake-up and no system call, and the
notes of a killed rank are preserved. A finding ends the world and becomes its verdict.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import KINDS
from distdemo.calls.match.shown import merged
from distdemo.calls.notes import EndNote, Ring, shared
from distdemo.calls.records import Finding, Gap, LedgerReport, Notes, Row, SourceLine
from distdemo.calls.text import advice, finding_text, gap_texts, headline, reason, replicas_text
from distdemo.launcher.local import run_world
from distdemo.launcher.process_tree import shared_file
from distdemo.launcher.records import (
    CodeLine,
    Died,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    Verdict,
    WorldReport,
    WorldSpec,
)
from distdemo.launcher.stacks import is_ours
from distdemo.launcher.verdict import judge, limit_text, names_cause
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.calls.timeline import Timeline
    from distdemo.launcher.rank import Rank

RINGS = 16 << 20  # bytes of unread notes of all ranks
MIN_RING = 1 << 16  # of one rank; rings are multiples of it, as pages are mapped


class Inspector:
    """Sanitizer of one world.

    The ranks write to memory that is freed when no process holds it any longer.

    Args:
        world: World that will be started.
        ranks: Ranks that this process starts; all by default.
        timeline: Timeline that gets every note, or None.
    """

    def __init__(
        self, world: WorldSpec, ranks: range | None = None, timeline: Timeline | None = None
    ) -> None:
        self._ranks = range(world.world_size) if ranks is None else ranks
        self._rings: list[Ring] = []
        self._received = False  # since the last call of `has_progress`
        self.judge = Judge(world.world_size, timeline)
        self.notes = Notes("", 0)
        """Recording settings for the ranks; without a path if shared memory is unavailable."""
        self.judge.matcher.stopped = "shared memory is unavailable"
        size = min(1 << 20, RINGS // len(self._ranks))
        size = max(MIN_RING, size - size % MIN_RING)
        closing = ExitStack()
        file = closing.enter_context(shared_file("notes"))
        weakref.finalize(self, closing.close)
        os.ftruncate(file.fd, size * len(self._ranks))
        if os.access(file.path, os.R_OK | os.W_OK):
            self._rings = [Ring(shared(file.path, size, nth)) for nth in range(len(self._ranks))]
            self.notes = Notes(file.path, size, self._ranks.start)
            self.judge.asked = self._ranks
            self.judge.matcher.stopped = ""

    @property
    def stopped(self) -> str:
        """Reason why the comparison is incomplete, or empty."""
        return self.judge.matcher.stopped

    def compare_replicas(self, every: int | None, excluded: Iterable[str]) -> None:
        """Change what is compared of the parameters.

        Args:
            every: Number of steps between comparisons, all of whose findings are errors; None for
                a few steps, and warnings.
            excluded: Patterns of names that are left out.
        """
        ledger = self.judge.training.ledger
        ledger.is_strict = every is not None
        ledger.exclusion = Exclusion(excluded)
        self.notes = replace(self.notes, replicas=every or 0)

    def replicas(self) -> LedgerReport | None:
        """Return what was compared of the parameters; None unless the user has asked for it."""
        ledger = self.judge.training.ledger
        is_asked = ledger.is_strict or ledger.exclusion.patterns
        return self.judge.training.report() if is_asked else None

    def missing(self) -> list[str]:
        """Return what was asked and not compared, as text."""
        texts = [*gap_texts(self.stopped, self.gaps())]
        replicas = self.replicas()
        if replicas is not None and not replicas.complete:
            texts.append(replicas_text(replicas))
        return texts

    def poll(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Read new notes; return True if there is a finding and the world should end.

        Args:
            outcomes: Outcome of each rank; None while it is running.
        """
        with self._guard():
            self._feed()
            self._add_ends(outcomes)
            self.judge.poll()
            if self.judge.wants_lines:
                for ring in self._rings:
                    ring.ask()
        return self.judge.finding is not None

    def has_progress(self) -> bool:
        """Return True if a rank has made a call, or has returned from one, since the last time."""
        received = self._received
        self._received = False
        return received

    def callbacks(self) -> dict[str, Any]:
        """Return what the launcher calls while the ranks of this machine run."""
        return {"poll": self.poll, "has_progress": self.has_progress}

    def check(self) -> bool:
        """Return True if there is a certain finding now that no rank is making calls."""
        with self._guard():
            self._feed()
            self.judge.check()
        return self.judge.finding is not None

    def warnings(self) -> tuple[Finding, ...]:
        """Return the possible errors so far."""
        possible: list[Finding] = []
        with self._guard():
            possible = self.judge.warnings()
        return tuple(possible)

    def gaps(self) -> tuple[Gap, ...]:
        """Return what ranks couldn't look at, of what the user asked about."""
        return tuple(gap for gap in self.judge.gaps() if gap.is_asked)

    def relay(self) -> list[tuple[int, str]]:
        """Return new notes by rank, for ``on_message`` of node 0, on a node without rank 0."""
        pieces = zip(self._ranks, (ring.read() for ring in self._rings), strict=False)
        return [(rank, piece.decode("ascii", "replace")) for rank, piece in pieces if piece]

    def on_message(self, rank: int, text: object) -> bool:
        """Add notes of a rank on another node, on node 0.

        Args:
            rank: Rank in the world.
            text: Text from ``relay``.

        Returns:
            True if there is a finding and the world should end.
        """
        if isinstance(text, str):
            self._received = True
            self.judge.feed(rank, text.encode())
        return self.judge.finding is not None

    def conclude(self, report: WorldReport) -> tuple[WorldReport, tuple[Finding, ...]]:
        """Return the report and the findings. A finding replaces the report's verdict.

        If a signal ended the world, the finding is added to the verdict instead.

        Args:
            report: Report of the world, after all its ranks have exited.
        """
        finding = None
        with self._guard():
            finding = self._conclude(report)
            report = self._with_last_calls(report)
        if finding is None:
            return report, ()
        shifts = [warning for warning in self.judge.warnings() if warning.kind == "shift"]
        if finding.kind != "shift":
            finding = replace(finding, earlier=tuple(shifts))
        return replace(report, verdict=_verdict(finding, report)), (finding,)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Stop comparing if the block raises; the program must not be affected."""
        try:
            yield
        except Exception as error:  # any internal error
            self.judge.give_up(f"{type(error).__name__}: {error}")

    def _feed(self) -> None:
        for rank, ring in zip(self._ranks, self._rings, strict=False):
            if piece := ring.read():
                self._received = True
                self.judge.feed(rank, piece)

    def _add_ends(self, outcomes: Sequence[Outcome | None]) -> None:
        """Record the end of ranks that wrote no end note."""
        matcher = self.judge.matcher
        for rank, outcome in enumerate(outcomes):
            state = matcher.ranks[rank]
            if state.ended is not None or not isinstance(outcome, Died | Returned):
                continue
            self.judge.read()
            if isinstance(outcome, Died) or outcome.left:
                matcher.add(rank, _end_note(outcome))
            elif state.ended is None and not state.lost:
                matcher.stop(f"rank {rank} left no notes")

    def _conclude(self, report: WorldReport) -> Finding | None:
        """Return the finding once all ranks have exited."""
        matcher = self.judge.matcher
        running = _running(report)
        interrupted = report.interrupted_by is not None
        finding = self.judge.interrupt(running) if interrupted else None
        self._feed()
        self.judge.read()
        if interrupted:
            return finding
        self._add_ends(report.outcomes)
        old = report.verdict
        missing = next(
            (o.missing for o in report.outcomes if isinstance(o, Raised) and o.missing), ()
        )
        if missing and old is not None and not (matcher.stopped or matcher.problems):
            calls = {rank: state.last for rank, state in enumerate(matcher.ranks) if state.last}
            rows = tuple(matcher.shown.rows(calls))
            finding = Finding("absent", old.what, rows, "", KINDS["absent"].rule, missing)
        else:
            finding = self.judge.conclude(running)
        if finding is None or old is None:
            return finding
        if finding.kind == "stuck":
            finding = replace(finding, rows=(*finding.rows, *_other_threads(report)))
            limit = limit_text(report.world, old.limit or "deadline")
            finding = replace(finding, limit=limit, rule=old.hint)
        return finding if matcher.problems else _with_cause(finding, old, report.outcomes)

    def _with_last_calls(self, report: WorldReport) -> WorldReport:
        """Return a failed world's report with the last call of each rank."""
        if report.verdict is None:
            return report
        outcomes = tuple(map(self._with_last_call, report.outcomes))
        verdict = report.verdict
        if report.interrupted_by is None and names_cause(verdict, outcomes):
            verdict = judge(report.world, outcomes) or verdict
        return replace(report, outcomes=outcomes, verdict=verdict)

    def _with_last_call(self, outcome: Outcome) -> Outcome:
        last = self.judge.matcher.ranks[outcome.rank].last
        line = SourceLine() if last is None else last.source_line
        return replace(
            outcome,
            last_call=self.judge.last_call(outcome.rank),
            last_line=CodeLine(line.file, line.line, line.function),
        )


def _running(report: WorldReport) -> dict[int, SourceLine | None]:
    """Return the ranks that were stopped while running, and where they were, if known."""
    return {
        outcome.rank: _line_of(outcome.where.source_line, outcome.where.callers)
        if outcome.where
        else None
        for outcome in report.outcomes
        if isinstance(outcome, TimedOut)
    }


def _line_of(line: CodeLine, callers: tuple[CodeLine, ...] = ()) -> SourceLine | None:
    """Return a line of a rank's stack as a source line; None if it is unknown."""
    if not line.line:
        return None
    return SourceLine(line.file, line.line, line.function, callers=callers)


def _other_threads(report: WorldReport) -> list[Row]:
    """Return what the other threads of the ranks that were stopped were doing."""
    rows = []
    for outcome in report.outcomes:
        for other in outcome.where.others if outcome.where else ():
            doing = f"waiting in {other.collective}" if other.collective else "running"
            did = f"{plural(other.threads, 'other thread')} {doing}"
            rows.append(Row((outcome.rank,), did, _line_of(other.source_line)))
    return merged(rows)


def _end_note(end: Died | Returned) -> EndNote:
    """Return the end of a rank that wrote none, with the line of its crash."""
    line = (end.where and _line_of(end.where.source_line)) or SourceLine()
    if isinstance(end, Died) and end.signal is not None:
        return EndNote("killed", signal=end.signal, source_line=line)
    exit_code = end.exit_code if isinstance(end, Died) else None
    return EndNote("exited", exit_code=exit_code or 0, source_line=line)


def _with_cause(finding: Finding, old: Verdict, outcomes: Sequence[Outcome]) -> Finding:
    """Replace the finding by the failure that made a rank miss the call, if there is one."""
    failed = {
        outcome.rank: outcome
        for outcome in outcomes
        if isinstance(outcome, Died) or (isinstance(outcome, Raised) and not outcome.consequence)
    }
    named = {rank for row in finding.rows for rank in row.ranks}
    is_missing = finding.kind in ("absent", "uneven", "p2p", "stuck")
    if not is_missing or failed.keys().isdisjoint(named) or failed.keys().isdisjoint(old.ranks):
        return finding
    first = next(iter(failed.values()))
    rule = old.hint if isinstance(first, Died) else KINDS[finding.kind].rule
    return replace(
        finding,
        kind="absent",
        what=old.what,
        rule=rule,
        ranks=old.ranks,
        so_far=False,
        undecided=(),
        limit="",
    )


def _verdict(finding: Finding, report: WorldReport) -> Verdict:
    """Return the finding as a verdict, with the traceback of a rank at fault if there is one."""
    old = report.verdict
    rows = tuple(reason(finding))
    if old is not None and report.interrupted_by is not None:
        why = headline(finding)
        if finding.kind != "stuck":
            why = f"{old.reason}\n{why}"
        return replace(old, reason=why, rows=rows, advice=advice(finding))
    what, hint = headline(finding), advice(finding)
    verdict = Verdict(what, "", hint, finding.ranks, finding.consequences, rows=rows)
    if old is not None and set(old.ranks) & set(finding.ranks):
        return replace(verdict, traceback=old.traceback)
    return verdict


def run_noted(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    strict: bool = False,
    check_replicas: int | None = None,
    excluded: Iterable[str] = (),
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world, and compare the ranks' calls.

    Arguments and errors are those of ``launcher.local.run_world``. A finding becomes the verdict; a
    possible error, or an incomplete comparison, becomes a warning of the user's line, and with
    `strict` the verdict. See `Inspector.compare_replicas` for the last two arguments.
    """
    inspector = Inspector(world)
    inspector.compare_replicas(check_replicas, excluded)
    work = (inspector.notes, target, args)
    modules = (__name__, "distdemo.calls.record.hooks")
    report, findings = inspector.conclude(
        run_world(world, _run_recorded, work, **inspector.callbacks(), modules=modules)
    )
    if findings:
        return report
    possible = inspector.warnings()
    incomplete = inspector.missing()
    if strict and report.verdict is None and (possible or incomplete):
        verdict = _verdict(possible[0], report) if possible else Verdict(incomplete[0], "", "")
        return replace(report, verdict=verdict)
    for text in (*map(finding_text, possible), *incomplete):
        warnings.warn(text, stacklevel=_user_level())
    return report


def _user_level() -> int:
    """Return the stack level of the user's line, as seen from the caller."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(1)))
    return next((level for level, file in enumerate(files, 1) if not is_ours(file)), 1)


def _run_recorded(
    rank: Rank, notes: Notes, target: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Run the target on a rank, recording its calls."""
    from distdemo.calls.record.hooks import record_calls

    with record_calls(notes, rank.rank, rank.world_size):
        value = target(rank, *args)
        threading._shutdown()  # type: ignore[attr-defined]
        return value
