"""View of a comparison: the verdict, and how each module's tensors are spread over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from rich.text import Text

from distdemo.parity.records import GRADIENTS, Comparison, Difference, ParityReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural, start_and_versions
from distdemo.view.tables import Cell, Column, Grid

COLUMNS = {
    "forward": ("input", "output", "loss"),
    "gradient": GRADIENTS,
    "parameter": ("parameter",),
}
MAX_ROWS = 40


def parity_view(report: ParityReport, sign: Signs) -> Iterator[Block]:
    """Yield the verdict, the table of placements and the remarks."""
    if report.failed_run:
        yield Paragraph(_failure(report))
        return
    program = report.program.name if report.program else "function"
    ranks = f"{plural(report.world_size, 'rank')} against {report.reference_size}"
    title = [program, ranks, plural(report.steps, "step")]
    if len(report.axes) > 1:
        title.append("mesh " + " × ".join(f"{a.name} {a.size}" for a in report.axes))
    yield Heading(f" {sign.dot} ".join(title))
    difference = report.difference
    if difference is not None:
        yield Summary(difference.what, ok=False)
        if difference.facts:
            yield Paragraph("\n".join(f"  {fact}" for fact in difference.facts))
        yield Paragraph(difference.hint)
    if report.tensors:
        yield _placements(report, sign)
    if any(tensor.reordered for tensor in report.tensors):
        yield Paragraph("~ columns in another order, such as packed q, k and v", colours.QUIET)
    for note in report.notes:
        yield Paragraph(note, colours.QUIET)
    if difference is None:
        yield Summary(_verdict(report))
    if report.world is not None:
        yield Paragraph(
            start_and_versions(report.world, report.versions), colours.QUIET, is_detail=True
        )


def _failure(report: ParityReport) -> str:
    if report.failed_run == "ranks":
        return "The reference ran; this was the run on all ranks."
    which = plural(report.reference_size, "rank")
    return (
        f"This was the reference, on {which}. If the program needs more, try --ranks-reference "
        f"{2 * report.reference_size}; if its arguments choose the parallelism, --reference-args."
    )


def _verdict(report: ParityReport) -> str:
    count = len(report.tensors) - report.unexplained
    text = f"{plural(count, 'tensor')} of {plural(report.world_size, 'rank')} agree"
    if not report.unexplained:
        return f"All {text} with the reference."
    return (
        f"{text}{'s' * (count == 1)}; no placement explains {plural(report.unexplained, 'other')}, "
        "but the gradients and parameters that follow are right."
    )


def _placements(report: ParityReport, sign: Signs) -> Grid:
    """Return one row per module and parameter: the placements in the first step that differs."""
    difference = report.difference
    step = difference.step if difference else report.tensors[-1].step
    rows: dict[str, dict[str, Comparison]] = {}
    for column, kinds in COLUMNS.items():
        for tensor in report.tensors:
            if tensor.kind in kinds and tensor.step == step:
                cells = rows.setdefault(tensor.name, {})
                if column not in cells or cells[column].explained:
                    cells[column] = tensor
    grid = Grid([Column("tensor", folds=True), *(Column(name) for name in COLUMNS)])
    modules = {name for name, cells in rows.items() if "forward" in cells}
    names = [*_ordered(rows, modules)]
    left_out = len(names) - MAX_ROWS
    if left_out > 0:
        at = names.index(difference.name) if difference and difference.name in names else 0
        start = min(max(0, at - MAX_ROWS // 2), left_out)
        names = names[start : start + MAX_ROWS]
    for name in names:
        cells = rows[name]
        module, _, attribute = name.rpartition(".")
        title = f"  {attribute}" if name not in modules and (module or "model") in modules else name
        grid.rows.append(
            [title, *(_cell(cells.get(column), difference, sign) for column in COLUMNS)]
        )
    if left_out > 0:
        grid.rows.append([f"{sign.more} {left_out:,} more; --format json has all"])
    return grid


def _ordered(names: Iterable[str], modules: AbstractSet[str]) -> Iterator[str]:
    """Yield the names of modules in forward order, each followed by its parameters."""
    parameters: dict[str, list[str]] = {}
    for name in names:
        if name not in modules:
            parameters.setdefault(name.rpartition(".")[0] or "model", []).insert(0, name)
    for name in names:
        if name in modules:
            yield name
            yield from parameters.pop(name, [])
    for others in parameters.values():
        yield from reversed(others)


def _cell(tensor: Comparison | None, difference: Difference | None, sign: Signs) -> Cell:
    """Return the placement, with a mark if this is the cause, or a dim mark for a consequence."""
    if tensor is None:
        return ""
    text = f" {sign.dot} ".join(tensor.placement) + "~" * tensor.reordered
    if tensor.factor != 1:
        text += f" × {tensor.factor:.4g}"
    elif not tensor.explained:
        text = ""
    if difference and (tensor.kind, tensor.name) == (difference.kind, difference.name):
        return Text(f"{text} {sign.wrong}".lstrip(), style=colours.WRONG)
    return text if tensor.explained else Text(text or sign.dot, style=colours.QUIET)
