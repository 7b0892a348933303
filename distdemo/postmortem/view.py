"""Report on a post-mortem."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.calls.text import calls_text, headline, rows_text
from distdemo.calls.view import finding_view
from distdemo.postmortem.live import rows_of
from distdemo.postmortem.records import Postmortem
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural, ranks_text

MAX_NOTES = 20
SWITCH_ON = (
    "Before the next run, switch a recorder on: export TORCH_FR_BUFFER_SIZE=2000 "
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$PWD/dumps/rank_ for torch's own; or "
    "DISTDEMO_RECORD=$PWD/notes for distdemo's, and call distdemo.sanitizer.install() in the "
    "program."
)


def postmortem_view(report: Postmortem, sign: Signs, *, calls: bool = False) -> Iterator[Block]:
    """Yield the findings, what is known about the files and, on request, the calls."""
    size = plural(report.world_size, "rank") if report.world_size else ""
    absent = f" (none from {ranks_text(report.absent)})" if report.absent else ""
    title = (report.source, size, ", ".join(report.files) + absent, *report.backends)
    yield Heading(f" {sign.dot} ".join(filter(None, title)))
    if calls:
        yield Paragraph(calls_text(report.calls), verbatim=True)
    for warning in report.warnings:
        yield from finding_view(warning)
    for finding in report.findings:
        yield from finding_view(finding)
    if report.live and not report.findings:
        yield Paragraph("\n".join(rows_text(rows_of(report.live))), verbatim=True)
    for note in report.notes[:MAX_NOTES]:
        yield Paragraph(note)
    if len(report.notes) > MAX_NOTES:
        yield Paragraph(f"{plural(len(report.notes) - MAX_NOTES, 'more note')} in --format json.")
    if report.findings:
        yield Summary(headline(report.findings[0]), ok=False)
        return
    if report.live:
        if not report.has_recorder:
            yield Paragraph(SWITCH_ON)
        yield Summary(f"{report.stopped[:1].upper()}{report.stopped[1:]}.", None, "!")
        return
    if not report.has_recorder:
        yield Paragraph(SWITCH_ON)
        yield Summary("The logs show no error. No call was compared: no recorder ran.", None, "!")
        return
    count = plural(sum(call.count * len(call.ranks) for call in report.calls), "call")
    if report.stopped:
        yield Summary(f"So far no errors in {count}, but {report.stopped}.", None, "!")
    else:
        yield Summary(f"No errors in {count}.")
