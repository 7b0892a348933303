"""What ran, in one line; and what came of it, in another."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from distdemo.demo.reports import OpReport
from distdemo.ops.spec import OpSpec
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.numbers import plural, shape_text

USUAL_FORMS = ("tensor", "list", "plain", "blocking", "nonblocking", "ring", "ring nonblocking")


def title(report: OpReport, sign: Signs) -> str:
    """Op, form, reduce op, root, group, ranks, backend, device, dtype and shape."""
    world = report.world.world
    parts = [
        *_what(report),
        *_groups(report),
        plural(world.world_size, "rank"),
        world.backend,
        world.device,
        *_data(report.spec, report),
    ]
    return f" {sign.dot} ".join(parts)


def _what(report: OpReport) -> Iterator[str]:
    spec = report.spec
    yield spec.op
    if report.form not in USUAL_FORMS:
        yield report.form
    if spec.reduce_op is not None:
        yield spec.reduce_op
    if spec.root is not None:
        yield root_name(report)
    if spec.pattern == "ring":
        yield "ring"
    elif spec.src is not None:
        yield f"{spec.src} to {spec.dst}"
    if spec.async_op:
        yield "non-blocking" if spec.pattern else "async"
    if spec.inference:
        yield "inference mode"


def root_name(report: OpReport) -> str:
    """The root; within a group both its numbers."""
    spec = report.spec
    root = spec.root or 0
    if spec.members is None:
        return f"root {root}"
    if len(report.specs) > 1:
        return f"root {root} of each group"
    return f"root {root} of the group, rank {spec.member(root)} of the world"


def _groups(report: OpReport) -> Iterator[str]:
    if len(report.specs) > 1:
        yield f"{len(report.specs)} groups of {plural(report.spec.group_size, 'rank')}"
    elif report.spec.members is not None:
        yield f"group {','.join(map(str, report.spec.members))}"


def _data(spec: OpSpec, report: OpReport) -> Iterator[str]:
    if any(record.attendance for record in report.ranks):
        return
    if spec.objects:
        return
    if spec.sizes is not None:
        yield f"{spec.dtype}, lengths {','.join(map(str, spec.sizes[:8]))}"
    elif spec.splits is None:
        yield shape_text(spec.dtype, spec.shape)
    else:
        yield spec.dtype


def verdict_line(report: OpReport, sign: Signs) -> Text:
    """Right or wrong, how many elements were compared and how."""
    told = [record for record in report.ranks if record.takes_part or not report.spec.objects]
    checked = sum(record.verification.checked for record in told)
    wrong = sum(record.verification.wrong for record in report.ranks)
    if not report.ok:
        bad = [record.rank for record in report.ranks if not record.verification.ok]
        who = ", ".join(map(str, bad[:8])) + (sign.more if len(bad) > 8 else "")
        text = f"{sign.wrong} Wrong: {wrong:,} of {checked:,} {_noun(report)}, on rank {who}."
        return Text(text, style=colours.WRONG)
    return Text(f"{sign.right} {_right(report, checked)}", style=colours.RIGHT)


def _noun(report: OpReport) -> str:
    if any(record.attendance for record in report.ranks):
        return "ranks were let go too early"
    return "objects" if report.spec.objects else "elements"


def _right(report: OpReport, checked: int) -> str:
    if any(record.attendance for record in report.ranks):
        return "Verified: nobody was let go before all had come."
    alone = report.world.world.world_size == 1
    moral = " With one rank every collective is the identity." if alone else ""
    if report.spec.objects:
        return f"Verified: {plural(checked, 'object')} came as they were sent.{moral}"
    tolerance = max(record.verification.tolerance for record in report.ranks)
    how = "exactly" if tolerance == 0 else f"within {tolerance:.2g}, the rounding of the dtype"
    return f"Verified: {checked:,} elements match plain arithmetic {how}.{moral}"
