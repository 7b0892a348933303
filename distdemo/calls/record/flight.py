"""Note the calls that hooks can't see, from torch's flight recorder, in a thread of the rank.

Hooks note the calls from Python. As long as the group's counter grows within them only, there are
no other calls, and nothing is read. Otherwise there were calls from C++. The thread finds them
among the latest calls of all groups, which torch keeps with the time of each: an entry that was
made while a call was in a hook is this call, the other ones are those from C++. Their order is
noted, too.

Sequence numbers can't join the two: the counters of gloo and NCCL include some sends.

This starts no kernel and no collective, and waits for none.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from torch._C import _distributed_c10d as cpp

from distdemo.calls.flight import GONE, is_nccl
from distdemo.calls.flight.entries import CallState, EntryReader, FlightEntry
from distdemo.calls.flight.pickles import load_plain
from distdemo.calls.flight.recent import COUNTER, RecentEntries
from distdemo.calls.record.frames import known_part
from distdemo.calls.records import PartialCall, SourceLine, TorchPart
from distdemo.launcher.rendezvous import RECORDER_SIZES

POLL_S = 0.5  # seconds between polls
SHARE = 0.02  # of one core that polls may take, unless calls would be lost
CHECK_S = 0.05  # seconds between looks at the number of new calls
FULL = 0.8  # of the entries that torch keeps may be new until they are read
MAX_POLL_S = 5.0  # seconds between polls at most
USUAL_SIZE = 2000  # unless these say otherwise
MAX_LINES = 500  # latest calls whose lines are told


class Notes(Protocol):
    """Writer of the notes."""

    off: bool

    def safely(self, function: Callable[[], object]) -> object:
        """Call a function; an exception only stops the recording."""

    def note_order(self, number: int = -1) -> None:
        """Note which call comes next on its group, or that this is the end."""

    def note_recorded(self, group: int, call: PartialCall, at_us: int) -> int:
        """Note a call that only the flight recorder has, and return its number."""

    def note_line(self, number: int, line: SourceLine) -> None:
        """Note the source line of such a call."""

    def note_loss(self, group: int, calls: int) -> None:
        """Note that calls were overwritten."""

    def note_waiting(self, number: int | None) -> None:
        """Note that the rank waits for a call, or that it has ended."""


@dataclass(eq=False, slots=True)
class Hooked:
    """Call that a hook has noted.

    Attributes:
        watched: Its group.
        is_next: True if there were no other calls since the one before.
        number: Number of the call on this rank.
        began: Time at which the hook was called, in ns since 1970.
        ended: Time at which torch had accepted the call; 0 before.
    """

    watched: Watched
    is_next: bool
    number: int = -1
    began: int = 0
    ended: int = 0


@dataclass(eq=False, slots=True)
class Watched:
    """A group on one backend whose calls the flight recorder tells.

    Attributes:
        number: Number of the group in the notes.
        counter: Function that returns a number which grows with the calls; None if unknown.
        since: Time from which calls may be unknown, in ns since 1970.
        seen: The counter's number at this time.
        counted: The counter's number at the latest poll.
        hooked: Calls of hooks whose order isn't known yet.
        latest: The last call of a hook whose order is known.
        place: Number of its latest collective.
        open: Number of the latest call in the notes if it has not ended; otherwise -1.
        entry: Number of this call in the flight recorder.
        lost: True if calls were overwritten before they were read.
    """

    number: int
    counter: Callable[[], int | None]
    since: int
    seen: int | None
    counted: int | None = None
    hooked: deque[Hooked] = field(default_factory=deque)
    latest: Hooked | None = None
    place: int = 0
    open: int = -1
    entry: int = -1
    lost: bool = False

    @property
    def has_news(self) -> bool:
        """True if there may be calls that aren't known and still matter."""
        if self.lost:
            return False
        count = self.counter()
        if count == GONE == self.counted:
            return bool(self.hooked)
        return count is None or count != self.seen or bool(self.hooked)


