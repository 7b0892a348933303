"""The columns of an op's table: those that this run has something to say in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.text import Text

from distdemo.demo import view_holding as holding
from distdemo.demo.holdings import RankRecord, Verification
from distdemo.demo.reports import OpReport
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.grid import Cell, Column
from distdemo.view.numbers import duration


@dataclass(frozen=True, slots=True)
class Told:
    """A column and what it says of a rank."""

    column: Column
    cell: Callable[[RankRecord], Cell]


def columns(report: OpReport, sign: Signs, room: int) -> list[Told]:
    """The columns for this report, with so many characters for one tensor."""
    return [
        Told(Column("Rank", right=True), _rank),
        *_hosted(report),
        *_grouped(report),
        *(_met(sign) if _is_meeting(report) else _held(report, sign, room)),
        Told(Column("Verified"), lambda record: _verified(record, sign)),
        *_timed(report, sign),
    ]


def letter(group: int) -> str:
    """What a group of several is called: A, B, ..., Z, then by its number."""
    return chr(ord("A") + group) if group < 26 else str(group)


def _group_name(record: RankRecord, report: OpReport) -> str:
    """The rank's number in its group, and which group if there are several."""
    if record.group_rank is None:
        return "none"
    several = len(report.specs) > 1
    return f"{letter(record.group) if several else 'rank'} {record.group_rank}"


def _is_meeting(report: OpReport) -> bool:
    return any(record.attendance is not None for record in report.ranks)


def _rank(record: RankRecord) -> Text:
    return Text(str(record.rank), style=colours.of_rank(record.rank))


def _hosted(report: OpReport) -> Iterator[Told]:
    hosts = report.world.hosts
    if hosts:
        yield Told(Column("Host", folds=True), lambda record: hosts[record.rank])


def _grouped(report: OpReport) -> Iterator[Told]:
    if report.spec.members is not None:
        yield Told(Column("Group"), lambda record: _group_name(record, report))


def _held(report: OpReport, sign: Signs, room: int) -> Iterator[Told]:
    """What was held before and after."""
    before = Column("Before", folds=True)
    yield Told(before, lambda record: holding.cell(record.before, sign, room))
    if report.spec.objects:
        yield Told(Column("Pickle", right=True), lambda record: _pickle(record, sign))
    yield Told(Column("After", folds=True), lambda record: holding.cell(record.after, sign, room))
    yield Told(Column("From"), lambda record: _from(record, sign))


def _pickle(record: RankRecord, sign: Signs) -> Text:
    """The bytes that each object of the rank's own pickled to."""
    return holding.sizes(record.before, sign)


def _from(record: RankRecord, sign: Signs) -> Text:
    if record.group_rank is None:
        return Text("itself", style=colours.QUIET)
    if not record.takes_part:
        return Text("takes no part", style=colours.QUIET)
    return holding.sources(record.after, sign)


def _met(sign: Signs) -> Iterator[Told]:
    """When the rank came and went."""

    def moment(record: RankRecord, name: str) -> str:
        came = record.attendance
        return sign.none if came is None else duration(getattr(came, name))

    yield Told(Column("Arrived", right=True), lambda record: moment(record, "arrived"))
    yield Told(Column("Left", right=True), lambda record: moment(record, "left"))
    yield Told(
        Column("Had come", right=True),
        lambda record: str(record.attendance.present) if record.attendance else sign.none,
    )


def _timed(report: OpReport, sign: Signs) -> Iterator[Told]:
    if report.spec.async_op:
        yield Told(Column("Launch", right=True), lambda r: _time(r, r.launch_seconds, sign))
        yield Told(Column("Wait", right=True), lambda r: _time(r, r.wait_seconds, sign))
        return
    name = "Waited" if _is_meeting(report) else "Time"
    yield Told(Column(name, right=True), lambda record: _time(record, record.seconds, sign))


def _time(record: RankRecord, seconds: float | None, sign: Signs) -> str:
    return duration(seconds or 0.0) if record.takes_part else sign.none


def _verified(record: RankRecord, sign: Signs) -> Text:
    verification: Verification = record.verification
    if verification.checked == 0:
        return Text(sign.none, style=colours.QUIET)
    if not verification.ok:
        what = "too early" if record.attendance else f"{verification.wrong:,} wrong"
        return Text(f"{sign.wrong} {what}", style=colours.WRONG)
    what = "exact" if verification.tolerance == 0 else "close"
    if record.attendance:
        what = "all had come"
    elif record.group_rank is None:
        what = "as was"
    return Text(f"{sign.right} {what}", style=colours.RIGHT)
