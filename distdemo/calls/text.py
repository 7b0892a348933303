"""Format findings and calls as text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.calls.notes import EndNote
from distdemo.calls.records import CallCount, Finding, Gap, LedgerReport, Row, Unseen
from distdemo.launcher.records import signal_name
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import listing, plural, ranks_text, some

GAPS: dict[Unseen, str] = {
    "calls": "Not compared: {calls} on {names}, a process group that the program builds itself",
    "lost": "Compared only in part: {names}; {calls} of all groups were gone from torch's flight "
    "recorder before they were read, so raise --record-calls",
    "tensors": "Not compared: tensors that can't be read, {names}",
    "replicas": "The parameters were not compared to the end: {names}",
    "buffers": "The tensors of calls were not watched to the end: {names}",
    "gradients": "Severed gradients were not looked for to the end: {names}",
}
"""Things that weren't looked at, by kind of `Gap`."""
UNREAD = "Compared only in part: {names}; some calls could not be read from torch's flight recorder"
"""The same for lost calls whose number is unknown."""
MAX_NAMES = 3  # of parameters that were or weren't compared
MAX_STEPS = 8  # numbers of steps that are listed one by one
MAX_CALL_WIDTH = 60  # characters of a call up to which source lines are aligned


def headline(finding: Finding) -> str:
    """Return what happened, and whether calls could still have changed it, in one line."""
    starts = [finding.limit, "So far" if finding.undecided else ""]
    text = finding.what
    for start in filter(None, reversed(starts)):
        text = f"{start}: {continued(text)}"
    return text


def continued(sentence: str) -> str:
    """Return a sentence as it continues after a colon."""
    return sentence[0].lower() + sentence[1:]


def reason(finding: Finding) -> list[str]:
    """Return the rows of a finding and what happened before it, a line each."""
    lines = rows_text(finding.rows)
    lines += [f"  {finding.before}"] if finding.before else []
    for warning in finding.earlier:
        lines += [f"  {warning.what}", *(f"  {line}" for line in rows_text(warning.rows))]
    return lines


def advice(finding: Finding) -> str:
    """Return the rule that was broken, and the ranks that could still have changed this."""
    if not finding.undecided:
        return finding.rule
    return f"{finding.rule} {ranks_of(finding.undecided)} could still have changed this."


def finding_text(finding: Finding) -> str:
    """Return what happened, the ranks' calls and the rule, as text."""
    parts = (headline(finding), *reason(finding), advice(finding))
    return "\n".join(filter(None, parts))


def end_text(end: EndNote) -> str:
    """Return how a rank's program ended, as the end of a sentence."""
    match end.how:
        case "returned":
            return "returned"
        case "raised":
            return f"raised {end.error}: {end.text}"
        case "exited":
            status = end.text or end.exit_code
            return f"exited with {status}" if status else "exited without returning"
        case "killed":
            return f"was killed by {signal_name(end.signal)}"
        case "unknown":
            return "ended without an end note"


def gap_texts(stopped: str, gaps: Sequence[Gap]) -> list[str]:
    """Return a sentence for everything that wasn't looked at.

    Args:
        stopped: Reason why the comparison of calls stopped; empty if it did not.
        gaps: What ranks couldn't look at.
    """
    texts = [f"The ranks' calls were not compared to the end: {stopped}."] if stopped else []
    return texts + [_gap_text(gap) for gap in gaps]


def _gap_text(gap: Gap) -> str:
    """Return a sentence for something that wasn't looked at."""
    text = GAPS[gap.what]
    calls = plural(gap.count, "call") if gap.count else "some calls"
    where = f", first at {gap.source_line}"
    if gap.what == "lost":
        text = text if gap.count else UNREAD
        calls = f"at least {calls}"  # once calls of a group are lost, later losses aren't counted
        where = ""
    text = text.format(names=", ".join(gap.names), calls=calls)
    return f"{text} ({rank_label(gap.ranks)}{where})."


def calls_text(calls: Sequence[CallCount]) -> str:
    """Return one line per call, with its count and ranks."""
    if not calls:
        return "No torch.distributed calls were seen."
    rows = []
    for call in calls:
        on = f" on {call.label}" if call.label else ""
        line = "" if call.source_line is None else str(call.source_line)
        rows.append((f"{call.count:,} ×", call.did + on, line, rank_label(call.ranks)))
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
        f"  {name:{first}}  {row.did:{second}}  {row.source_line or ''}".rstrip()
        for name, row in lines
    ]


def replicas_text(replicas: LedgerReport) -> str:
    """Return what was compared, and what wasn't."""
    parts = []
    if replicas.checks:
        parts.append(plural(replicas.checks, "check") + " of the program")
    if replicas.parameters and replicas.compared_steps:
        who = f"{plural(replicas.parameters, 'parameter')} on {rank_label(replicas.ranks)}"
        after = [step for step in replicas.compared_steps if step]
        when = ["before step 1"] * (0 in replicas.compared_steps)
        if after:
            runs = ranks_text(after) if len(after) > MAX_STEPS else ", ".join(map(str, after))
            when.append(f"after step{'s' * (len(after) > 1)} {runs}")
        when += ["at the end"] * replicas.at_end
        parts.append(f"{who} {listing(when)} of {replicas.steps:,}")
    text = f"Compared {listing(parts) if parts else 'no parameter'}"
    if not (parts or replicas.alone or replicas.uneven or replicas.constant):
        return f"{text}: no step of an optimizer, and no update by hand, was seen."
    for facts, what in (
        (replicas.uneven, "Not compared, as ranks hold different numbers of them"),
        (replicas.constant, "Not compared, as they started as equal constants and now differ"),
        (replicas.changed, "Changed after the last step, so not compared at the end"),
        (replicas.apart, "Different on all ranks from the start, and nothing declares them equal"),
        (replicas.averaged, "Averaged now and then"),
        (replicas.excluded, "Left out"),
        (replicas.unmatched, "Patterns that match no parameter"),
    ):
        text += f". {what}: {some(facts, MAX_NAMES)}" if facts else ""
    if replicas.alone:
        text += f". {plural(replicas.alone, 'parameter')} held by one rank alone"
    return f"{text}."