class Flight:
    """Reader of the flight recorder of this process.

    Args:
        notes: Writer of the notes.
        is_asked: Function that returns True if lines were asked for since it did so last.
        alone: True if hooks note no collectives of the groups that are watched.
    """

    def __init__(
        self, notes: Notes, is_asked: Callable[[], bool] = lambda: False, *, alone: bool = False
    ) -> None:
        self.alone = alone
        self._notes = notes
        self._is_asked = is_asked
        self._groups: dict[tuple[str, str], Watched] = {}
        self._by_number: dict[int, Watched] = {}
        self._backends: set[str] = set()
        self._lock = threading.RLock()  # of a poll
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._local = threading.local()
        self._last: dict[str, int] = {}  # number of the latest entry that was read, by recorder
        self._readers: dict[str, RecentEntries] = {}
        self._recorded: deque[tuple[str, int, int]] = deque(maxlen=MAX_LINES)
        """Recorder, number of the entry and number in the notes of calls without a line."""
        self._polled = 0  # time of the latest poll
        self._empty = 0  # number of polls that found nothing though there were calls
        self._captures = 0  # number of CUDA graphs that are being captured
        self._waiting = -1
        self._is_told = False  # that the rank waits for it
        self._size = USUAL_SIZE
        for name in RECORDER_SIZES:
            if os.environ.get(name, "").isdigit():
                self._size = int(os.environ[name])
                break

    # ------------------------------------------------------------------------------------- hooks

    def watch(
        self, number: int, backend: str, name: str, counter: Callable[[], int | None]
    ) -> None:
        """Note the calls on a group from now on.

        Args:
            number: Number of the group in the notes.
            backend: Its backend.
            name: Its name in torch.
            counter: Function that returns a number which grows with the group's calls; None if
                unknown.
        """
        watched = Watched(number, counter, time.time_ns(), counter())
        # New ones, because the thread may be reading those from before.
        self._groups = {**self._groups, (_kind(backend), name): watched}
        self._by_number = {**self._by_number, number: watched}
        self._backends = self._backends | {backend}
        if self._thread is None:
            target = partial(self._notes.safely, self._run)
            self._thread = threading.Thread(target=target, daemon=True, name="distdemo-flight")
            self._thread.start()

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that polls."""
        return self._thread

    def watches(self, number: int) -> bool:
        """Return True if the flight recorder tells the order of calls on a group."""
        return number in self._by_number

    def expect(self, group: int) -> Hooked:
        """Return the call that a hook is about to note on a group."""
        self.end()  # of the call before
        watched = self._by_number[group]
        is_next = not watched.hooked and watched.seen is not None
        return Hooked(watched, watched.lost or (is_next and watched.counter() == watched.seen))

    def begin(self, hooked: Hooked, number: int, *, is_message: bool) -> None:
        """Remember a call that a hook has noted and is about to make."""
        hooked.number = number
        hooked.began = time.time_ns()
        self._local.hooked = hooked
        if hooked.is_next:
            hooked.watched.latest = hooked
        elif not is_message:
            hooked.watched.hooked.append(hooked)

    def end(self) -> None:
        """Remember that torch has accepted this thread's latest call."""
        hooked: Hooked | None = getattr(self._local, "hooked", None)
        if hooked is None:
            return
        self._local.hooked = None
        hooked.ended = time.time_ns()
        if hooked.is_next:
            hooked.watched.since = hooked.ended
            hooked.watched.seen = hooked.watched.counter()

    def drop(self) -> None:
        """Forget this thread's latest call, which torch has rejected."""
        hooked: Hooked | None = getattr(self._local, "hooked", None)
        if hooked is not None and not hooked.is_next:
            with self._lock:  # before it is marked as ended, or a poll would order it
                if hooked in hooked.watched.hooked:
                    hooked.watched.hooked.remove(hooked)
        self.end()

    # -------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        """Poll until the end of the program, or of the recording."""
        pause = shortest = POLL_S
        next_answer = 0.0  # time before which no lines are told again
        while not (self._over.wait(min(pause, CHECK_S)) or self._notes.off):
            pause -= CHECK_S
            is_asked = time.monotonic() >= next_answer and self._is_asked()
            if pause > 0 and not (self._is_filling() or is_asked):
                continue
            began = time.thread_time()
            shortest = 2 * shortest if self._has_news and not self.poll() else POLL_S
            if is_asked:
                self.tell_lines()
            used = time.thread_time() - began
            pause = min(MAX_POLL_S, max(shortest, used / SHARE))
            if is_asked:
                next_answer = time.monotonic() + pause

    @property
    def _has_news(self) -> bool:
        """True if there may be calls that aren't known, or a call that has ended."""
        return any(one.has_news or one.open >= 0 for one in self._by_number.values())

    def _is_filling(self) -> bool:
        """Return True if calls may be overwritten soon."""
        new = 0
        for watched in self._by_number.values():
            count = watched.counter()
            if count is not None and watched.counted is not None:
                new += count - watched.counted
        return new > FULL * self._size

    def begin_capture(self) -> None:
        """Wait for a poll: during the capture of a CUDA graph no thread may query an event."""
        with self._lock:
            self._captures += 1

    def end_capture(self) -> None:
        """Allow polls again."""
        with self._lock:
            self._captures = max(0, self._captures - 1)

    def finish(self, *, failed: bool) -> None:
        """Note the rest of the calls, at the end of the program.

        Args:
            failed: True if it raised, so that the lines of its latest calls are needed.
        """
        if self._over.is_set() or not self._groups:
            return
        self._over.set()
        with self._lock:
            self.poll()
            if failed:
                self.tell_lines()
            if self._captures and self._has_news:  # the capture has not ended, so nothing was read
                self._lose(0, time.time_ns())
            else:
                self._notes.note_order()

    # ----------------------------------------------------------------------------------- entries

    def poll(self) -> bool:
        """Note the new calls, and return True if there are any."""
        has_found = False
        with self._lock:
            if self._captures or not self._has_news:
                return False
            now = time.time_ns()
            if now < self._polled:  # the clock was set back
                self._lose(0, now)
            counts = [(watched, watched.counter()) for watched in self._by_number.values()]
            for source, dump in self._dumps(stacks=False):
                for place, entry in self._new(source, dump):
                    self._note(source, place, entry)
                    has_found = True
            for watched in self._by_number.values():
                while watched.hooked and 0 < watched.hooked[0].ended < now:
                    self._order(watched, watched.hooked.popleft())
            if not self._last and any(
                watched.has_news and not watched.hooked and count != GONE
                for watched, count in counts
            ):
                self._empty += 1
                if self._empty > 1 or self._over.is_set():
                    self._lose(0, now)  # the recorder is off
            for watched, count in counts:
                if count == watched.counted:  # torch counts a call before it makes the entry
                    watched.seen = count
                watched.counted = count
            self._polled = now
            self._note_waiting()
        return has_found

    def _dumps(self, *, stacks: bool) -> Iterator[tuple[str, bytes]]:
        """Yield the dump of each recorder that has groups.

        With stacks, the first one takes some seconds.
        """
        for backend in sorted(self._backends):
            for source, function, more in sources(backend):
                with suppress(RuntimeError, ValueError):  # this backend has none
                    yield source, function(True, stacks, False, *more)

    def _new(self, source: str, dump: bytes) -> Iterator[tuple[int, FlightEntry]]:
        """Yield the new entries of a recorder with their numbers."""
        last = self._last.get(source, -1)
        entries = self._readers.setdefault(source, RecentEntries()).read(dump, last + 1)
        if not entries:
            return
        first, oldest = entries[0]
        newest, _ = entries[-1]
        if newest < last:  # the program has emptied the recorder
            last = -1
        if first > last + 1:
            self._lose(first - last - 1, oldest.created)
        self._last[source] = newest
        for place, entry in entries:
            if place > last:
                yield place, entry
            elif entry.state != CallState.STARTED:
                self._close(place)

    def _lose(self, calls: int, until: int) -> None:
        """End the comparison of the groups that may have had calls of which there is no entry.

        Args:
            calls: Number of entries that were overwritten before they were read.
            until: Time of the oldest entry.
        """
        for watched in self._by_number.values():
            known = max(watched.since, self._polled)
            if watched.has_news and (known < until or not calls) and not watched.lost:
                watched.lost = True
                watched.open = -1
                self._notes.note_loss(watched.number, calls)

    def _close(self, place: int) -> None:
        for watched in self._by_number.values():
            if watched.entry == place:
                watched.open = -1

    def _note(self, source: str, place: int, entry: FlightEntry) -> None:
        """Note an entry: as the call of a hook if it was made within it."""
        watched = self._groups.get((_kind(entry.backend), entry.group[0]))
        if watched is None or watched.lost:
            return
        if entry.is_message or entry.created < watched.since:
            return
        hooked = watched.hooked
        while hooked and 0 < hooked[0].ended < entry.created:  # it has no entry
            self._order(watched, hooked.popleft())
        if hooked and hooked[0].began <= entry.created:
            watched.latest = hooked.popleft()
            self._order(watched, watched.latest)
        elif entry.place > watched.place and not _is_within(entry, watched.latest):
            call = entry.call
            at_us = entry.created // 1000
            watched.open = self._notes.note_recorded(watched.number, call, at_us)
            watched.entry = place
            self._recorded.append((source, place, watched.open))
            if entry.state != CallState.STARTED:
                watched.open = -1
        watched.place = max(watched.place, entry.place)

    def _order(self, watched: Watched, hooked: Hooked) -> None:
        watched.open = -1  # later calls come after it
        self._notes.note_order(hooked.number)

    def _note_waiting(self) -> None:
        """Note the first call that hadn't ended at the last poll, either."""
        waiting = min((w.open for w in self._by_number.values() if w.open >= 0), default=-1)
        if waiting != self._waiting:
            if self._waiting >= 0:
                self._notes.note_waiting(None)
            self._waiting = waiting
            self._is_told = False
        elif waiting >= 0 and not self._is_told:
            self._is_told = True
            self._notes.note_waiting(waiting)

    def tell_lines(self) -> None:
        """Note the lines of the latest calls that no hook has seen, once each."""
        with self._lock:
            if self._captures or not self._recorded:
                return
            numbers = {(source, place): number for source, place, number in self._recorded}
            self._recorded.clear()
            for source, dump in self._dumps(stacks=True):
                reader = EntryReader()
                for value in load_plain(dump).get("entries") or []:
                    known = numbers.get((source, value[COUNTER]))
                    if known is not None:
                        line = _within_program(reader.read(value).call.source_line)
                        part = _part(value["frames"], line)
                        self._notes.note_line(known, replace(line, part=part, cpp=True))


