"""Format findings and calls as text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.calls.records import CallCount, Finding, Row
from distdemo.view.format import ranks_text

MAX_CALL_WIDTH = 60  # characters of a call up to which source lines are aligned


def reason(finding: Finding) -> str:
    """Return the rows of a finding and what happened before it, as text."""
    lines = [*rows_text(finding.rows), *([f"  {finding.before}"] if finding.before else [])]
    return "\n".join(lines)


def finding_text(finding: Finding) -> str:
    """Return what happened, the ranks' calls and the rule, as text."""
    return "\n".join(part for part in (finding.what, reason(finding), finding.rule) if part)


def stopped_text(why: str) -> str:
    """Return the text for an incomplete comparison."""
    return f"The ranks' calls were not compared to the end: {why}."


def calls_text(calls: Sequence[CallCount]) -> str:
    """Return one line per call, with its count and ranks."""
    if not calls:
        return "No torch.distributed calls were seen."
    rows = []
    for call in calls:
        on = "" if call.group in ("", "the default group") else f" on {call.group}"
        rows.append((f"{call.count:,} ×", call.did + on, call.source_line, rank_label(call.ranks)))
    count_width, call_width, line_width, _ = (
        max(map(len, column)) for column in zip(*rows, strict=True)
    )
    call_width = min(MAX_CALL_WIDTH, call_width)
    return "\n".join(
        f"  {count:>{count_width}}  {call:{call_width}}  {line:{line_width}}  {ranks}".rstrip()
        for count, call, line, ranks in rows
    )


def rank_label(ranks: Sequence[int]) -> str:
    """Return ``rank 2`` or ``ranks 0, 2-5``."""
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def rows_text(rows: Sequence[Row]) -> list[str]:
    """Return a line per row, in columns."""
    named = [rank_label(row.ranks) for row in rows]
    first = max(map(len, named), default=0)
    second = min(MAX_CALL_WIDTH, max((len(row.did) for row in rows if row.source_line), default=0))
    lines = zip(named, rows, strict=True)
    return [
        f"  {name:{first}}  {row.did:{second}}  {row.source_line}".rstrip() for name, row in lines
    ]
