"""Find the first cause of what differs. Pure logic, no torch.

What comes first in the order of execution is the cause, and what follows is its consequence. A
tensor that no placement explains is a cause only if something that matters is wrong, too: the loss,
a gradient or a parameter. Without training, every output matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from distdemo.parity.backward import (
    clipped_difference,
    fewer_steps_difference,
    gradient_difference,
    is_rescaled,
    parameter_difference,
    skipped_step_difference,
)
from distdemo.parity.compare import enclosing, wrong_parameters
from distdemo.parity.forward import (
    initial_difference,
    input_difference,
    loss_difference,
    not_finite_difference,
    output_difference,
    same_batch_difference,
    seeds_difference,
)
from distdemo.parity.placements import ROWS, multiple
from distdemo.parity.records import GRADIENTS, Difference, TensorId
from distdemo.parity.results import Results

ADAPTIVE = ("Adam", "Lamb", "RMSprop", "Adagrad", "Rprop", "Lion", "Muon", "Adadelta", "SignSGD")
"""Parts of names of optimizers that hide a factor of the gradients."""


VERDICTS = {
    "initial": initial_difference,
    "input": input_difference,
    "output": output_difference,
    "loss": loss_difference,
    "gradient": gradient_difference,
    "clipped": clipped_difference,
    "parameter": parameter_difference,
}
"""Verdict on each kind of tensor."""


@np.errstate(invalid="ignore", over="ignore")
def first_difference(results: Results) -> Difference | None:
    """Return the first cause, or None if the program computes what the reference does."""
    wrong = wrong_parameters(results)
    later = _wrong_later(results)
    causes = [
        key
        for key, result in results.items()
        if not results.comparing.incomparable(key, result) and _is_cause(results, key, wrong, later)
    ]
    learned = (*GRADIENTS, "parameter")
    matters = any(key.kind in learned or not results.comparing.learns for key in causes)
    found = seeds_difference(results) or fewer_steps_difference(results)
    if found is None and matters:
        key = _first(results, causes)
        if _follows_start(results, key):
            return None
        first = results.suspect(key)
        found = (
            not_finite_difference(results, first)
            or skipped_step_difference(results, key.step)
            or VERDICTS[key.kind](results, first)
        )
    return found or same_batch_difference(results)


def _follows_start(results: Results, key: TensorId) -> bool:
    """Return True if a tensor may differ because parameters start with other values.

    They have the reference's if all outputs of the first step agree.
    """
    starts = [start for start in results if start.kind == "initial"]
    if all(results[start].exact for start in starts) or key.kind in ("initial", "input"):
        return False
    first = min(other.step for other in results if other not in starts)
    outputs = results.alike(TensorId("output", first, "model"))
    return not all(results[output].exact for output in outputs)


def _first(results: Results, causes: Sequence[TensorId]) -> TensorId:
    """Return the first cause.

    If gradients are clipped by hand, one that is wrong gives all of them another factor. So one
    that is no multiple of the reference comes before those that are.
    """
    first = causes[0]
    if first[0] == "gradient" and is_rescaled(results.suspect(first)):
        others = [key for key in causes if key[:2] == first[:2]]
        unlike = [key for key in others if not is_rescaled(results.suspect(key))]
        known = [key for key in others if results.suspect(key).pieces]  # not split along two axes
        return next(iter((*unlike, *known, first)))
    return first


def _wrong_later(results: Results) -> dict[TensorId, bool]:
    """Return for each input and output whether a later output, or the loss, is wrong.

    If there is no loss, all are.
    """
    later: dict[TensorId, bool] = {}
    wrong: dict[int, bool] = {}
    for key, result in reversed([*results.items()]):
        kind, step, _ = key
        if kind in ("input", "output"):
            later[key] = wrong.get(step, False) or TensorId("loss", step, "loss") not in results
        if kind in ("output", "loss"):
            wrong[step] = wrong.get(step, False) or not result.exact
    return later


def _is_cause(
    results: Results,
    key: TensorId,
    wrong: AbstractSet[tuple[int, str]],
    later: Mapping[TensorId, bool],
) -> bool:
    """Return True if a tensor is not as it should be, and nothing later makes up for it.

    Args:
        results: Results of the comparison.
        key: The tensor.
        wrong: Steps and names of parameters that are wrong after a step.
        later: True for inputs and outputs that wrong ones follow.
    """
    kind = key.kind
    is_wrong = not results[key].exact
    if kind in GRADIENTS:
        hidden = is_wrong and _is_hidden(results, key)
        return hidden or (key[1:] in wrong and (is_wrong or "P" in results.placement(key)))
    if kind == "loss" and _is_shared_loss(results, key):
        return True
    if not is_wrong or kind == "start":
        return False
    if kind in ("output", "loss") and _is_made_up_for(results, key):
        return False
    return later.get(key, True)


def _is_made_up_for(results: Results, key: TensorId) -> bool:
    """Return True if gradients are right that couldn't be, were this what the gradients are of.

    A pipeline adds up its micro-batches' losses, and may call a stage once more to learn shapes.
    """
    kind, step, name = key
    if kind == "loss":
        return results[key].holds and step in results.steps_with_right_gradients
    homes = ((step, home) for home in (name, *enclosing(name)))
    right = next(
        (results.gradients_of[home] for home in homes if home in results.gradients_of), {False}
    )
    suspect = results.suspect(key)
    is_longer = max(suspect.rows.values(), default=0) > suspect.reference.rows
    return True in right if is_longer else right == {True}


def _is_shared_loss(results: Results, key: TensorId) -> bool:
    """Return True if ranks that have the same rows have different losses."""
    ways = zip(
        results.placement(key),
        results.placement(TensorId("input", key.step, "input")),
        results.placement(TensorId("output", key.step, "model")),
        strict=False,
    )
    return any(way in ("mean", "P") and rows == "R" and out != ROWS for way, rows, out in ways)


def _is_hidden(results: Results, key: TensorId) -> bool:
    """Return True if an adaptive optimizer hides that a gradient is wrong.

    A gradient that differs between the ranks may be made up for, as ZeRO does.
    """
    optimizers = " ".join(results.notes[0].optimizers)
    is_scaled = results[key].holds and "P" not in results.placement(key)
    suspect = results.suspect(key)
    is_scaled = is_scaled or all(
        multiple(part, expected, suspect.tolerance) for part, expected in suspect.wholes.values()
    )
    is_same = is_scaled or len(suspect.equal_ranks()) == 1
    return is_same and any(name in optimizers for name in ADAPTIVE)
