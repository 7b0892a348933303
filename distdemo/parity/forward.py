"""Verdicts on what comes before the gradients: parameters at the start, inputs, outputs, loss."""

from __future__ import annotations

import math
from operator import eq

import numpy as np

from distdemo.parity.placements import ROWS, Placement, combinations, in_shape, split_dims
from distdemo.parity.records import Difference, TensorId
from distdemo.parity.results import MANY, Compared, Results
from distdemo.parity.wording import HINTS, by_rank, ranks_named, subject, times
from distdemo.view.format import listing, some

SAME = 1e-4  # relative difference of two biases


def seeds_difference(results: Results) -> Difference | None:
    """Return the difference for replicas that were drawn with different seeds."""
    different = [
        tensor
        for key, tensor in results.items()
        if key.kind == "start"
        and math.isfinite(tensor.reference.norm)
        and len(tensor.equal_ranks()) > 1
        and all(part.lengths == tensor.reference.lengths for part, _ in tensor.wholes.values())
    ]
    if not different:
        return None
    first, *others = different[0].equal_ranks()
    names = some([tensor.key.name for tensor in different], MANY)
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


def not_finite_difference(results: Results, tensor: Compared) -> Difference | None:
    """Return the difference for a tensor in which the reference has NaN or infinity."""
    if math.isfinite(tensor.reference.norm):
        return None
    what = f"{subject(tensor.key)} contains NaN or infinity in the reference."
    hint = "not initialised" if tensor.key.kind == "initial" else "not finite"
    return results.difference(tensor.key, "finite", what, HINTS[hint])


def initial_difference(results: Results, tensor: Compared) -> Difference:
    """Return the difference for an initial parameter that isn't the reference's."""
    what = f"{subject(tensor.key)} is not the reference's."
    hint = HINTS["several" if len(results.comparing.reference.ranks) > 1 else "start"]
    return results.difference(tensor.key, "start", what, hint)


def input_difference(results: Results, tensor: Compared) -> Difference:
    """Return the difference for the model's input: equal, too much, or other samples."""
    other_rows = _other_rows(results, tensor.key.step)
    if other_rows is not None:
        return other_rows
    expected = tensor.reference.rows
    groups = tensor.equal_ranks()
    together = sum(tensor.rows[group[0]] for group in groups)
    facts = [f"Rows of the input: {_rows_text(results, tensor)}, {expected:,} in the reference."]
    hint = HINTS["samples"]
    what = "the ranks' inputs together aren't the reference's."
    if len(groups) == 1:
        is_every = len(groups[0]) == results.size
        hint = HINTS["rows"]
        who = "every rank gets" if is_every else f"{ranks_named(groups[0])} get"
        what = f"{who} the same input, and it isn't the reference's."
    elif together > expected:
        hint = HINTS["growth"].format(rows=together)
        more = times(together / expected)
        what = f"the global batch is {more} the reference's: it grows with the number of ranks."
    elif len(groups) < len(tensor.rows):
        groups_text = [ranks_named(group) for group in groups if len(group) > 1]
        facts.append(f"The same input goes to {listing(groups_text[:MANY])}.")
    return results.difference(tensor.key, "data", what, hint, facts)


def same_batch_difference(results: Results) -> Difference | None:
    """Return the difference for ranks that all do the same work along an axis of data."""
    key = next((key for key in results if key.kind == "input"), None)
    if key is None or not results.comparing.steps:
        return None
    used = [other for other in results if other.kind != "start"]
    data_groups = results.comparing.ranks.all_of("data_groups")
    for index, axis in enumerate(results.mesh.axes):
        lines = results.mesh.lines(index)
        is_data = any(tuple(sorted(line)) in data_groups for line in lines)
        is_idle = all(results.is_placed(other, index, "R") for other in used)
        if results.is_placed(key, index, "R") and (is_data or is_idle):
            along = results.over(index, "along")
            who = f"the ranks{along}" if along else "all ranks"
            what = f"{who} get the same input, the reference's whole batch."
            facts = [f"{ranks_named(lines[0]).capitalize()} compute the same."]
            return results.difference(key, "data", what, HINTS["rows"], facts, axis=axis.name)
    return None


def _other_rows(results: Results, step: int) -> Difference | None:
    """Return the difference for ranks that split a layer, but not its input."""
    tensor = results.get(TensorId("input", step, "input"))
    if tensor is None:
        return None
    first = results.get(results.comparing.ends.get(tensor.key, tensor.key), tensor)
    if any(
        first.rows.get(rank, 0) * tensor.reference.rows > rows * first.reference.rows
        for rank, rows in tensor.rows.items()
    ):
        return None  # sequence parallelism: the ranks' rows are joined before the first layer
    groups = tensor.equal_ranks()
    data_groups = results.comparing.ranks.all_of("data_groups")
    for index, axis in enumerate(results.mesh.axes):
        line = results.mesh.lines(index)[0]
        is_split = any(
            other.kind == "initial" and split_dims(result.placement[index : index + 1])
            for other, result in results.items()
        )
        is_data = tuple(sorted(line)) in data_groups
        is_same = any({*line} <= {*group} for group in groups)
        if is_split and not is_data and not is_same:
            what = f"the ranks{results.over(index, 'along')} get different rows of the input."
            facts = [f"{ranks_named(line).capitalize()} hold pieces of layers that need the same."]
            more = {"axis": axis.name, "ranks": line}
            return results.difference(tensor.key, "data", what, HINTS["group"], facts, **more)
    return None


