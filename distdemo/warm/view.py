"""Display of ``warm``."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import plural
from distdemo.warm.records import WarmReport

STATES = {
    "none": "is not running. distdemo warm starts one.",
    "stopped": "has ended. distdemo warm starts one.",
    "unusable": "can't be used.",
}


def warm_view(report: WarmReport, _: Signs) -> Iterator[Block]:
    """Yield the state of the warm process, and why commands don't use it."""
    if report.state == "warm":
        minutes = report.idle_s / 60
        until = f"{round(minutes, 0 if minutes > 10 else 1):g} minutes"
        yield Summary(
            f"Torch is loaded for the commands of the next {until} of use "
            f"({report.memory_bytes / 1e6:.0f} MB). distdemo warm --stop ends it.",
            ok=None,
        )
        ran = plural(report.commands, "command")
        yield Paragraph(f"Process {report.pid}; {ran} so far.", colours.QUIET)
    else:
        yield Summary(f"The warm process {STATES[report.state]}", ok=None)
    if report.cold:
        yield Paragraph(
            f"Commands typed here don't use it: {one_line(report.cold)}", is_problem=True
        )
