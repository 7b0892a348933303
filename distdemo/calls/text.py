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


def stopped_text(why: str) -> str:
    """Return the text for an incomplete comparison."""
    return f"The ranks' calls were not compared to the end: {why}."


def calls_text(calls: Sequence[CallCount]) -> str:
    """Return one line per call, with its count and ranks."""
    if not calls:
        return "No torch.distributed calls were seen."
    counts = [f"{each.count:,} ×" for each in calls]
    labels = [rank_label(each.ranks) for each in calls]
    did = [each.did + ("" if _on_default_group(each) else f" on {each.group}") for each in calls]
    first, second = max(map(len, counts)), min(MAX_CALL_WIDTH, max(map(len, did)))
    third = max(len(each.source_line) for each in calls)
    return "\n".join(
        f"  {count:>{first}}  {what:{second}}  {each.source_line:{third}}  {ranks}".rstrip()
        for count, what, each, ranks in zip(counts, did, calls, labels, strict=True)
    )


def _on_default_group(each: CallCount) -> bool:
    return each.group in ("", "the default group")


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