def sources(backend: str) -> Iterator[tuple[str, Callable[..., bytes], tuple[str, ...]]]:
    """Yield the recorders that may hold calls of a backend: name, function and last arguments."""
    usual = getattr(cpp, "_dump_fr_trace", None)
    if backend == "gloo" and usual is not None:
        yield "gloo", usual, ()
    older = getattr(cpp, "_dump_nccl_trace", None)
    if is_nccl(backend) and older is not None:
        yield "nccl", older, ()
    if is_nccl(backend) and usual is not None and "backend" in (usual.__doc__ or ""):
        for name in {backend, "nccl2"}:  # torch 2.15 and later
            yield name, usual, (name,)


def _kind(backend: str) -> str:
    """Return the name of a backend in the entries, where those of NCCL have several."""
    return "nccl" if is_nccl(backend) else backend


def _within_program(line: SourceLine) -> SourceLine:
    """Return a line without the callers outside the user's program."""
    names = [line.function, *(caller.function for caller in line.callers)]
    end = names.index("<module>") if "<module>" in names else len(names)
    return replace(line, callers=line.callers[:end])


def _part(stack: Iterable[dict[str, Any]], line: SourceLine) -> TorchPart | None:
    """Return the part of torch that makes a call, from its stack up to the user's line."""
    for frame in stack:
        if (frame["filename"], frame["line"]) == (line.file, line.line):
            return None
        if (part := known_part(frame["filename"], frame["name"])) is not None:
            return part
    return None


def _is_within(entry: FlightEntry, hooked: Hooked | None) -> bool:
    """Return True if an entry is another part of a call that a hook has noted."""
    if hooked is None:
        return False
    return hooked.began <= entry.created and (not hooked.ended or entry.created <= hooked.ended)
