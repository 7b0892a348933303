"""A trace played in place, at the pace that people like."""

from __future__ import annotations

from time import sleep

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from distdemo.trace.records import TraceReport
from distdemo.trace.view import Rounds, preamble
from distdemo.view import colours
from distdemo.view.console import Signs, signs

SECONDS = 1.2  # that a round stands at speed 1
BAR = 20  # columns of the bar of rounds


def can_play(report: TraceReport, console: Console) -> bool:
    """Whether there are rounds, and a terminal that can draw over what it drew."""
    isatty = getattr(console.file, "isatty", None)  # Rich takes FORCE_COLOR for a terminal
    really = console.is_terminal and not console.is_dumb_terminal and bool(isatty and isatty())
    return bool(report.rounds) and really and signs(console) == Signs()


def play(report: TraceReport, console: Console, speed: float, ranks: frozenset[int] | None) -> None:
    """Play all rounds, one after the other.

    Args:
        report: of a run, or of paper.
        console: a terminal.
        speed: 1 is a round in 1.2 s.
        ranks: those to show; None: the usual choice.

    Raises:
        KeyboardInterrupt: Ctrl-C; the terminal is as it was.
    """
    rounds = Rounds(report, console, ranks)
    console.print(*preamble(report, console), rounds.legend(), Text(), sep="\n")
    last, lines = len(rounds.frames) - 1, rounds.most_lines
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        for place, frame in enumerate(rounds.frames):
            done = round(BAR * place / last)
            status = f"{'━' * done}{'╌' * (BAR - done)} {place}/{last}"
            drawn = [*rounds.draw(frame, lines=lines), Text(status, style=colours.QUIET)]
            live.update(Group(*drawn), refresh=True)
            sleep(SECONDS / speed)
