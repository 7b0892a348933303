"""Verdicts on what comes before the gradients: parameters at the start, inputs, outputs, loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import eq

import numpy as np

from distdemo.parity.hints import HINTS
from distdemo.parity.placements import ROWS, Placement, combinations, in_shape, split_dims
from distdemo.parity.records import Difference, TensorId
from distdemo.parity.results import (
    MANY,
    Results,
    Suspect,
    by_rank,
    listed,
    ranks_named,
    subject,
    times,
)
from distdemo.view.format import listing

SAME = 1e-4  # relative difference of two biases


def seeds_difference(results: Results) -> Difference | None:
    """Return the difference for replicas that were drawn with different seeds."""
    starts = [results.suspect(key) for key in results if key.kind == "start"]
    different = [
        suspect
        for suspect in starts
        if math.isfinite(suspect.reference.norm)
        and len(suspect.equal_ranks()) > 1
        and all(part.lengths == suspect.reference.lengths for part in suspect.parts if part)
    ]
    if not different:
        return None
    first, *others = different[0].equal_ranks()
    names = listed([suspect.key.name for suspect in different])
    groups = listing([ranks_named(group) for group in (first, *others)[:MANY]])
    return Difference(
        "seeds",
        f"The ranks start with different values of {names}.",
        (f"They differ between {groups}.",),
        HINTS["seeds"],
        "start",
        different[0].key.name,
        ranks=tuple(sorted(rank for group in others for rank in group)),
    )


def not_finite_difference(results: Results, suspect: Suspect) -> Difference | None:
    """Return the difference for a tensor in which the reference has NaN or infinity."""
    if math.isfinite(suspect.reference.norm):
        return None
    what = f"{subject(suspect.key)} contains NaN or infinity in the reference."
    hint = "not initialised" if suspect.key.kind == "initial" else "not finite"
    return results.difference(suspect.key, "finite", what, HINTS[hint])


def initial_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for an initial parameter that isn't the reference's."""
    what = f"{subject(suspect.key)} is not the reference's."
    hint = HINTS["several" if len(results.comparing.reference.notes) > 1 else "start"]
    return results.difference(suspect.key, "start", what, hint)


def input_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for the model's input: equal, too much, or other samples."""
    other_rows = _other_rows(results, suspect.key.step)
    if other_rows is not None:
        return other_rows
    rows = suspect.rows
    expected = suspect.reference.rows
    groups = suspect.equal_ranks()
    together = sum(rows[group[0]] for group in groups)
    facts = [f"Rows of the input: {_rows_text(results, rows)}, {expected:,} in the reference."]
    hint = HINTS["samples"]
    what = "the ranks' inputs together aren't the reference's."
    if len(groups) == 1:
        hint = HINTS["rows"]
        who = (
            "every rank gets" if len(groups[0]) == results.size else f"{ranks_named(groups[0])} get"
        )
        what = f"{who} the same input, and it isn't the reference's."
    elif together > expected:
        hint = HINTS["growth"].format(rows=together)
        more = times(together / expected)
        what = f"the global batch is {more} the reference's: it grows with the number of ranks."
    elif len(groups) < len(rows):
        groups_text = [ranks_named(group) for group in groups if len(group) > 1]
        facts.append(f"The same input goes to {listing(groups_text[:MANY])}.")
    return results.difference(suspect.key, "data", what, hint, facts)


def same_batch_difference(results: Results) -> Difference | None:
    """Return the difference for ranks that all do the same work along an axis of data."""
    key = next((key for key in results if key.kind == "input"), None)
    if key is None or not results.comparing.steps:
        return None
    used = [other for other in results if other.kind != "start"]
    for index, axis in enumerate(results.mesh.axes):
        lines = results.mesh.lines(index)
        is_data = any(tuple(sorted(line)) in results.data_groups for line in lines)
        is_idle = all(results.is_placed(other, index, "R") for other in used)
        if results.is_placed(key, index, "R") and (is_data or is_idle):
            who = f"the ranks{results.over(index, 'along')}" if results.over(index) else "all ranks"
            what = f"{who} get the same input, the reference's whole batch."
            facts = [f"{ranks_named(lines[0]).capitalize()} compute the same."]
            return results.difference(key, "data", what, HINTS["rows"], facts, axis=axis.name)
    return None


