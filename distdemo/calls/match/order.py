"""Find calls on several groups that ranks make in a different order, which NCCL may not survive.

NCCL runs each call as a kernel that waits for the same call of the other members. If kernels of
different groups can't run at the same time, each rank is in the first call of its own order, and
none ends. So the calls are executed here one at a time: a call ends once it is the first of every
member. A cycle of calls that aren't is a warning. Calls of different threads or backends have no
order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import islice

from distdemo.calls.match.matcher import MAX_PENDING, Matcher, Rule
from distdemo.calls.match.rules import KINDS
from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import Entry, Group
from distdemo.calls.notes import RECORDER, CallNote, GroupNote, Loss, Note, OrderNote, ReturnNote
from distdemo.calls.records import Finding
from distdemo.launcher.verdict import ranks_of

UNORDERED = {"new_group", "monitored_barrier"}  # these aren't kernels


class OrderRule(Rule):
    """Calls of each thread that can't end yet if they are executed one at a time.

    Sends and receives have an order only with NCCL, or by its rules.
    """

    takes = (CallNote, GroupNote, OrderNote, ReturnNote)

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self._queues: defaultdict[tuple[int, int, str], deque[Entry]] = defaultdict(deque)
        self._queue_of: dict[Entry, deque[Entry]] = {}
        """Queue of each call that can't end yet."""
        self._cycles: dict[frozenset[tuple[str, int]], list[tuple[Entry, Entry]]] = {}

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Add a note of a rank, and the call that it is about."""
        if isinstance(note, GroupNote) and isinstance(note.values, Loss):
            lost = [entry for entry in self._queue_of if entry.group.lost]
            self._run(self._remove(lost))
        if entry is None:
            return
        if isinstance(note, ReturnNote):
            if note.undone:
                self._remove([entry])
            elif note.source >= 0:  # its sender was unknown before
                self._run([entry])
        elif isinstance(note, CallNote | OrderNote) and self._is_ordered(entry):
            if isinstance(note, CallNote) and note.unordered:
                return  # the order of the recorder counts
            thread = note.thread if isinstance(note, CallNote) else RECORDER
            queue = self._queues[rank, thread, entry.group.key.backend]
            queue.append(entry)
            self._queue_of[entry] = queue
            self._run([entry])
            if len(queue) > MAX_PENDING:  # the first has failed, and other ranks never make it
                self._run(self._remove([queue[0]]))

    def repeats(self, group: Group, *, has_step: bool) -> bool:
        """Return True if each rank has ended its calls: it ends equal ones in the same order."""
        return not self._queue_of

    def _is_ordered(self, entry: Entry) -> bool:
        call = entry.call
        if call.peer is None:
            is_known = call.op not in UNORDERED and not entry.group.lost
            return is_known and not call.rules.internal
        return not call.batched and (self.matcher.nccl or entry.group.facts.orders_messages)

    def findings(self) -> list[Finding]:
        """Return a warning per set of lines whose calls had no common order."""
        return [self._warning(cycle) for cycle in self._cycles.values()]

    def _run(self, entries: Iterable[Entry]) -> None:
        """End the calls of these entries, and those that follow, if all members have arrived."""
        waiting = deque(entries)
        while waiting:
            entry = waiting.popleft()
            if entry not in self._queue_of:
                continue
            together = entry.together
            if any(self._before(member) is not None for member in together):
                cycle = self._cycle(entry)
                if not cycle:
                    continue
                self._keep(cycle)
            waiting += self._remove(together)

    def _remove(self, entries: Iterable[Entry]) -> list[Entry]:
        """Remove entries, and return those that are first now."""
        first: list[Entry] = []
        for entry in entries:
            queue = self._queue_of.pop(entry, None)
            if queue is not None:
                queue.remove(entry)
                first += islice(queue, 1)
        return first

    def _before(self, entry: Entry) -> Entry | None:
        """Return the call that must end before this one, or None."""
        queue = self._queue_of.get(entry)
        return None if queue is None or queue[0] is entry else queue[0]

    def _cycle(self, start: Entry) -> list[tuple[Entry, Entry]]:
        """Return (earlier, later) calls of ranks along a cycle, or nothing."""
        goal = {*start.together}
        paths: deque[list[tuple[Entry, Entry]]] = deque([[]])
        seen: set[Entry] = set()
        while paths:
            path = paths.popleft()
            for later in (path[-1][0] if path else start).together:
                earlier = self._before(later)
                if earlier is None or earlier in seen:
                    continue
                seen.add(earlier)
                if earlier in goal:
                    return [*path, (earlier, later)]
                paths.append([*path, (earlier, later)])
        return []

    def _keep(self, cycle: list[tuple[Entry, Entry]]) -> None:
        """Keep the first cycle on each set of lines; of several sets of ranks, the lowest.

        Which of them is found first depends on which ranks are faster.
        """
        lines = frozenset(call.call.source_line.innermost for pair in cycle for call in pair)
        known = self._cycles.get(lines)
        if known is None and len(self._cycles) == MAX_LINES:
            return
        if known is None or _ranks(cycle) < _ranks(known):
            self._cycles[lines] = cycle

    def _warning(self, cycle: list[tuple[Entry, Entry]]) -> Finding:
        rows = [
            self.matcher.shown.row(entry.rank, entry.call, f"{entry.call} on {entry.group.name}")
            for pair in sorted(cycle, key=lambda pair: pair[0].rank)
            for entry in pair
        ]
        ranks = _ranks(cycle)
        several = len({entry.group for pair in cycle for entry in pair}) > 1
        calls = "calls on several groups" if several else "sends and receives"
        what = f"{ranks_of(ranks)} make {calls} in an order that may deadlock with NCCL."
        rule = KINDS["order"].rule
        return Finding("order", what, tuple(rows), "", rule, ranks, level="warn")


def _ranks(cycle: list[tuple[Entry, Entry]]) -> tuple[int, ...]:
    """Return the ranks of a cycle in order."""
    return tuple(sorted({earlier.rank for earlier, _ in cycle}))
