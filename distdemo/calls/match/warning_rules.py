"""Rules whose findings don't end the run: misused results, shifted calls and remarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from distdemo.calls.match import findings
from distdemo.calls.match.matcher import Matcher, Rule
from distdemo.calls.match.rules import KINDS, MISUSES, minority, remarks
from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import CallSet, Entry, Group
from distdemo.calls.notes import CallNote, GroupNote, Loss, MisuseNote, Note, UnseenNote
from distdemo.calls.records import Finding, Gap, Kind, Level, RankCall, Row, SourceLine
from distdemo.launcher.verdict import ranks_of


class MisuseRule(Rule):
    """Misuses of a call's memory or result, as the ranks have noted them."""

    takes = (MisuseNote,)

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._ranks: defaultdict[MisuseNote, set[int]] = defaultdict(set)
        """Ranks of each misuse that is only a warning."""

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Report a misuse of memory; remember others."""
        if not isinstance(note, MisuseNote):
            return
        info = MISUSES[note.what]
        if info.kind == "buffers":
            finding = self._finding(note, (rank,), "error")
            self.matcher.report(rank, replace(finding, what=info.what), by_rank=True)
        elif len(self._ranks) < MAX_LINES:
            self._ranks[note].add(rank)

    def findings(self) -> Iterator[Finding]:
        """Yield a warning per misuse."""
        for note, ranks in self._ranks.items():
            yield self._finding(note, tuple(sorted(ranks)), "warn")

    def _finding(self, note: MisuseNote, ranks: tuple[int, ...], level: Level) -> Finding:
        info = MISUSES[note.what]
        line = note.source_line
        shown = line.alone if level == "error" else self.matcher.shown.line(line)
        rows = [Row(ranks, note.did, shown, note.op)]
        if info.then:
            rows.append(Row(ranks, info.then, note.then.alone))
        what = f"{ranks_of(ranks)}: {info.what}"
        return Finding(info.kind, what, tuple(rows), "", info.rule, ranks, level=level)


class UnwaitedRule(Rule):
    """Calls that ranks which have returned never waited for."""

    def findings(self) -> Iterator[Finding]:
        """Yield a warning if there is no error."""
        matcher = self.matcher
        done = (rank for rank, state in enumerate(matcher.ranks) if state.returned)
        rows = tuple(findings.unwaited(matcher, done, passed=False))
        if rows and not matcher.problems:
            ranks = tuple(sorted({rank for row in rows for rank in row.ranks}))
            info = MISUSES["unwaited"]
            what = f"{ranks_of(ranks)}: {info.what}"
            yield Finding(info.kind, what, rows, "", info.rule, ranks, level="warn")


class ShiftRule(Rule):
    """Calls that agree, but may have matched the wrong ones."""

    def findings(self) -> Iterator[Finding]:
        """Yield a warning per such call of each group."""
        for group in self.matcher.groups.values():
            opened = (calls.by_rank for calls in group.open)
            yield from group.lines.warnings(group.name, opened, self.matcher.shown)


class ShapeRule(Rule):
    """Calls that agree, but in which some ranks have probably exchanged or transposed tensors.

    They are reductions whose shapes differ in their order only, and two calls in a row in which
    each rank passes one of two shapes and then the other. Dimensions of size 1 don't count.
    """

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._latest: dict[Group, tuple[int, str, dict[int, RankCall]]] = {}
        """Latest call of two shapes on each group: its position, its name and the call."""
        self._warnings: dict[tuple[Group, SourceLine], tuple[str, dict[int, RankCall]]] = {}

    def agreed(self, entries: CallSet) -> None:
        """Compare the shapes of a call with each other, and with those of the call before."""
        if len({entry.call.shape for entry in entries.values()}) == 1:
            return
        calls = entries.by_rank
        if any(call.source_line.part for call in calls.values()):
            return
        group = entries.group
        call = calls[min(calls)]
        shapes = _shapes(calls)
        different = {*shapes.values()}
        sizes = {tuple(sorted(shape)) for shape in different}
        if call.reduce_op and len(different) > 1 and len(sizes) == 1:
            self._warnings.setdefault((group, call.source_line), (entries.name, calls))
        same = {(call.source_line, call.count) for call in calls.values()}
        if call.root is not None or len(same) > 1 or len(different) != 2:
            return
        position, name, before = self._latest.get(group, (entries.position, "", calls))
        self._latest[group] = entries.position, entries.name, calls
        first = _shapes(before)
        has_exchanged = {*first.values()} == different and first.items().isdisjoint(shapes.items())
        if position == entries.position - 1 and has_exchanged:
            self._warnings.setdefault((group, call.source_line), (name, before))

    def findings(self) -> Iterator[Finding]:
        """Yield a warning per line."""
        for name, calls in self._warnings.values():
            op = next(iter(calls.values())).op
            what = f"In {name}, {op} got tensors of different shapes."
            rows = tuple(self.matcher.shown.rows(calls))
            guilty = minority(_shapes(calls))
            yield Finding("shift", what, rows, "", KINDS["shift"].rule, guilty, level="warn")


def _shapes(calls: Mapping[int, RankCall]) -> dict[int, tuple[int, ...]]:
    """Return the shape that each rank passed, without dimensions of size 1."""
    return {rank: tuple(size for size in call.shape if size != 1) for rank, call in calls.items()}


class RemarkRule(Rule):
    """Calls that may be right, depending on how their results are used."""

    takes = (CallNote,)

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._calls: dict[tuple[Kind, str, str, SourceLine], dict[int, RankCall]] = {}
        """Calls by kind, text, rule and line."""

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Look at the arguments of a call."""
        if isinstance(note, CallNote) and entry is not None:
            call = entry.call
            group = entry.group
            size = len(group.members)
            for kind, what, rule in remarks(call, group.numbers[rank], size, group.key.backend):
                self._remark(kind, what, rule, {rank: call})

    def agreed(self, entries: CallSet) -> None:
        """Compare the devices of the tensors in a call."""
        calls = entries.by_rank
        if len({call.device for call in calls.values()}) > 1:
            what = f"{calls[min(calls)].op} got tensors on different devices."
            self._remark("device", what, KINDS["device"].rule, calls)

    def _remark(self, kind: Kind, what: str, rule: str, calls: Mapping[int, RankCall]) -> None:
        """Remember calls of these ranks, by the line of the first one."""
        key = kind, what, rule, calls[min(calls)].source_line
        if key in self._calls or len(self._calls) < MAX_LINES:
            self._calls[key] = {**calls, **self._calls.get(key, {})}

    def findings(self) -> Iterator[Finding]:
        """Yield a note per line and remark."""
        for (kind, what, rule, _), calls in self._calls.items():
            ranks = tuple(sorted(calls))
            rows = self.matcher.shown.rows(calls)
            if kind == "device":
                rows = [
                    replace(row, did=f"{row.did} on {device}")
                    for device in sorted({call.device for call in calls.values()})
                    for row in self.matcher.shown.rows(
                        {rank: call for rank, call in calls.items() if call.device == device}
                    )
                ]
            text = f"{ranks_of(ranks)}: {what}"
            yield Finding(kind, text, tuple(rows), "", rule, ranks, level="note")


class UnseenRule(Rule):
    """Tensors that ranks couldn't look at: no findings, but gaps."""

    takes = (UnseenNote, GroupNote)

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._counts: defaultdict[UnseenNote, dict[int, int]] = defaultdict(dict)
        """Number of calls or tensors by rank, for each note without its own number."""

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Remember what a rank couldn't look at."""
        if isinstance(note, GroupNote) and isinstance(note.values, Loss):
            name = self.matcher.group(note.group).name
            note = UnseenNote("lost", (name,), SourceLine(), note.values.calls)
        if isinstance(note, UnseenNote) and len(self._counts) < MAX_LINES:
            counts = self._counts[replace(note, count=0)]
            counts[rank] = max(note.count, counts.get(rank, 0))

    def gaps(self, asked: Collection[str]) -> tuple[Gap, ...]:
        """Return the gaps in the order of the first notes.

        Args:
            asked: Kinds of gaps that the user asked about.
        """
        return tuple(
            Gap(
                note.what,
                note.names,
                self.matcher.shown.line(note.source_line),
                tuple(sorted(counts)),
                sum(counts.values()),
                note.what in asked,
            )
            for note, counts in self._counts.items()
        )
