"""View of a comparison: the verdict, and how each module's tensors are spread over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from rich.text import Text

from distdemo.calls.text import gap_texts
from distdemo.calls.view import finding_view
from distdemo.parity.records import GRADIENTS, Comparison, Difference, ParityReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural, some, start_and_versions
from distdemo.view.tables import Cell, Column, Grid

COLUMNS = {
    "forward": ("input", "output", "loss"),
    "gradient": GRADIENTS,
    "parameter": ("parameter",),
}
MAX_ROWS = 40
MAX_NAMES = 4
GAPS = {
    "nothing": "No tensor that the program computes was recorded on all ranks.",
    "untrained": "No parameter has a gradient other than zero, and none changes.",
    "steps": "The ranks make at least {steps} {more} than the reference.",
    "absent": "Only the reference has {names}.",
    "gradient": "Only the reference has a gradient of {names}.",
    "hidden": "The gradients of {names} differ, though the parameters after the step agree.",
    "extra": "Only the ranks have {names}.",
    "unread": "Not readable: {names} ({what}).",
    "unrecorded": "A part of the program could not be recorded: {what}.",
    "limit": "Beyond the limit of what is recorded: {tensors}.",
    "shape": "The ranks' pieces of {names} don't have the reference's shape in any placement.",
    "start": "Not started with the reference's values: {names}.",
    "tolerance": "The tolerance exceeds a tenth of {names}: one unit in the last place of the "
    "parameters moves it that far.",
}
"""Sentence on each reason why something could not be compared."""
GAP_HINTS = {
    "nothing": "parity compares the outputs, gradients and parameters of torch.nn.Module.",
    "untrained": "Check that the loss depends on the parameters, that they require gradients, and "
    "that a step isn't skipped; --steps compares more steps.",
    "steps": "Let the program make the same number of steps on any number of ranks.",
    "absent": "Call the model itself, model(x), and name modules alike on one rank and on all; or "
    "take these out of the question with --except.",
    "gradient": "Keep the gradients in .grad until the optimizer has stepped, on all ranks as on "
    "one; or take these out of the question with --except.",
    "hidden": "An optimizer such as Adam hides a factor, but clipping and weight decay don't. "
    "Divide gradients by the number of ranks after a sum.",
    "extra": "Name modules alike on one rank and on all; or take these out of the question with "
    "--except.",
    "unread": "Call the modules outside torch.func's transforms and with plain tensors for the "
    "comparison.",
    "unrecorded": "What was computed there is not compared. Leave out for the comparison what the "
    "error is about.",
    "limit": "Compare fewer steps, or a model with fewer layers.",
    "shape": "FSDP1 pads its flat parameters: use fully_shard for the comparison, or take them out "
    "of the question with --except.",
    "tolerance": "Compare in float64, or a model that amplifies rounding less.",
}
"""Advice on each reason."""


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
        yield _summary(difference.what, report)
        if difference.facts:
            yield Paragraph("\n".join(f"  {fact}" for fact in difference.facts))
        yield Paragraph(difference.hint)
    if report.tensors:
        yield _placements(report, sign)
    if any(tensor.reordered for tensor in report.tensors):
        yield Paragraph("~ columns in another order, such as packed q, k and v", colours.QUIET)
    for note in report.notes:
        yield Paragraph(note, colours.QUIET)
    for finding in report.warnings:
        yield from finding_view(finding)
    if difference is None:
        yield _summary(verdict_text(report), report)
    for text in uncompared_texts(report):
        yield Paragraph(f"  {text}", is_problem=difference is None)
    if difference is None and not report.is_complete:
        yield Paragraph(gaps_hint(report))
    if report.excluded:
        yield Paragraph(
            f"Left out by --except: {some(report.excluded, MAX_NAMES)}.", is_problem=True
        )
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


def _summary(text: str, report: ParityReport) -> Summary:
    if report.verdict == "incomplete":
        return Summary(text, ok=None, mark="!")
    return Summary(text, ok=report.ok)


def verdict_text(report: ParityReport) -> str:
    """Return the verdict on a report without a difference: what agrees, and how far."""
    agree = [tensor for tensor in report.tensors if tensor.explained and not tensor.incomparable]
    unproven = any(gap.reason in ("nothing", "untrained") for gap in report.gaps)
    if unproven or not agree:
        return "Nothing was proven."
    text = f"{plural(len(agree), 'tensor')} of {plural(report.world_size, 'rank')} agree"
    text += "s" * (len(agree) == 1)
    steps = "step" if report.steps == 1 else f"{report.steps:,} steps"
    far = f" in the first {steps}" if report.steps else ""
    if report.is_complete and not report.unexplained:
        return f"All {text} with the reference{far}."
    wrong = sum(gap.count for gap in report.gaps if gap.reason == "hidden")
    if wrong and len(report.gaps) == 1:
        differ = plural(wrong, "gradient") + " differ" + "s" * (wrong == 1)
        return f"{text} with the reference{far}, but {differ}, which the optimizer's step hides."
    if not report.is_complete:
        return f"{text} with the reference{far}, but not all that was asked about was compared."
    remarks = []
    odd = [tensor for tensor in report.tensors if not tensor.explained and not tensor.incomparable]
    others = sum(tensor.kind not in GRADIENTS for tensor in odd)
    wrong = len(odd) - others
    if others:
        follow = "parameters" if wrong else "gradients and parameters"
        remarks.append(
            f"no placement explains {plural(others, 'other')}, but the {follow} that follow are "
            "right"
        )
    if wrong:
        remarks.append(
            f"{plural(wrong, 'gradient')} differ{'s' * (wrong == 1)}, and the optimizer's step "
            "makes up for it"
        )
    return f"{text} with the reference{far}; {'; '.join(remarks)}."


def problem(report: ParityReport) -> tuple[str, Sequence[str], str]:
    """Return what differs, or what could not be compared: a sentence, facts and advice."""
    difference = report.difference
    if difference is not None:
        return difference.what, difference.facts, difference.hint
    return verdict_text(report), uncompared_texts(report), gaps_hint(report)


def uncompared_texts(report: ParityReport) -> list[str]:
    """Return a sentence on everything that could not be compared."""
    texts = [
        GAPS[gap.reason].format(
            names=some(gap.names, MAX_NAMES),
            steps=plural(abs(gap.count), "step"),
            more="more" if gap.count > 0 else "fewer",
            tensors=plural(gap.count, "tensor"),
            what=some(gap.what, MAX_NAMES),
        )
        for gap in report.gaps
    ]
    return texts + gap_texts(report.stopped, report.unseen)


def gaps_hint(report: ParityReport) -> str:
    """Return what to do about the first gap."""
    if not report.gaps:
        return "A collective that wasn't compared may be wrong: distdemo run says more about it."
    gap = report.gaps[0]
    hint = GAP_HINTS.get(gap.reason, "")
    if hint or not gap.names:
        return hint
    return f"--except '{gap.names[0]}' takes it out of the question."


def _placements(report: ParityReport, sign: Signs) -> Grid:
    """Return one row per module and parameter: the placements in the first step that differs."""
    difference = report.difference
    step = difference.step if difference else report.tensors[-1].step
    if not difference and not report.steps and any(tensor.step < 1 for tensor in report.tensors):
        step = min(tensor.step for tensor in report.tensors)
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
    if tensor.incomparable:
        return Text("?", style=colours.QUIET)
    if difference and (tensor.kind, tensor.name) == (difference.kind, difference.name):
        return Text(f"{text} {sign.wrong}".lstrip(), style=colours.WRONG)
    return text if tensor.explained else Text(text or sign.dot, style=colours.QUIET)
