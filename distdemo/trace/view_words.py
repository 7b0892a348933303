"""What stands above and below the rounds of a trace: what ran, what signs mean, what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import Moment, TraceReport, WrongChunk
from distdemo.trace.view_amounts import whole_bytes
from distdemo.trace.view_cells import UNICODE, Look, Marks, runs
from distdemo.trace.view_frames import Frame
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.numbers import distinct, duration, plural, shape_text

MANY = 16  # wrong chunks that are named


def title(report: TraceReport, sign: Signs) -> str:
    """Op, algorithm, reduce op, root, ranks, where, dtype and shape."""
    op, world = report.spec.op, report.world
    parts = [op.op, report.about.name]
    if op.reduce_op is not None:
        parts.append(op.reduce_op)
    if op.root is not None:
        parts.append(f"root {op.root}")
    parts.append(plural(op.group_size, "rank"))
    parts += [world.world.backend, world.world.device] if world else ["on paper"]
    return f" {sign.dot} ".join([*parts, shape_text(op.dtype, op.shape)])


def payload(report: TraceReport) -> str:
    """What B is, and how it is cut."""
    told = f"B = {whole_bytes(report.traffic.payload_bytes)}, {report.traffic.payload_is}"
    return f"{told}, in {_cut(report.chunk_elements)}."


def _cut(elements: Sequence[int]) -> str:
    """``4 chunks of 1 element``, ``6 chunks: 4 of 2 elements, 2 of 1``."""
    kinds = sorted(set(elements), reverse=True)
    if len(kinds) == 1:
        return f"{plural(len(elements), 'chunk')} of {plural(kinds[0], 'element')}"
    first, *rest = ((elements.count(kind), kind) for kind in kinds)
    told = [f"{first[0]:,} of {plural(first[1], 'element')}"]
    told += [f"{count:,} of {kind:,}" if kind else f"{count:,} empty" for count, kind in rest]
    return f"{plural(len(elements), 'chunk')}: {', '.join(told)}"


def spoiled(fault: Fault) -> str:
    """What was done wrong on purpose."""
    message = f"rank {fault.src}'s message of round {fault.round}"
    done = {
        "drop": f"{message} is left out",
        "neighbour": f"{message} goes to the rank after the right one",
        "twice": f"{message} is combined twice",
    }
    return f"Spoiled on purpose: {done[fault.kind]}."


# ------------------------------------------------------------------------------ about a round


def round_title(report: TraceReport, frame: Frame, sign: Signs) -> str:
    """Its number, the algorithm's phase, and how long it took."""
    if frame.step is None:
        return "Before the first round"
    parts = [f"Round {frame.number} of {len(report.rounds)}"]
    if frame.step.phase:
        parts.append(frame.step.phase)
    parts += _times(frame.moments)
    return f" {sign.dot} ".join(parts)


def _times(moments: Sequence[Moment]) -> Iterator[str]:
    """The quickest rank's and the slowest one's time; of those that had a message."""
    times = {rank: m.ended - m.began for rank, m in enumerate(moments) if m.ended > m.began}
    if not times:
        return
    slowest = max(times, key=lambda rank: times[rank])
    least, most = duration(min(times.values())), duration(times[slowest])
    if least == most:
        yield most
        return
    if least.split()[1] == most.split()[1]:
        least = least.split()[0]
    yield f"{least} to {most}, rank {slowest} slowest"


def left_out(count: int, before: int) -> str:
    """That rounds are not shown, and how to see them."""
    named = f"Round {before + 1}" if count == 1 else f"Rounds {before + 1} to {before + count}"
    verb = "is" if count == 1 else "are"
    return f"{named} {verb} left out; --output FILE.txt has all."


# ------------------------------------------------------------------------------- what came of it


