"""Find the first cause of what differs. Pure logic, no torch.

What comes first in the order of execution is the cause, and what follows is its consequence. A
tensor that no placement explains is a cause only if something that matters is wrong, too: the loss,
a gradient or a parameter. Without training, every output matters.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from distdemo.parity.compare import enclosing
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
from distdemo.parity.records import EVALUATION, GRADIENTS, Difference, TensorId
from distdemo.parity.results import Compared, Results, wrong_parameters

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
    found = seeds_difference(results) or fewer_steps_difference(results)
    if found is not None:
        return found
    wrong = wrong_parameters(results)
    later = _wrong_later(results)
    settled = _last_right_step(results, wrong)
    causes = [
        tensor
        for tensor in results.values()
        if not tensor.incomparable
        and not (tensor.key.kind in ("input", "output", "loss") and tensor.key.step <= settled)
        and _is_cause(results, tensor, wrong, later)
    ]
    learned = (*GRADIENTS, "parameter")
    if not any(cause.key.kind in learned for cause in causes) and results.comparing.learns:
        causes = []
    if causes:
        first = _first(causes)
        if _follows_start(results, first.key):
            return None
        found = (
            not_finite_difference(results, first)
            or skipped_step_difference(results, first.key.step)
            or VERDICTS[first.key.kind](results, first)
        )
    return found or same_batch_difference(results)


def _follows_start(results: Results, key: TensorId) -> bool:
    """Return True if a tensor may differ because parameters start with other values.

    They have the reference's if all outputs of the first step agree.
    """
    starts = [tensor for tensor in results.values() if tensor.key.kind == "initial"]
    if all(start.exact for start in starts) or key.kind in ("initial", "input"):
        return False
    first = min(other.step for other in results if other.kind != "initial")
    outputs = results.alike(TensorId("output", first, "model"))
    return not all(output.exact for output in outputs)


def _first(causes: list[Compared]) -> Compared:
    """Return the first cause.

    If gradients are clipped by hand, one that is wrong gives all of them another factor. So one
    that is no multiple of the reference comes before those that are.
    """
    first = causes[0]
    if first.key.kind == "gradient" and is_rescaled(first):
        others = [cause for cause in causes if cause.key[:2] == first.key[:2]]
        unlike = [cause for cause in others if not is_rescaled(cause)]
        known = [cause for cause in others if cause.pieces]  # not split along two axes
        return next(iter((*unlike, *known, first)))
    return first


def _last_right_step(results: Results, wrong: AbstractSet[tuple[int, str]]) -> int:
    """Return the last step after which all parameters are right.

    What was unlike the reference until then has had no effect: it is rounding that has grown.
    """
    steps = {key.step for key in results if key.kind == "parameter"}
    return max(steps - {step for step, _ in wrong}, default=EVALUATION - 1)


def _wrong_later(results: Results) -> dict[TensorId, bool]:
    """Return for each input and output whether a later output, or the loss, is wrong.

    If there is no loss, all are.
    """
    later: dict[TensorId, bool] = {}
    wrong: dict[int, bool] = {}
    for key, tensor in reversed(results.items()):
        kind, step, _ = key
        if kind in ("input", "output"):
            later[key] = wrong.get(step, False) or TensorId("loss", step, "loss") not in results
        if kind in ("output", "loss"):
            wrong[step] = wrong.get(step, False) or not tensor.exact
    return later


def _is_cause(
    results: Results,
    tensor: Compared,
    wrong: AbstractSet[tuple[int, str]],
    later: Mapping[TensorId, bool],
) -> bool:
    """Return True if a tensor is not as it should be, and nothing later makes up for it.

    Args:
        results: Results of the comparison.
        tensor: The tensor.
        wrong: Steps and names of parameters that are wrong after a step.
        later: True for inputs and outputs that wrong ones follow.
    """
    key, is_wrong = tensor.key, not tensor.exact
    if key.kind in GRADIENTS:
        hidden = is_wrong and _is_hidden(results, tensor)
        return hidden or (key[1:] in wrong and (is_wrong or "P" in tensor.placement))
    if key.kind == "loss" and _is_shared_loss(results, tensor):
        return True
    if not is_wrong or key.kind == "start":
        return False
    if key.kind in ("output", "loss") and _is_made_up_for(results, tensor):
        return False
    return later.get(key, True)


def _is_made_up_for(results: Results, tensor: Compared) -> bool:
    """Return True if gradients are right that couldn't be, were this what the gradients are of.

    A pipeline adds up its micro-batches' losses, and may call a stage once more to learn shapes.
    """
    kind, step, name = tensor.key
    gradients = results.right_gradients
    if kind == "loss":
        return tensor.holds and True in gradients.get((step, "model"), ())
    homes = ((step, home) for home in (name, *enclosing(name)))
    right = next((gradients[home] for home in homes if home in gradients), {False})
    is_longer = max(tensor.rows.values(), default=0) > tensor.reference.rows
    return True in right if is_longer else right == {True}


def _is_shared_loss(results: Results, loss: Compared) -> bool:
    """Return True if ranks that have the same rows have different losses."""
    ways = zip(
        loss.placement,
        results.placement(TensorId("input", loss.key.step, "input")),
        results.placement(TensorId("output", loss.key.step, "model")),
        strict=False,
    )
    return any(way in ("mean", "P") and rows == "R" and out != ROWS for way, rows, out in ways)


def _is_hidden(results: Results, gradient: Compared) -> bool:
    """Return True if an adaptive optimizer hides that a gradient is wrong.

    A gradient that differs between the ranks may be made up for, as ZeRO does.
    """
    optimizers = " ".join(results.notes[0].optimizers)
    if not any(name in optimizers for name in ADAPTIVE):
        return False
    is_scaled = gradient.holds and "P" not in gradient.placement
    is_scaled = is_scaled or all(
        multiple(part, expected, gradient.tolerance) for part, expected in gradient.wholes.values()
    )
    return is_scaled or len(gradient.equal_ranks()) == 1
