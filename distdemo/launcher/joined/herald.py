"""The herald of a site: the process that talks with the other sites through the store they share.

It is forked from the site's process, holds the only connection to the store, and ends when the
site ends. So the site itself never waits on a network and keeps a single thread; and if the site's
process is killed, its herald is left to say so to the others.

What sites say to the leader goes into one sequence of posts, what the leader says to all into one
of orders. Posts and orders are texts of ``joined.codec``: nothing in them is ever unpickled, as a
store has no authentication.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from distdemo.launcher.joined.apart import apart
from distdemo.launcher.joined.board import Board
from distdemo.launcher.joined.codec import decode, encode
from distdemo.launcher.joined.course import silence_within
from distdemo.launcher.joined.link import Link
from distdemo.launcher.joined.meeting import Meeting

if TYPE_CHECKING:
    from distdemo.launcher.joined.seat import Seat

PAUSE = 0.02  # seconds between two looks at the store, for a small world; see ``_pause``
BEAT = 0.5  # seconds between two signs of life
UNRESPONSIVE = 30.0  # seconds that a site's process may be too busy to answer its herald
GAP = 2.0  # seconds that a post may be announced without being there: its herald has died
CONDOLENCE = 0.3  # seconds to learn whose process ended first, once the leader's is gone
FAREWELL = 2.0  # seconds that the leader's store stays for the others to read the last order


@dataclass(slots=True)
class Herald:
    """One site's voice and ear.

    Attributes:
        seat: of the site; number 0 is the leader.
        digest: of what all sites have to have been asked for.
        link: to the site's process.
        patience: seconds that the store may take to appear.
    """

    seat: Seat
    digest: str
    link: Link
    patience: float
    _dismissed: bool = False
    _interrupted: bool = False
    _alone_since: float = 0.0  # on the wall clock
    _ends: dict[int, float] = field(default_factory=dict)  # of sites, on the wall clock
    _litter: tuple[str, ...] = ()
    _stderr: int = 2
    _board: Board | None = None
    _up_at: float = 0.0
    _next_post: int = 1
    _next_order: int = 1
    _missing_since: float | None = None
    _beat_at: float = 0.0
    _waiting: list[tuple[str, str]] = field(default_factory=list)

    def live(self, meeting: Meeting | None) -> None:
        """The whole life of the herald's process.

        Args:
            meeting: where the store is; None: the site will tell.
        """
        self._stderr = apart()
        try:
            if meeting is not None:
                self._open(meeting)
            self._serve()
        except Exception as error:  # noqa: BLE001 - whatever the network did, the site must hear of it
            self.link.send("lost", self._in_words(meeting, error))
        self._leave()

    # --------------------------------------------------------------------------------- store

    def _open(self, meeting: Meeting) -> None:
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        if not self.seat.hosted and meeting.listening is None:
            self._await(meeting)
        store = TCPStore(
            meeting.host,
            meeting.port,
            None,
            meeting.listening is not None,
            timeout=timedelta(seconds=self.patience),
            wait_for_workers=False,
            master_listen_fd=meeting.listening,
        )
        store.set_timeout(timedelta(seconds=silence_within(self.patience)))
        self._board = Board(PrefixStore(f"{meeting.prefix}/sites", store), self.seat.site)
        self._up_at = time.monotonic()
        self._take_seat(self._board)
        for kind, text in self._waiting:
            self._say(kind, text)
        self._waiting.clear()

    def _take_seat(self, board: Board) -> None:
        """Tell the site whether its ranks belong to the world that meets here."""
        taken = board.is_taken()
        if self.seat.site == 0:
            board.ask(self.digest)
            return
        if taken:
            rank = self.seat.ranks_of(self.seat.site)[0]
            self.link.send("unseated", f"Another process is rank {rank} of it already", False)
            return
        board.come()
        until = time.monotonic() + self.patience
        while not board.asked() and time.monotonic() < until and not self._site_is_gone():
            select.poll().poll(1000 * PAUSE)
        if board.asked() not in ("", self.digest):
            self.link.send("unseated", "Rank 0 was asked for something else", True)
        else:
            self.link.send("seated")

    def _site_is_gone(self) -> bool:
        """Whether the site has gone, asked without taking what it has said."""
        hung_up = select.poll()
        hung_up.register(self.link.fileno(), 0)
        return bool(hung_up.poll(0))

    def _await(self, meeting: Meeting) -> None:
        """Wait until another herald holds the store, or this site has gone: torch would not notice.

        Raises:
            OSError: there is nobody to tell.
        """
        hung_up = select.poll()
        hung_up.register(self.link.fileno(), 0)  # that the site has gone is told unasked
        until = time.monotonic() + self.patience
        while True:
            try:
                socket.create_connection((meeting.host, meeting.port), BEAT).close()
            except OSError:
                if hung_up.poll(1000 * PAUSE):
                    until = min(until, time.monotonic() + FAREWELL)
                    hung_up.unregister(self.link.fileno())
                if time.monotonic() > until:
                    raise
            else:
                return

    def _in_words(self, meeting: Meeting | None, error: Exception) -> str:
        if self._board is None and meeting is not None:
            place = f"{meeting.host}:{meeting.port}"
            return f"nothing answered at {place} within {self.patience:g} s"
        return str(error).strip().partition("\n")[0]

    def _serve(self) -> None:
        """Pass on what comes from either side until the site has gone."""
        poll = select.poll()
        poll.register(self.link.fileno(), select.POLLIN | select.POLLHUP)
        while not self.link.closed:
            poll.poll(1000 * self._pause())
            for kind, *rest in self.link.receive():
                if kind == "meet":
                    self._litter = rest[0].litter
                    self._open(rest[0])
                elif kind == "up":
                    self._up_at = time.monotonic()
                elif kind == "interrupted":
                    self._interrupted = True
                else:
                    self._say(kind, rest[0])
                    self._dismissed |= kind == "order" and _is(rest[0], "end")
            if self._board is not None and not self.link.closed:
                self._look(self._board)
        self._alone_since = time.time()

    def _pause(self) -> float:
        """Seconds between two looks: longer with many sites, as one process answers them all."""
        return max(PAUSE, 0.0005 * self.seat.sites)

    def _say(self, kind: str, text: str) -> None:
        """Post to the leader, or order all."""
        if self._board is None:
            self._waiting.append((kind, text))
            return
        self._board.write(kind, text, self._beat_in_time)

    def _look(self, board: Board) -> None:
        """See what is new: orders for a site, posts and signs of life for the leader."""
        if self.seat.site == 0:
            self._take_posts(board)
        else:
            while board.has("order", self._next_order):
                self.link.send("order", board.read("order", self._next_order))
                self._next_order += 1
        self._beat_in_time()

    def _take_posts(self, board: Board) -> None:
        while board.has("post", self._next_post):
            self.link.send("post", self._take_post(board))
            self._missing_since = None
        if board.announced("post") < self._next_post:
            return
        # Announced, but not there: it comes within a moment, unless its herald died in between.
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        if now - self._missing_since > GAP:
            self._next_post += 1
            self._missing_since = None

    def _take_post(self, board: Board) -> str:
        """The next post, which is there; whose process has ended is kept for the leader's end."""
        text = board.read("post", self._next_post)
        self._next_post += 1
        if _is(text, "gone"):
            post = decode(text)
            self._ends.setdefault(post["site"], post["at"])
        return text

    def _beat_in_time(self) -> None:
        """Give a sign of life now and then, unless the site itself gives none to its herald."""
        now = time.monotonic()
        board = self._board
        if board is None or now - self._beat_at < BEAT:
            return
        self._beat_at = now
        if now - self._up_at < UNRESPONSIVE:
            board.beat()
        if self.seat.site == 0:
            self.link.send("silence", board.silence(range(1, self.seat.sites)))
            return
        self.link.send("heard")  # an answer came: the store can be reached
        if board.silence((0,)).get(0, 0.0) > UNRESPONSIVE:
            self.link.send("lost", "its process does not answer any more")

    # ----------------------------------------------------------------------------------- end

    def _speak_for_the_dead(self, board: Board) -> None:
        """The process of rank 0 was killed before it could judge: say whose end came first.

        hydra, for one, kills all ranks as soon as one of them is gone.
        """
        until = time.monotonic() + CONDOLENCE
        while time.monotonic() < until:
            while board.has("post", self._next_post):
                self._take_post(board)
            select.poll().poll(5)
        first = self.seat.ranks_of(min(self._ends, key=lambda site: self._ends[site], default=0))[0]
        text = f"the process of rank {first} ended without a word, before all others."
        more = "Then that of rank 0, which would have said more, was killed too."
        if self._interrupted:
            text, more = "interrupted.", "All its ranks are gone."
        elif not first:
            more = "It was killed, or its host ran out of memory: look there."
        with suppress(OSError):  # whoever read it has gone
            os.write(self._stderr, f"distdemo: {text}\n{more}\n".encode())

    def _leave(self) -> None:
        """Say that the site has gone, and keep the store until the others have read it all."""
        for path in self._litter:
            with suppress(OSError):  # the ranks have removed it themselves
                os.unlink(path)  # noqa: PTH108 - a path is all it is
        board = self._board
        if board is None:
            return
        with suppress(Exception):  # the network may be what failed
            if not board.came and self.seat.site > 0:
                return  # another process has this seat
            gone = {"kind": "gone", "site": self.seat.site, "at": self._alone_since}
            self._say("post", encode(gone))
            if self.seat.site == 0:
                self._say("order", encode({"kind": "gone"}))
                if not self._dismissed:
                    self._speak_for_the_dead(board)
                until = time.monotonic() + FAREWELL
                while not board.all_left() and time.monotonic() < until:
                    select.poll().poll(10)
            else:
                board.leave()


def _is(text: str, kind: str) -> bool:
    """Whether a post or an order is of this kind; most are too large to be read for that."""
    return text.startswith(encode({"kind": kind})[:-2])