def _rows_text(results: Results, tensor: Compared) -> str:
    numbers = {*tensor.rows.values()}
    is_same = len(numbers) == 1 and len(tensor.rows) == results.size
    return f"{numbers.pop():,} on each rank" if is_same else by_rank(tensor.rows)


def output_difference(results: Results, tensor: Compared) -> Difference:
    """Return the difference for a module's output: the cause may be an earlier one."""
    key = tensor.key
    found = _not_comparable(results, key) or _other_rows(results, key.step)
    if found is not None:
        return found
    expected = tensor.reference.rows
    most = max(tensor.rows.values(), default=0)
    if min(tensor.rows.values(), default=0) > expected:
        rows = _rows_text(results, tensor)
        what = f"the ranks' batches together are {times(most / expected)} the reference's."
        facts = [f"Rows of {key.name}'s output: {rows}, {expected:,} in the reference."]
        return results.difference(key, "data", what, HINTS["growth"].format(rows=most), facts)
    before = _partial_output(results, key)
    placement, count = ((), 0) if before else _biases(results, tensor)
    if before is not None or "P" in placement:
        partial, index = before or (tensor, placement.index("P"))
        end = f"it before {key.name}" if before else "it"
        does = "hold parts that add up to the reference"
        does += "" if before else ", apart from the bias that each adds"
        axis = results.mesh.axes[index].name
        what = f"the output of {partial.key.name} is partial{results.over(index)}, and nothing "
        what += f"reduces {end}."
        facts = [results.lines_text(index, does, partial.parts)]
        hint = HINTS["partial output"]
        return results.difference(partial.key, "forward", what, hint, facts, axis=axis)
    what = f"{subject(key)} is not the reference's: {results.nearest(tensor)}."
    if count:
        what = f"{subject(key)} has its bias {count} times: each rank adds it before the sum."
    hint = HINTS["bias" if count else "output"]
    _, wrong = tensor.right_ranks(tensor.wholes)
    return results.difference(key, "forward", what, hint, ranks=tuple(wrong))


def _partial_output(results: Results, until: TensorId) -> tuple[Compared, int] | None:
    """Return the last output before this one that nothing has reduced, and its axis.

    Masked rows of an embedding, too, are parts that must be added.
    """
    partial: tuple[Compared, int] | None = None
    for output in results.alike(until):
        if output.key == until:
            break
        weight = TensorId("initial", 0, f"{output.key.name}.weight")
        for index, way in enumerate(output.placement):
            is_masked = (
                way == ROWS
                and results.is_placed(weight, index, "S(0)")
                and results.is_placed(TensorId("input", until.step, "input"), index, "R")
            )
            if way == "P" or is_masked:
                partial = output, index
            elif way == "R" and partial is not None and partial[1] == index:
                partial = None
    return partial


def _biases(results: Results, output: Compared) -> tuple[Placement, int]:
    """Return the placement in which only a bias is too much, and how often it is added."""
    key, reference = output.key, output.reference
    initial_bias = results.comparing.reference.sketches(TensorId("initial", 0, f"{key.name}.bias"))[
        0
    ]
    if initial_bias is None:
        return (), 0
    bias = initial_bias.sums[0] * reference.rows
    found: list[tuple[Placement, int]] = []
    parts = in_shape(results.mesh, output.parts)
    for placement, whole in combinations(parts, output.tolerance, {"mean"}):
        is_whole = whole.rows == reference.rows and whole.lengths == reference.lengths
        if is_whole and whole.lengths == (len(bias),) and bias.any():
            extra = whole.sums[0] - reference.sums[0]
            count = round(float(extra @ bias) / float(bias @ bias))
            left = np.linalg.norm(extra - count * bias)
            if count > 0 and left < SAME * np.linalg.norm(bias):
                found.append((placement, count + 1))
    usual = results.placement(TensorId("input", key.step, "input"))
    return max(found, key=lambda pair: sum(map(eq, pair[0], usual)), default=((), 0))


def _not_comparable(results: Results, key: TensorId) -> Difference | None:
    """Return the difference for a module that can't agree on another number of ranks."""
    random = results.comparing.ranks.all_of("random")
    norms = results.comparing.ranks.all_of("local_norms")
    is_before = True
    for output in (tensor.key for tensor in results.alike(key)):
        is_around = output.name == "model" or key.name.startswith(f"{output.name}.")
        if is_before or is_around:
            if output.name in random:
                what = f"{output.name} can't be compared: it draws random numbers."
                return results.difference(output, "random", what, HINTS["random"])
            if output.name in norms:
                what = f"{output.name} can't be compared: it normalises over the rows of one rank."
                return results.difference(output, "norm", what, HINTS["norm"])
        is_before = is_before and output != key
    return None


def loss_difference(results: Results, loss: Compared) -> Difference:
    """Return the difference for a loss whose outputs agree."""
    values = [float(part.sums[0][0]) for part in loss.parts if part is not None]
    expected = float(loss.reference.sums[0][0])
    mean = sum(values) / len(values)
    facts = [
        f"The ranks' mean is {mean:.6g}, the reference's loss {expected:.6g}.",
        f"The ranks have {listing([f'{value:.6g}' for value in values[:8]])}.",
    ]
    hint = HINTS["order" if len(loss.equal_ranks()) == 1 else "loss"]
    what = "the loss is neither the mean nor the sum of the ranks', though all outputs agree."
    if loss.exact:
        hint = HINTS["same rows"]
        what = "the loss differs between ranks that have the same rows and outputs."
    elif loss.factor != 1:
        hint = HINTS["factor"]
        what = f"the loss is {times(loss.factor)} the reference."
    return results.difference(loss.key, "loss", what, hint, facts, factor=loss.factor)