def verdict(report: TraceReport, sign: Signs) -> Text:
    """Right or wrong, in one line, and what was sent."""
    if report.ok:
        return Text(f"{sign.right} {_right(report)}", style=colours.RIGHT)
    ranks = sorted({each.rank for each in report.wrong})
    who = ", ".join(map(str, ranks[:8])) + (sign.more if len(ranks) > 8 else "")
    where = f"on {'rank' if len(ranks) == 1 else 'ranks'} {who}"
    told = f"{plural(len(report.wrong), 'chunk')}{_wrong_elements(report)} {where}"
    return Text(f"{sign.wrong} Wrong: {told}{_by_chance(report)}.", style=colours.WRONG)


def _wrong_elements(report: TraceReport) -> str:
    """How many numbers are wrong, if any is."""
    checked = sum(each.checked for each in report.verifications)
    wrong = sum(each.wrong for each in report.verifications)
    return f", {wrong:,} of {checked:,} elements," if wrong else ""


def _by_chance(report: TraceReport) -> str:
    """What is wrong where no number shows it; empty where numbers do, or there are none."""
    numbers = [each for each in report.wrong if each.got is not None]
    if len(numbers) < len(report.wrong) or any(each.got != each.expected for each in numbers):
        return ""
    lacking = "missing" * any(each.missing for each in numbers)
    twice = "too many" * any(each.extra for each in numbers)
    found = " or ".join(filter(None, (lacking, twice)))
    return f": all numbers are right by chance, but contributions are {found}" if found else ""


def _right(report: TraceReport) -> str:
    n = report.spec.op.group_size
    sent = f"{plural(report.counts.messages, 'message')}, {whole_bytes(report.counts.total)} in all"
    as_said = all(each.same for each in report.checks)
    formula = ", as the formulas say" if as_said else ", not what the formulas say"
    if not all(each.exact for each in report.checks):
        formula = "; the formulas take all chunks for equal"
    if report.world is None:
        return f"On paper: every chunk is complete where it has to be; {sent}{formula}."
    checked = sum(each.checked for each in report.verifications)
    elements = f"{plural(checked, 'element')} on {plural(n, 'rank')} right"
    return f"Verified: {elements}; {sent}{formula}."


def wrong_lines(report: TraceReport, look: Look) -> Iterator[Text]:
    """A line for each of the first wrong chunks: where, what, and who is missing or twice."""
    for each in report.wrong[:MANY]:
        yield Text(wrong_words(each, look.names, look.mark), style=colours.WRONG)
    hidden = len(report.wrong) - MANY
    if hidden > 0:
        yield Text(f"{look.sign.more} {plural(hidden, 'wrong chunk')} more", style=colours.QUIET)


def wrong_words(each: WrongChunk, names: Sequence[str], mark: Marks = UNICODE) -> str:
    """Where, what is there and should be, whose contribution is missing or too many, since when."""
    where = f"rank {each.rank}, chunk {names[each.chunk]}"
    return f"{where}{_got(each)}{_whose(each, mark)}{_since(each)}"


def _got(each: WrongChunk) -> str:
    if each.element is None or each.got is None or each.expected is None:
        return " is not there" if each.got is None else ""
    if each.got == each.expected:
        return ": the number is right by chance"
    got, expected = distinct(each.got, each.expected)
    return f", element {each.element}: got {got}, expected {expected}"


def _whose(each: WrongChunk, mark: Marks) -> str:
    told = ""
    if each.missing and each.got is not None:
        told += f"; without {_ranks(each.missing, mark)}"
    if each.extra:
        told += f"; too much of {_ranks(each.extra, mark)}"
    return told


def _ranks(numbers: Sequence[int], mark: Marks) -> str:
    """``rank 1``, ``ranks 0, 1 and 3``, ``ranks 0–3 and 5``."""
    told: list[str] = []
    for first, last in runs(numbers):
        if last > first + 1:
            told.append(f"{first}{mark.to}{last}")
        else:
            told += map(str, range(first, last + 1))
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed(told)}"


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _since(each: WrongChunk) -> str:
    if each.round is None:
        return "."
    return f"; wrong since round {each.round}." if each.round else "; wrong from the start."