def _other_rows(results: Results, step: int) -> Difference | None:
    """Return the difference for ranks that split a layer, but not its input."""
    key = TensorId("input", step, "input")
    if key not in results or _joins_rows(results, results.suspect(key)):
        return None
    groups = results.suspect(key).equal_ranks()
    for index, axis in enumerate(results.mesh.axes):
        line = results.mesh.lines(index)[0]
        is_split = any(
            other.kind == "initial" and split_dims(result.placement[index : index + 1])
            for other, result in results.items()
        )
        is_data = tuple(sorted(line)) in results.data_groups
        is_same = any({*line} <= {*group} for group in groups)
        if is_split and not is_data and not is_same:
            what = f"the ranks{results.over(index, 'along')} get different rows of the input."
            facts = [f"{ranks_named(line).capitalize()} hold pieces of layers that need the same."]
            more = {"axis": axis.name, "ranks": line}
            return results.difference(key, "data", what, HINTS["group"], facts, **more)
    return None


def _more_rows(results: Results, suspect: Suspect) -> Difference | None:
    """Return the difference for an output that has more rows on each rank than the reference's."""
    rows = _rows_text(results, suspect.rows)
    expected = suspect.reference.rows
    together = max(suspect.rows.values(), default=0)
    if min(suspect.rows.values(), default=0) <= expected:
        return None
    what = f"the ranks' batches together are {times(together / expected)} the reference's."
    facts = [f"Rows of {suspect.key.name}'s output: {rows}, {expected:,} in the reference."]
    return results.difference(
        suspect.key, "data", what, HINTS["growth"].format(rows=together), facts
    )


def _rows_text(results: Results, rows: Mapping[int, int]) -> str:
    numbers = {*rows.values()}
    is_same = len(numbers) == 1 and len(rows) == results.size
    return f"{numbers.pop():,} on each rank" if is_same else by_rank(rows)


def _joins_rows(results: Results, suspect: Suspect) -> bool:
    """Return True if the first module has more rows than the ranks' input, by the reference's.

    This is sequence parallelism: the ranks' rows are joined before a layer.
    """
    key = results.comparing.ends.get(suspect.key)
    if key is None or key not in results:
        return False
    output = results.suspect(key)
    return any(
        output.rows.get(rank, 0) * suspect.reference.rows > rows * output.reference.rows
        for rank, rows in suspect.rows.items()
    )


def output_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a module's output: the cause may be an earlier one."""
    found = (
        _not_comparable(results, suspect.key)
        or _other_rows(results, suspect.key.step)
        or _more_rows(results, suspect)
    )
    if found is not None:
        return found
    before = _partial_output(results, suspect.key)
    if before is not None:
        output, index = before
        what = f"and nothing reduces it before {suspect.key.name}."
        return _partial_output_difference(results, output, index, what)
    placement, count = _biases(results, suspect)
    if "P" in placement:
        more = ", apart from the bias that each adds"
        return _partial_output_difference(
            results, suspect.key, placement.index("P"), "and nothing reduces it.", more
        )
    hint = HINTS["bias" if count else "output"]
    what = f"{subject(suspect.key)} is not the reference's: {results.nearest(suspect)}."
    if count:
        what = (
            f"{subject(suspect.key)} has its bias {count} times: each rank adds it before the sum."
        )
    _, wrong = suspect.right_ranks(suspect.wholes)
    return results.difference(suspect.key, "forward", what, hint, ranks=tuple(wrong))


