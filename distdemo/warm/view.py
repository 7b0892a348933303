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
    "stopped": "has ended.",
    "unusable": "can't be used.",
}


def warm_view(report: WarmReport, _: Signs) -> Iterator[Block]:
    """Yield the state of the warm process, and why commands don't use it."""
    if report.state == "warm":
        minutes = round(report.left_s / 60)
        left = plural(minutes, "minute") if minutes else plural(round(report.left_s), "second")
        yield Summary(
            f"Torch is loaded ({report.memory_bytes / 1e6:.0f} MB) and stays for {left}, longer "
            "if commands run. distdemo warm --stop ends it.",
            ok=None,
        )
        ran = plural(report.commands, "command")
        usage = "" if report.cold else " Commands typed here use it."
        yield Paragraph(f"Process {report.pid}; {ran} so far.{usage}", colours.QUIET)
    else:
        yield Summary(f"The warm process {STATES[report.state]}", ok=None)
    if report.cold:
        yield Paragraph(
            f"Commands typed here don't use it: {one_line(report.cold)}", is_problem=True
        )
