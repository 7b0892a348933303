"""The site of rank 0: it hears how the others fare, judges the world, and tells them to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from distdemo.launcher import verdict
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.joined import codec
from distdemo.launcher.joined.course import Course, SiteState, silence_within
from distdemo.launcher.joined.errand import Errand
from distdemo.launcher.joined.link import Ear, Message
from distdemo.launcher.joined.meeting import Meeting
from distdemo.launcher.joined.post import Post
from distdemo.launcher.limits import open_files
from distdemo.launcher.records import Outcome, Verdict, WorldReport
from distdemo.launcher.watch import SETTLE, End, Hear

if TYPE_CHECKING:
    from distdemo.launcher.joined.seat import Seat
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.workers import Workers

GRACE = 3.0  # seconds that other sites get to say how their ranks ended, once they have to stop
LAST_WORDS = 0.7  # seconds that a leader who was told to stop waits for what the others know

_INTERRUPTED = Verdict("The run was interrupted.", "All its ranks were stopped.", "")


class Leader:
    """The site of rank 0.

    Args:
        seat: its place in the world.
        errand: what this program was asked to do; the other sites must have been asked the same.
        patience: seconds that the other sites may take to appear.
    """

    def __init__(self, seat: Seat, errand: Errand, patience: float) -> None:
        self._post = Post(seat, errand, patience)
        self._seat = seat
        self._errand = errand
        self._patience = patience
        self._hosts: dict[int, str] = {0: self._post.host}
        self._refused: dict[int, tuple[str, str]] = {}
        self._worlds = 0
        self._lost: str | None = None
        self._news_at = 0.0
        self._course = self._new_course()

    def run(  # noqa: PLR0913 - the launcher's contract, and the order
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        meanwhile: Callable[[], object] | None = None,
        hear: Hear | None = None,
        order: Any = None,  # noqa: ANN401 - whatever the codec takes
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on this site's ranks, and judge the whole world.

        Args:
            world: all of it.
            target: as for ``run_world``.
            args: as for ``run_world``.
            meanwhile: as for ``run_world``.
            hear: gets the values that ranks tell, those of other sites too.
            order: tells the other sites what to run, unless this is the first world.

        Raises:
            KeyboardInterrupt: after Ctrl-C; other signals go to their own handlers. Unless it was
                the consequence of a failure that the others know: then that is reported.
        """
        number = self._worlds
        self._worlds += 1
        self._course = self._new_course()
        if number:
            self._post.send("order", "world", number=number, what=order)
        interrupts = Interrupts()
        with interrupts, open_files(world):
            workers = self._post.workers(world, number, interrupts)
            try:
                workers.start(target, args)
                if meanwhile is not None:
                    meanwhile()
                self._watch(workers, world, hear)
                if interrupts.received is not None:
                    self._post.interrupted()
                self._gather(workers, world, interrupts, number)
            finally:
                self._post.send("order", "release", number=number)
                workers.end()
            report = self._report(world, workers, interrupts.received)
        if report.interrupted_by is not None:
            interrupts.redeliver()
        return report

    def end(self, code: int) -> None:
        """Tell every site to leave, and with which exit code; then let the herald go."""
        self._post.send("order", "end", code=code)
        self._post.leave()

    # ------------------------------------------------------------------------------ the others

    def _new_course(self) -> Course:
        course = Course(
            {site: SiteState(self._hosts.get(site, "")) for site in range(1, self._seat.sites)},
            silence_within(self._patience),
        )
        for site, (why, hint) in self._refused.items():
            course.refuse(site, why, hint)
        return course

    def _watch(self, workers: Workers, world: WorldSpec, hear: Hear | None) -> None:
        self._hear = hear
        self._enough = False
        workers.watch(self._told, [Ear(self._post.link, self._note, self._over)])

    def _told(self, rank: int, value: Any) -> bool:  # noqa: ANN401 - whatever a rank tells
        if isinstance(value, Meeting):
            self._post.meet(value)
        elif self._hear is not None and not self._enough:
            self._enough = self._hear(rank, value) is True
        return self._enough

    def _over(self) -> bool:
        """Whether this site's ranks need go on no longer."""
        failed_at = self._course.failed_at
        failed = failed_at is not None and time.monotonic() >= failed_at + SETTLE
        return failed or self._enough or self._cut_off

    @property
    def _cut_off(self) -> bool:
        """Whether nothing more can come from the others."""
        return self._lost is not None or self._post.link.closed

    def _note(self, message: Message) -> None:
        """Take a message of the herald."""
        kind, *rest = message
        if kind == "silence":
            self._post.answer()
            self._course.silent(rest[0])
        elif kind == "lost":
            self._lost = str(rest[0])
        elif kind == "post":
            self._news_at = time.monotonic()
            with suppress(ValueError, KeyError, TypeError):  # nobody of ours says such things
                post = codec.decode(rest[0])
                _HANDLERS[post["kind"]](self, post["site"], post)

    def _here(self, site: int, post: dict[str, Any]) -> None:
        self._hosts[site] = self._course.sites[site].host = post["host"]
        if post["digest"] != self._errand.digest:
            self._refuse(
                site,
                f"asked for something else than rank 0: distdemo {post['words']}",
                "Give every process the same command.",
            )

    def _on_told(self, site: int, post: dict[str, Any]) -> None:
        if post["number"] == self._worlds - 1:
            self._told(post["rank"], post["value"])

    def _ended(self, site: int, post: dict[str, Any]) -> None:
        if post["number"] == self._worlds - 1:
            self._course.ended(site, post)

    def _on_refused(self, site: int, post: dict[str, Any]) -> None:
        on = post["host"]
        self._hosts[site] = self._course.sites[site].host = on
        self._refuse(
            site, f"can't take part on {on}: {post['what']} {post['why']}".rstrip("."), post["hint"]
        )

    def _refuse(self, site: int, why: str, hint: str) -> None:
        self._refused[site] = (why, hint)
        self._course.refuse(site, why, hint)

    def _gone(self, site: int, post: dict[str, Any]) -> None:
        if site in self._course.sites:
            self._course.gone(site)

    # --------------------------------------------------------------------------------- the end

    def _gather(
        self, workers: Workers, world: WorldSpec, interrupts: Interrupts, number: int
    ) -> None:
        """Wait until every site has ended; those that don't in time are lost."""
        if workers.ended is End.DONE and workers.well:
            until = workers.began + world.deadline + GRACE
            self._news_at = time.monotonic()
            self._post.wait(interrupts, self._note, partial(self._enough_of, world), until)
        stop = not self._course.done
        settled = time.monotonic() + LAST_WORDS  # a site may be about to say its first word
        self._post.wait(None, self._note, lambda: self._course.done, settled)
        if stop:
            self._post.send("order", "stop", number=number)
        until = time.monotonic() + (LAST_WORDS if interrupts.received else GRACE)
        self._post.wait(None, self._note, self._answered, until)
        self._course.give_up(early=time.monotonic() < workers.began + world.deadline)

    def _answered(self) -> bool:
        return self._course.answered

    def _enough_of(self, world: WorldSpec) -> bool:
        """Whether there is nothing to wait for, or no news has come for longer than patience."""
        silence = time.monotonic() - self._news_at
        stalled = world.stall is not None and silence > world.stall + GRACE
        return self._course.done or self._over() or stalled

    def _report(self, world: WorldSpec, workers: Workers, received: int | None) -> WorldReport:
        outcomes = self._outcomes(workers)
        stalled = workers.ended is End.STALLED or self._course.stalled
        judged = verdict.judge(world, outcomes, stalled=stalled)
        method = self._post.method(world)
        caused = judged is not None and judged.ranks and self._course.failed_at is not None
        interrupted = received if not caused else None
        if self._cut_off and judged is not None and interrupted is None:
            judged = self._without_store(judged)
        return WorldReport(
            world=world,
            outcomes=outcomes,
            verdict=judged if interrupted is None else _INTERRUPTED,
            seconds=time.monotonic() - workers.began,
            start_method=method.name,
            start_reason=method.reason,
            interrupted_by=interrupted,
            engine=self._seat.engine,
            hosts=self._hosts_of_ranks(),
        )

    def _without_store(self, judged: Verdict) -> Verdict:
        """Nobody is to blame: what the others had to say could not be heard."""
        return Verdict(
            "Rank 0 lost the store through which the others tell how they fare.",
            f"{self._lost or 'Its own process beside rank 0 is gone'}.",
            "Look at what holds the store: the engine, or the memory of this host.",
            (),
            (*judged.ranks, *judged.consequences),
        )

    def _outcomes(self, workers: Workers) -> tuple[Outcome, ...]:
        others = (
            outcome
            for site in range(1, self._seat.sites)
            for outcome in self._course.outcomes(site, self._seat.ranks_of(site))
        )
        return tuple(sorted((*workers.outcomes(), *others), key=lambda outcome: outcome.rank))

    def _hosts_of_ranks(self) -> tuple[str, ...]:
        """The host of each rank; empty if there is but one."""
        if len(set(self._hosts.values())) < 2:
            return ()
        return tuple(
            self._hosts.get(site, "?")
            for site in range(self._seat.sites)
            for _ in self._seat.ranks_of(site)
        )


_HANDLERS: dict[str, Callable[[Leader, int, dict[str, Any]], None]] = {
    "here": Leader._here,  # noqa: SLF001 - a table of its own methods
    "told": Leader._on_told,  # noqa: SLF001 - as above
    "ended": Leader._ended,  # noqa: SLF001 - as above
    "refused": Leader._on_refused,  # noqa: SLF001 - as above
    "gone": Leader._gone,  # noqa: SLF001 - as above
}