def _partial_output_difference(
    results: Results, key: TensorId, index: int, end: str, more: str = ""
) -> Difference:
    what = f"the output of {key.name} is partial{results.over(index)}, {end}"
    does = f"hold parts that add up to the reference{more}"
    facts = [results.lines_text(index, does, results.comparing.parts(key))]
    axis = results.mesh.axes[index].name
    return results.difference(key, "forward", what, HINTS["partial output"], facts, axis=axis)


def _partial_output(results: Results, until: TensorId) -> tuple[TensorId, int] | None:
    """Return the last output before this one that nothing has reduced, and its axis.

    Masked rows of an embedding, too, are parts that must be added.
    """
    step = until.step
    partial: tuple[TensorId, int] | None = None
    for key, result in results.items():
        if key == until:
            break
        for index, way in enumerate(result.placement if key[:2] == ("output", step) else ()):
            is_masked = (
                way == ROWS
                and results.is_placed(TensorId("initial", 0, f"{key.name}.weight"), index, "S(0)")
                and results.is_placed(TensorId("input", step, "input"), index, "R")
            )
            if way == "P" or is_masked:
                partial = key, index
            elif way == "R" and partial is not None and partial[1] == index:
                partial = None
    return partial


def _biases(results: Results, suspect: Suspect) -> tuple[Placement, int]:
    """Return the placement in which only a bias is too much, and how often it is added."""
    initial_bias = results.comparing.reference.sketches(
        TensorId("initial", 0, f"{suspect.key.name}.bias")
    )[0]
    if initial_bias is None:
        return (), 0
    bias = initial_bias.sums[0] * suspect.reference.rows
    parts = in_shape(results.mesh, suspect.parts)
    found: list[tuple[Placement, int]] = []
    for placement, whole in combinations(parts, suspect.tolerance, {"mean"}):
        is_whole = (
            whole.rows == suspect.reference.rows and whole.lengths == suspect.reference.lengths
        )
        if is_whole and whole.lengths == (len(bias),) and bias.any():
            extra = whole.sums[0] - suspect.reference.sums[0]
            count = round(float(extra @ bias) / float(bias @ bias))
            left = np.linalg.norm(extra - count * bias)
            if count > 0 and left < SAME * np.linalg.norm(bias):
                found.append((placement, count + 1))
    usual = results.placement(TensorId("input", suspect.key.step, "input"))
    return max(found, key=lambda pair: sum(map(eq, pair[0], usual)), default=((), 0))


def _not_comparable(results: Results, key: TensorId) -> Difference | None:
    """Return the difference for a module that can't agree on another number of ranks."""
    random = {name for notes in results.notes for name in notes.random}
    norms = {name for notes in results.notes for name in notes.local_norms}
    called = results.alike(key)
    for index, output in enumerate(called):
        is_around = output.name == "model" or key.name.startswith(f"{output.name}.")
        if index <= called.index(key) or is_around:
            if output.name in random:
                what = f"{output.name} can't be compared: it draws random numbers."
                return results.difference(output, "random", what, HINTS["random"])
            if output.name in norms:
                what = f"{output.name} can't be compared: it normalises over the rows of one rank."
                return results.difference(output, "norm", what, HINTS["norm"])
    return None


def loss_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a loss whose outputs agree."""
    values = [float(part.sums[0][0]) for part in suspect.parts if part is not None]
    expected = float(suspect.reference.sums[0][0])
    mean = sum(values) / len(values)
    facts = [
        f"The ranks' mean is {mean:.6g}, the reference's loss {expected:.6g}.",
        f"The ranks have {listing([f'{value:.6g}' for value in values[:8]])}.",
    ]
    hint = HINTS["order" if len(suspect.equal_ranks()) == 1 else "loss"]
    what = "the loss is neither the mean nor the sum of the ranks', though all outputs agree."
    if suspect.result.exact:
        hint = HINTS["same rows"]
        what = "the loss differs between ranks that have the same rows and outputs."
    elif suspect.result.factor != 1:
        hint = HINTS["factor"]
        what = f"the loss is {times(suspect.result.factor)} the reference."
    return results.difference(suspect.key, "loss", what, hint, facts, factor=suspect.result.factor)
