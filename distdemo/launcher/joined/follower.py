"""A site without rank 0: it runs its ranks, says how they fared, and does as the leader says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distdemo.errors import DistdemoError, LonelyError
from distdemo.launcher import verdict
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.joined import codec
from distdemo.launcher.joined.course import silence_within
from distdemo.launcher.joined.errand import Errand
from distdemo.launcher.joined.link import Ear, Message
from distdemo.launcher.joined.meeting import Meeting
from distdemo.launcher.joined.post import FAREWELL, Post
from distdemo.launcher.limits import open_files
from distdemo.launcher.records import Died, Raised
from distdemo.launcher.watch import End

if TYPE_CHECKING:
    from distdemo.launcher.joined.seat import Seat
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.workers import Workers

GRACE = 20.0  # seconds beyond a world's timeout that the leader may take for its verdict

ALONE = 2.0  # seconds for the first site to find a fault of all ranks, and to tell it

Resume = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
"""From what an order says to the function to run and its arguments."""


class LeaderLostError(LonelyError):
    """The site of rank 0 is gone or can't be reached: nobody will judge this world."""


class UnheardError(LonelyError):
    """A rank of this site failed before the other sites could be told anything.

    Whoever shows it has to call the others off: see ``through_mpi.call_off``.
    """


class Follower:
    """A site without rank 0; the arguments are a leader's."""

    def __init__(self, seat: Seat, errand: Errand, patience: float) -> None:
        self._post = Post(seat, errand, patience)
        self._errand = errand
        self._seated = False
        self._unseated: tuple[str, bool] | None = None
        self._seat = seat
        self._patience = patience
        self._orders: list[dict[str, Any]] = []
        self._lost: str | None = None
        self._heard_at: float | None = None  # None until the store has answered for the first time

    def serve(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        resume: Resume | None = None,
    ) -> int:
        """Run this site's ranks of one world after the other, until the leader says how it ends.

        Args:
            world: all of it.
            target: what its ranks run first, as for ``run_world``.
            args: as for ``run_world``.
            resume: what they run next, by the leader's order.

        Returns:
            The exit code that the leader chose for all.

        Raises:
            LeaderLostError: nobody will.
            KeyboardInterrupt: after Ctrl-C; other signals go to their own handlers.
        """
        self._take_seat()
        number = 0
        while True:
            self._one_world(world, number, target, args)
            order = self._next_order(("world", "end"), self._patience + world.deadline + GRACE)
            if order["kind"] == "end":
                return int(order["code"])
            assert resume is not None  # noqa: S101 - only commands of several worlds get such orders
            number = int(order["number"])
            target, args = resume(order["what"])

    def _take_seat(self) -> None:
        """Start no rank before it is clear that they belong to this world, where that can be known.

        Raises:
            DistdemoError: they don't.
            LeaderLostError: nobody says so in time.
        """
        if not self._post.met:  # the ranks have to begin before the store is known
            self._introduce()
            return
        until = time.monotonic() + self._patience + ALONE  # the herald gives up first, and says why
        interrupts = Interrupts()
        with interrupts:
            self._post.wait(interrupts, self._note, lambda: self._seated or self._cut_off, until)
        interrupts.redeliver()
        if self._seated or (self._unseated is not None and self._unseated[1]):
            self._introduce()
        if self._unseated is not None:
            raise LeaderLostError(
                "This process can't take part in the world that meets there.",
                f"{self._unseated[0]}.",
                "Give every process the same command, and each rank to one process.",
            )
        if not self._seated:
            raise _lost_leader(self._lost or "nothing was heard of it")

    def _introduce(self) -> None:
        """Tell the leader that this site is here, and what it was asked for."""
        self._post.send(
            "post",
            "here",
            site=self._seat.site,
            host=self._post.host,
            digest=self._errand.digest,
            words=self._errand.words,
        )

    def refuse(self, error: DistdemoError) -> None:
        """Tell the leader that this site can't take part."""
        self._post.send(
            "post",
            "refused",
            site=self._seat.site,
            host=self._post.host,
            what=error.what,
            why=error.why,
            hint=error.hint,
        )

    def leave(self) -> None:
        """Let the herald go; one that waits for an answer in vain has no farewell to take."""
        self._post.leave(0.2 if self._cut_off else FAREWELL)

    # ------------------------------------------------------------------------------ one world

    def _one_world(
        self, world: WorldSpec, number: int, target: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        interrupts = Interrupts()
        with interrupts, open_files(world):
            began = time.time()
            workers = self._post.workers(world, number, interrupts)
            try:
                workers.start(target, args)
                ear = Ear(self._post.link, self._note, lambda: self._over(number))
                workers.watch(lambda rank, value: self._tell(number, rank, value), [ear])
                self._report(workers, number, began)
                if not (workers.well or self._post.met or self._cut_off):
                    self._give_up(world, workers, interrupts)
                deadline = workers.began + world.deadline + GRACE
                self._post.wait(interrupts, self._note, lambda: self._over(number), deadline)
            finally:
                workers.end()
        interrupts.redeliver()

    def _give_up(self, world: WorldSpec, workers: Workers, interrupts: Interrupts) -> None:
        """A rank failed before the ranks could agree on a store: nobody can be told of it.

        The first site finds the same if all ranks failed; else the engine ends those that wait
        once this process fails.

        Raises:
            UnheardError: about this site's ranks.
        """
        until = time.monotonic() + ALONE
        self._post.wait(interrupts, self._note, lambda: self._cut_off, until)
        failed = [each for each in workers.outcomes() if isinstance(each, Died | Raised)]
        judged = verdict.judge(world, failed)
        if failed and judged is not None and interrupts.received is None:
            raise UnheardError(judged.what, judged.why, judged.hint)

    def _tell(self, number: int, rank: int, value: Any) -> None:  # noqa: ANN401 - what a rank tells
        if isinstance(value, Meeting):
            self._post.meet(value)
            return
        self._post.send("post", "told", site=self._seat.site, number=number, rank=rank, value=value)

    def _report(self, workers: Workers, number: int, began: float) -> None:
        self._post.send(
            "post",
            "ended",
            site=self._seat.site,
            number=number,
            began=began,
            outcomes=workers.outcomes(),
            stalled=workers.ended is End.STALLED,
        )

    # ------------------------------------------------------------------------------- the leader

    def _note(self, message: Message) -> None:
        kind, *rest = message
        if kind == "lost":
            self._lost = str(rest[0])
        elif kind == "heard":
            self._heard_at = time.monotonic()
            self._post.answer()
        elif kind == "seated":
            self._seated = True
        elif kind == "unseated":
            self._unseated = (str(rest[0]), bool(rest[1]))
            self._lost = self._unseated[0]
        elif kind == "order":
            self._orders.append(codec.decode(rest[0]))

    @property
    def _cut_off(self) -> bool:
        """Whether nothing more can come from the leader."""
        if self._lost is not None or self._post.link.closed:
            return True
        heard_at = self._heard_at
        return heard_at is not None and time.monotonic() - heard_at > silence_within(self._patience)

    def _over(self, number: int) -> bool:
        """Whether the ranks of this world are to leave."""
        if self._cut_off:
            return True
        return any(
            order["kind"] in ("end", "gone") or order.get("number", -1) >= number
            for order in self._orders
        )

    def _next_order(self, kinds: tuple[str, ...], seconds: float) -> dict[str, Any]:
        """The next order of one of these kinds; others are for a world that has ended."""
        until = time.monotonic() + seconds
        while True:
            while self._orders:
                order = self._orders.pop(0)
                if order["kind"] in kinds:
                    return order
                if order["kind"] == "gone":
                    raise _lost_leader("its process is gone")
            if self._cut_off:
                raise _lost_leader(self._lost or "its store does not answer any more")
            if not self._post.wait(
                None, self._note, lambda: bool(self._orders) or self._cut_off, until
            ):
                raise _lost_leader("it gave no order in time")


def _lost_leader(why: str) -> LeaderLostError:
    return LeaderLostError(
        "The verdict of rank 0 is not to be had.",
        f"{why[:1].upper()}{why[1:].rstrip('.')}.",
        "Look at what rank 0 printed, and whether its host can be reached.",
    )
