"""Verdicts on what comes before the gradients: parameters at the start, inputs, outputs, loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import eq

import numpy as np

from distdemo.parity.cases import MANY, Case, Cases, by_rank, listed, ranks_named, subject, times
from distdemo.parity.hints import HINTS
from distdemo.parity.placements import ROWS, Placement, combinations, in_shape, is_split_way
from distdemo.parity.records import Difference, Key
from distdemo.view.format import listing

SAME = 1e-4  # relative difference of two biases


def seeds_difference(cases: Cases) -> Difference | None:
    """Return the difference for replicas that were drawn with different seeds."""
    starts = [cases.case(key) for key in cases.results if key[0] == "start"]
    different = [
        case
        for case in starts
        if math.isfinite(case.reference.norm)
        and len(case.equal_ranks()) > 1
        and all(part.lengths == case.reference.lengths for part in case.parts if part)
    ]
    if not different:
        return None
    first, *others = different[0].equal_ranks()
    names = listed([case.key[2] for case in different])
    groups = listing([ranks_named(group) for group in (first, *others)[:MANY]])
    return Difference(
        "seeds",
        f"The ranks start with different values of {names}.",
        (f"They differ between {groups}.",),
        HINTS["seeds"],
        "start",
        different[0].key[2],
        ranks=tuple(sorted(rank for group in others for rank in group)),
    )


def not_finite_difference(cases: Cases, case: Case) -> Difference | None:
    """Return the difference for a tensor in which the reference has NaN or infinity."""
    if math.isfinite(case.reference.norm):
        return None
    what = f"{subject(case.key)} contains NaN or infinity in the reference."
    hint = "not initialised" if case.key[0] == "initial" else "not finite"
    return cases.difference(case.key, "finite", what, HINTS[hint])


def initial_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for an initial parameter that isn't the reference's."""
    what = f"{subject(case.key)} is not the reference's."
    hint = HINTS["several" if len(cases.comparing.reference.notes) > 1 else "start"]
    return cases.difference(case.key, "start", what, hint)


def input_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for the model's input: equal, too much, or other samples."""
    other_rows = _other_rows(cases, case.key[1])
    if other_rows is not None:
        return other_rows
    rows = case.rows
    expected = case.reference.rows
    groups = case.equal_ranks()
    together = sum(rows[group[0]] for group in groups)
    facts = [f"Rows of the input: {_rows_text(cases, rows)}, {expected:,} in the reference."]
    hint = HINTS["samples"]
    what = "the ranks' inputs together aren't the reference's."
    if len(groups) == 1:
        hint = HINTS["rows"]
        who = "every rank gets" if len(groups[0]) == cases.size else f"{ranks_named(groups[0])} get"
        what = f"{who} the same input, and it isn't the reference's."
    elif together > expected:
        hint = HINTS["growth"].format(rows=together)
        more = times(together / expected)
        what = f"the global batch is {more} the reference's: it grows with the number of ranks."
    elif len(groups) < len(rows):
        groups_text = [ranks_named(group) for group in groups if len(group) > 1]
        facts.append(f"The same input goes to {listing(groups_text[:MANY])}.")
    return cases.difference(case.key, "data", what, hint, facts)


def same_batch_difference(cases: Cases) -> Difference | None:
    """Return the difference for ranks that all do the same work along an axis of data."""
    key = next((key for key in cases.results if key[0] == "input"), None)
    if key is None or not cases.comparing.steps:
        return None
    used = [own for own in cases.results if own[0] != "start"]
    for index, axis in enumerate(cases.mesh.axes):
        lines = cases.mesh.lines(index)
        is_data = any(tuple(sorted(line)) in cases.data_groups for line in lines)
        is_idle = all(cases.is_way(own, index, "R") for own in used)
        if cases.is_way(key, index, "R") and (is_data or is_idle):
            who = f"the ranks{cases.over(index, 'along')}" if cases.over(index) else "all ranks"
            what = f"{who} get the same input, the reference's whole batch."
            facts = [f"{ranks_named(lines[0]).capitalize()} compute the same."]
            return cases.difference(key, "data", what, HINTS["rows"], facts, axis=axis.name)
    return None


