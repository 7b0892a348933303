"""Play a trace in place in the terminal."""

from __future__ import annotations

from time import sleep

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from distdemo.trace.records import TraceReport
from distdemo.trace.view import Rounds, preamble
from distdemo.view import colours
from distdemo.view.console import Signs, signs

ROUND_S = 1.2  # seconds that each round is shown at speed 1
BAR = 20  # columns of the bar of rounds


def can_play(report: TraceReport, console: Console) -> bool:
    """Return True if there are rounds and the terminal can redraw in place."""
    isatty = getattr(console.file, "isatty", None)  # with FORCE_COLOR, Rich assumes a terminal
    really = console.is_terminal and not console.is_dumb_terminal and bool(isatty and isatty())
    return bool(report.rounds) and really and signs(console) == Signs()


def play(report: TraceReport, console: Console, speed: float, ranks: frozenset[int] | None) -> None:
    """Play all rounds, one after the other.

    Args:
        report: Report of a run or a simulation.
        console: Terminal.
        speed: Speed; 1 shows each round for 1.2 s.
        ranks: Ranks to show; None for the default selection.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed. The terminal is restored.
    """
    rounds = Rounds(report, console, ranks)
    console.print(*preamble(report, console), rounds.legend(), Text(), sep="\n")
    last, lines = len(rounds.frames) - 1, rounds.most_lines
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        for number, frame in enumerate(rounds.frames):
            done = round(BAR * number / last)
            status = f"{'━' * done}{'╌' * (BAR - done)} {number}/{last}"
            drawn = [*rounds.draw(frame, lines=lines), Text(status, style=colours.QUIET)]
            live.update(Group(*drawn), refresh=True)
            sleep(ROUND_S / speed)
