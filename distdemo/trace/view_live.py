"""A trace played in place, at the pace that people like; where nobody can see that, printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from distdemo.trace.tracing import TraceReport
from distdemo.trace.view_frames import Frame
from distdemo.trace.view_keys import Keys, NoKeys, pressed
from distdemo.trace.view_rounds import Rounds, ending, preamble, trace_view
from distdemo.view import colours
from distdemo.view.console import Signs, show, signs

SECONDS = 1.2  # that a round stands at speed 1
SLOWEST, FASTEST = 1 / 16, 64.0
EPSILON = 1e-6  # seconds that are as good as none: sums of floats don't come out even
TICK = 0.25  # seconds at most between two looks at the clock
AROUND = 9  # lines of a picture besides ranks and arrows: titles, the table's frame, the status
BAR = 20  # columns of the bar of rounds
HINT = "space: pause   ← →: step   + −: speed   0: restart   q: quit"


@dataclass(slots=True)
class Player:
    """Which frame is seen, and when the next one is due.

    Attributes:
        last: the number of the last frame.
        speed: 2 is twice as quick.
        place: of the frame that is seen.
        playing: it goes on by itself.
        left: seconds until it does.
        over: there is nothing more to see, or it was left.
    """

    last: int
    speed: float
    place: int = 0
    playing: bool = True
    left: float = 0.0
    over: bool = False

    def __post_init__(self) -> None:
        """The first frame stands as long as any."""
        self.speed = min(FASTEST, max(SLOWEST, self.speed))
        self.left = SECONDS / self.speed

    def pass_by(self, seconds: float) -> None:
        """So much time has gone."""
        if not self.playing:
            return
        self.left -= seconds
        if self.left > EPSILON:
            return
        if self.place == self.last:
            self.over = True
        else:
            self._show(self.place + 1)

    def act(self, asked: str) -> None:
        """Do what a key asks for."""
        if asked == "quit":
            self.over = True
        elif asked == "pause":
            self.playing = not self.playing
        elif asked in ("next", "back"):
            self.playing = False
            self._show(self.place + (1 if asked == "next" else -1))
        elif asked == "restart":
            self._show(0)
        else:
            factor = 2.0 if asked == "faster" else 0.5
            self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))
            self.left = min(self.left, SECONDS / self.speed)

    def _show(self, place: int) -> None:
        self.place = min(self.last, max(0, place))
        self.left = SECONDS / self.speed


def play(
    report: TraceReport,
    console: Console,
    speed: float = 1.0,
    ranks: frozenset[int] | None = None,
    keys: AbstractContextManager[Keys] | None = None,
) -> None:
    """Play what was recorded, then print what came of it; ends by itself unless it is paused.

    Args:
        report: of a run, or of paper.
        console: where to; one that is no terminal, or can't show the signs, gets the rounds.
        speed: 1 is a round in 1.2 s.
        ranks: those to show; None: the usual choice.
        keys: where they come from; None: from standard input, if that is a terminal.

    Raises:
        Terminated: SIGTERM came; the terminal is as it was.
    """
    if not can_play(report, console):
        show(console, trace_view(report, console, ranks))
        return
    rounds = Rounds(report, console, _that_fit(report, console, ranks))
    console.print(*preamble(report, console), Text(), rounds.legend(), Text(), sep="\n")
    with keys or pressed() as source:
        _play(Player(len(rounds.frames) - 1, speed), rounds, console, source)
    show(console, Group(*ending(report, console)))


def can_play(report: TraceReport, console: Console) -> bool:
    """Whether there are rounds, and a terminal that can draw over what it drew."""
    seen = console.is_terminal and not console.is_dumb_terminal
    isatty = getattr(console.file, "isatty", None)  # Rich takes FORCE_COLOR for a terminal
    really = bool(isatty and isatty())
    return bool(report.rounds) and seen and really and signs(console) == Signs()


def _that_fit(
    report: TraceReport, console: Console, ranks: frozenset[int] | None
) -> frozenset[int] | None:
    """Of more ranks than the terminal has lines for: those of both ends."""
    n = report.spec.op.group_size
    wanted = sorted(ranks if ranks is not None else range(n))
    room = max(4, console.height - AROUND - 1 - n * 16 // console.width)
    if len(wanted) <= room or (ranks is None and n > room >= 9 and n > 16):
        return ranks
    return frozenset([*wanted[: room - room // 2], *wanted[len(wanted) - room // 2 :]])


def _play(player: Player, rounds: Rounds, console: Console, keys: Keys) -> None:
    controlled = not isinstance(keys, NoKeys)
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:

        def draw() -> tuple[int, bool, float]:
            frame = rounds.frames[player.place]
            picture = _picture(rounds, frame, player, signs(console), controlled=controlled)
            live.update(picture, refresh=True)
            return (player.place, player.playing, player.speed)

        drawn, before = draw(), keys.now()
        while not player.over:
            for asked in keys.read(min(TICK, player.left) if player.playing else TICK):
                player.act(asked)
            player.pass_by((now := keys.now()) - before)
            before = now
            if player.over or drawn != (player.place, player.playing, player.speed):
                drawn = draw()


def _picture(
    rounds: Rounds, frame: Frame, player: Player, sign: Signs, *, controlled: bool
) -> RenderableType:
    status = Text(f" {sign.dot} ".join(_status(player)), style=colours.QUIET)
    parts = [*rounds.draw(frame, steady=True), status]
    if controlled:
        parts.append(Text(HINT if not player.over else "", style=colours.QUIET))
    return Group(*parts)


def _status(player: Player) -> Iterator[str]:
    done = round(BAR * player.place / player.last)
    yield f"{'━' * done}{'╌' * (BAR - done)} {player.place}/{player.last}"
    if not player.over:
        yield "playing" if player.playing else "paused"
        yield f"speed {player.speed:g}"