def _other_rows(cases: Cases, step: int) -> Difference | None:
    """Return the difference for ranks that split a layer, but not its input."""
    key = ("input", step, "input")
    if key not in cases.results or _joins_rows(cases, cases.case(key)):
        return None
    groups = cases.case(key).equal_ranks()
    for index, axis in enumerate(cases.mesh.axes):
        line = cases.mesh.lines(index)[0]
        is_split = any(
            own[0] == "initial" and any(map(is_split_way, result.placement[index : index + 1]))
            for own, result in cases.results.items()
        )
        is_data = tuple(sorted(line)) in cases.data_groups
        is_same = any({*line} <= {*group} for group in groups)
        if is_split and not is_data and not is_same:
            what = f"the ranks{cases.over(index, 'along')} get different rows of the input."
            facts = [f"{ranks_named(line).capitalize()} hold pieces of layers that need the same."]
            more = {"axis": axis.name, "ranks": line}
            return cases.difference(key, "data", what, HINTS["group"], facts, **more)
    return None


def _more_rows(cases: Cases, case: Case) -> Difference | None:
    """Return the difference for an output that has more rows on each rank than the reference's."""
    rows = _rows_text(cases, case.rows)
    expected = case.reference.rows
    together = max(case.rows.values(), default=0)
    if min(case.rows.values(), default=0) <= expected:
        return None
    what = f"the ranks' batches together are {times(together / expected)} the reference's."
    facts = [f"Rows of {case.key[2]}'s output: {rows}, {expected:,} in the reference."]
    return cases.difference(case.key, "data", what, HINTS["growth"].format(rows=together), facts)


def _rows_text(cases: Cases, rows: Mapping[int, int]) -> str:
    numbers = {*rows.values()}
    is_same = len(numbers) == 1 and len(rows) == cases.size
    return f"{numbers.pop():,} on each rank" if is_same else by_rank(rows)


def _joins_rows(cases: Cases, case: Case) -> bool:
    """Return True if the first module has more rows than the ranks' input, by the reference's.

    This is sequence parallelism: the ranks' rows are joined before a layer.
    """
    key = cases.comparing.first_output(case.key)
    if key is None or key not in cases.results:
        return False
    output = cases.case(key)
    return any(
        output.rows.get(rank, 0) * case.reference.rows > rows * output.reference.rows
        for rank, rows in case.rows.items()
    )


def output_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a module's output: the cause may be an earlier one."""
    found = (
        _not_comparable(cases, case.key)
        or _other_rows(cases, case.key[1])
        or _more_rows(cases, case)
    )
    if found is not None:
        return found
    before = _partial_output(cases, case.key)
    if before is not None:
        own, index = before
        what = f"and nothing reduces it before {case.key[2]}."
        return _partial_output_difference(cases, own, index, what)
    placement, count = _biases(cases, case)
    if "P" in placement:
        more = ", apart from the bias that each adds"
        return _partial_output_difference(
            cases, case.key, placement.index("P"), "and nothing reduces it.", more
        )
    hint = HINTS["bias" if count else "output"]
    what = f"{subject(case.key)} is not the reference's: {cases.nearest(case)}."
    if count:
        what = f"{subject(case.key)} has its bias {count} times: each rank adds it before the sum."
    _, wrong = case.right_ranks(case.wholes)
    return cases.difference(case.key, "forward", what, hint, ranks=tuple(wrong))


