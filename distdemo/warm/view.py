"""Display of ``warm``."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import plural
from distdemo.warm.records import WarmReport


def warm_view(report: WarmReport, _: Signs) -> Iterator[Block]:
    """Yield the state of the warm process, and why commands don't use it."""
    if report.state != "warm":
        ended = "has ended" if report.state == "stopped" else "is not running"
        yield Summary(f"The warm process {ended}. distdemo warm starts one.", ok=None)
        return
    minutes = f"{report.idle_s / 60:.2g} minutes"
    yield Summary(
        f"Torch is loaded for the commands of the next {minutes} of use "
        f"({report.memory_bytes / 1e6:.0f} MB). distdemo warm --stop ends it.",
        ok=None,
    )
    ran = plural(report.commands, "command")
    yield Paragraph(f"Process {report.pid}; {ran} so far.", colours.QUIET)
    if report.cold:
        yield Paragraph(
            f"Commands typed here don't use it: {one_line(report.cold)}", is_problem=True
        )
