"""What the leader knows of the other sites in one world: pure bookkeeping over their posts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from distdemo.launcher.records import Lost, Outcome, Returned, Stopped

SILENT = 8.0  # seconds without a sign of life after which a site counts as lost, at most
SHORTEST = 2.0  # and at least: a busy machine or a slow cable delays one

_NEVER = "never came, nothing was heard of the process"
_HINTS = {
    "never": "Look whether it was started, and whether it reaches the address of the store.",
    "gone": "It was killed, or its host ran out of memory: look there.",
    "silent": "Its host is down, or cannot be reached any more: look at the network between them.",
    "late": "Its ranks may still hang: look there.",
}


def silence_within(timeout: float) -> float:
    """Seconds without a sign of life after which a site counts as lost.

    Half of the world's timeout if that is short: so a host that is cut off is told from ranks that
    are only late.
    """
    return max(SHORTEST, min(SILENT, timeout / 2))


@dataclass(slots=True)
class SiteState:
    """One of the other sites.

    Attributes:
        host: its name, empty while it has not said a word.
        outcomes: how its ranks ended in this world; None while they have not.
        lost: why nothing more can come from it, and what to try; None while it may.
        lost_at: when that was noticed, on the monotonic clock.
        early: the world ended before it had to have come.
    """

    host: str = ""
    outcomes: tuple[Outcome, ...] | None = None
    lost: tuple[str, str] | None = None
    lost_at: float = 0.0
    early: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.outcomes is not None or self.lost is not None

    @property
    def failed(self) -> bool:
        """Whether it is known that its ranks did not all return."""
        ended = self.outcomes
        return self.lost is not None or (
            ended is not None and not all(isinstance(each, Returned) for each in ended)
        )


@dataclass(slots=True)
class Course:
    """How a world goes on the other sites.

    Attributes:
        sites: by number, without the leader's own.
        patience: seconds without a sign of life after which one counts as lost.
        began: when the leader's first rank was started: on the wall clock, then the monotonic one.
        failed_at: when the first site was known to have failed; None while none is.
        stalled: a site gave up because its ranks made no progress.
    """

    sites: dict[int, SiteState]
    patience: float = SILENT
    began: tuple[float, float] = field(default_factory=lambda: (time.time(), time.monotonic()))
    failed_at: float | None = None
    stalled: bool = False

    @property
    def done(self) -> bool:
        """Whether every site has ended or is lost."""
        return all(site.done for site in self.sites.values())

    @property
    def answered(self) -> bool:
        """Whether there is nothing to wait for but sites of which nothing was ever heard."""
        return all(site.done or not site.host for site in self.sites.values())

    def ended(self, site: int, post: dict[str, Any]) -> None:
        """A site says how its ranks ended; their moments are moved onto the leader's clock.

        Of one that should not have begun it does not count.
        """
        if self.sites[site].lost is not None:
            return
        shift = float(post["began"]) - self.began[0]
        outcomes = tuple(replace(each, at=each.at + shift) for each in post["outcomes"])
        self.sites[site].outcomes = outcomes
        self.stalled |= bool(post["stalled"])
        self._look(site)

    def lose(self, site: int, why: str, hint: str) -> None:
        """Nothing more can come from a site."""
        state = self.sites[site]
        if not state.done:
            state.lost = (why, hint)
            state.lost_at = time.monotonic()
            self._look(site)

    def refuse(self, site: int, why: str, hint: str) -> None:
        """A site should not have begun: whatever else went wrong is a consequence."""
        self.sites[site].outcomes = None
        self.lose(site, why, hint)
        self.sites[site].lost_at = self.began[1]

    def gone(self, site: int) -> None:
        """Its process is gone, its herald says."""
        self.lose(site, f"the process{self._on(site)} ended without a word", _HINTS["gone"])

    def silent(self, seconds: dict[int, float]) -> None:
        """Note the sites that gave no sign of life for too long.

        Args:
            seconds: since each one's last sign.
        """
        for site, silence in seconds.items():
            if silence > self.patience and site in self.sites:
                why = f"no sign of life{self._on(site)} for {silence:.0f} s"
                self.lose(site, why, _HINTS["silent"])

    def give_up(self, *, early: bool = False) -> None:
        """Time is up: whoever has not ended by now is lost.

        Args:
            early: others failed before time was up: who was not heard of is not to blame.
        """
        for site, state in self.sites.items():
            if not state.host:
                state.early = early and not state.done
                self.lose(site, _NEVER, _HINTS["never"])
            else:
                why = f"the process{self._on(site)} did not say in time how it went"
                self.lose(site, why, _HINTS["late"])

    def outcomes(self, site: int, ranks: range) -> tuple[Outcome, ...]:
        """How the ranks of a site ended; it has ended or is lost."""
        state = self.sites[site]
        if state.outcomes is not None:
            return state.outcomes
        why, hint = state.lost or (_NEVER, _HINTS["never"])
        if state.early:
            return tuple(Stopped(rank=rank, at=state.lost_at - self.began[1]) for rank in ranks)
        at = (state.lost_at or time.monotonic()) - self.began[1]
        return tuple(Lost(rank=rank, at=at, why=why, hint=hint) for rank in ranks)

    def _on(self, site: int) -> str:
        """`` on HOST``, if its name is known."""
        return f" on {self.sites[site].host}" if self.sites[site].host else ""

    def _look(self, site: int) -> None:
        if self.failed_at is None and self.sites[site].failed:
            self.failed_at = time.monotonic()