def _partial_output_difference(
    cases: Cases, key: Key, index: int, end: str, more: str = ""
) -> Difference:
    what = f"the output of {key[2]} is partial{cases.over(index)}, {end}"
    does = f"hold parts that add up to the reference{more}"
    facts = [cases.lines_text(index, does, cases.comparing.parts(key))]
    axis = cases.mesh.axes[index].name
    return cases.difference(key, "forward", what, HINTS["partial output"], facts, axis=axis)


def _partial_output(cases: Cases, until: Key) -> tuple[Key, int] | None:
    """Return the last output before this one that nothing has reduced, and its axis.

    Masked rows of an embedding, too, are parts that must be added.
    """
    step = until[1]
    partial: tuple[Key, int] | None = None
    for key, result in cases.results.items():
        if key == until:
            break
        for index, way in enumerate(result.placement if key[:2] == ("output", step) else ()):
            is_masked = (
                way == ROWS
                and cases.is_way(("initial", 0, f"{key[2]}.weight"), index, "S(0)")
                and cases.is_way(("input", step, "input"), index, "R")
            )
            if way == "P" or is_masked:
                partial = key, index
            elif way == "R" and partial is not None and partial[1] == index:
                partial = None
    return partial


def _biases(cases: Cases, case: Case) -> tuple[Placement, int]:
    """Return the placement in which only a bias is too much, and how often it is added."""
    own = cases.comparing.reference.sketches(("initial", 0, f"{case.key[2]}.bias"))[0]
    if own is None:
        return (), 0
    bias = own.columns[0][0] * case.reference.rows
    parts = in_shape(cases.mesh, case.parts)
    found: list[tuple[Placement, int]] = []
    for placement, whole in combinations(parts, case.tolerance, {"mean"}):
        is_whole = whole.rows == case.reference.rows and whole.lengths == case.reference.lengths
        if is_whole and whole.lengths == (len(bias),) and bias.any():
            extra = whole.columns[0][0] - case.reference.columns[0][0]
            count = round(float(extra @ bias) / float(bias @ bias))
            left = np.linalg.norm(extra - count * bias)
            if count > 0 and left < SAME * np.linalg.norm(bias):
                found.append((placement, count + 1))
    usual = cases.placement(("input", case.key[1], "input"))
    return max(found, key=lambda own: sum(map(eq, own[0], usual)), default=((), 0))


def _not_comparable(cases: Cases, key: Key) -> Difference | None:
    """Return the difference for a module that can't agree on another number of ranks."""
    random = {name for own in cases.notes for name in own.random}
    norms = {name for own in cases.notes for name in own.local_norms}
    called = [own for own in cases.results if own[:2] == key[:2]]
    for at, own in enumerate(called):
        is_around = own[2] == "model" or key[2].startswith(f"{own[2]}.")
        if at <= called.index(key) or is_around:
            if own[2] in random:
                what = f"{own[2]} can't be compared: it draws random numbers."
                return cases.difference(own, "random", what, HINTS["random"])
            if own[2] in norms:
                what = f"{own[2]} can't be compared: it normalises over the rows of one rank."
                return cases.difference(own, "norm", what, HINTS["norm"])
    return None


def loss_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a loss whose outputs agree."""
    values = [float(part.columns[0][0, 0]) for part in case.parts if part is not None]
    expected = float(case.reference.columns[0][0, 0])
    mean = sum(values) / len(values)
    facts = [
        f"The ranks' mean is {mean:.6g}, the reference's loss {expected:.6g}.",
        f"The ranks have {listing([f'{value:.6g}' for value in values[:8]])}.",
    ]
    hint = HINTS["order" if len(case.equal_ranks()) == 1 else "loss"]
    what = "the loss is neither the mean nor the sum of the ranks', though all outputs agree."
    if case.result.exact:
        hint = HINTS["same rows"]
        what = "the loss differs between ranks that have the same rows and outputs."
    elif case.result.factor != 1:
        hint = HINTS["factor"]
        what = f"the loss is {times(case.result.factor)} the reference."
    return cases.difference(case.key, "loss", what, hint, facts, factor=case.result.factor)
