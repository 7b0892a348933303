"""Findings and calls as lines of text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.sanitizer.records import CallCount, Finding, Row
from distdemo.view.format import ranks_text

WIDEST = 60  # characters of a call, up to which places stand in a column


def reason(finding: Finding) -> str:
    """What the ranks did, and what came before."""
    lines = [*_rows(finding.rows), *([f"  {finding.before}"] if finding.before else [])]
    return "\n".join(lines)


def stopped_text(why: str) -> str:
    """That nobody knows whether the calls were right."""
    return f"The ranks' calls were not compared to the end: {why}."


def calls_text(calls: Sequence[CallCount]) -> str:
    """A line for each call that ranks made alike, with how often."""
    if not calls:
        return "No calls of torch.distributed were seen."
    counts = [f"{each.count:,} ×" for each in calls]
    did = [each.did + ("" if _usual(each) else f" on {each.group}") for each in calls]
    first, second = max(map(len, counts)), min(WIDEST, max(map(len, did)))
    third = max(len(each.place) for each in calls)
    return "\n".join(
        f"  {count:>{first}}  {what:{second}}  {each.place:{third}}  {who(each.ranks)}".rstrip()
        for count, what, each in zip(counts, did, calls, strict=True)
    )


def _usual(each: CallCount) -> bool:
    return each.group in ("", "the default group")


def who(ranks: Sequence[int]) -> str:
    """``rank 2``, ``ranks 0, 2-5``."""
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def _rows(rows: Sequence[Row]) -> list[str]:
    named = [who(row.ranks) for row in rows]
    first = max(map(len, named), default=0)
    second = min(WIDEST, max((len(row.did) for row in rows if row.place), default=0))
    lines = zip(named, rows, strict=True)
    return [f"  {name:{first}}  {row.did:{second}}  {row.place}".rstrip() for name, row in lines]
