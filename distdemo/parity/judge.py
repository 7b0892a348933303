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
from distdemo.parity.cases import Cases
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
from distdemo.parity.records import GRADIENTS, Difference, Key

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
def first_difference(cases: Cases) -> Difference | None:
    """Return the first cause, or None if the program computes what the reference does."""
    wrong = wrong_parameters(cases.results)
    later = _wrong_later(cases)
    causes = [
        key
        for key, result in cases.results.items()
        if not cases.comparing.incomparable(key, result) and _is_cause(cases, key, wrong, later)
    ]
    learned = (*GRADIENTS, "parameter")
    matters = any(key[0] in learned or not cases.comparing.learns for key in causes)
    found = seeds_difference(cases) or fewer_steps_difference(cases)
    if found is None and matters:
        key = _first(cases, causes)
        if _follows_start(cases, key):
            return None
        first = cases.case(key)
        found = (
            not_finite_difference(cases, first)
            or skipped_step_difference(cases, key[1])
            or VERDICTS[key[0]](cases, first)
        )
    return found or same_batch_difference(cases)


def _follows_start(cases: Cases, key: Key) -> bool:
    """Return True if a tensor may differ because parameters start with other values.

    They have the reference's if all outputs of the first step agree.
    """
    starts = [own for own in cases.results if own[0] == "initial"]
    if all(cases.results[own].exact for own in starts) or key[0] in ("initial", "input"):
        return False
    first = min(own[1] for own in cases.results if own not in starts)
    outputs = [own for own in cases.results if own[:2] == ("output", first)]
    return not all(cases.results[own].exact for own in outputs)


def _first(cases: Cases, causes: Sequence[Key]) -> Key:
    """Return the first cause.

    If gradients are clipped by hand, one that is wrong gives all of them another factor. So one
    that is no multiple of the reference comes before those that are.
    """
    first = causes[0]
    if first[0] == "gradient" and is_rescaled(cases.case(first)):
        others = [key for key in causes if key[:2] == first[:2]]
        unlike = [key for key in others if not is_rescaled(cases.case(key))]
        known = [key for key in others if cases.case(key).pieces]  # not split along two axes
        return next(iter((*unlike, *known, first)))
    return first


def _wrong_later(cases: Cases) -> dict[Key, bool]:
    """Return for each input and output whether a later output, or the loss, is wrong.

    If there is no loss, all are.
    """
    later: dict[Key, bool] = {}
    wrong: dict[int, bool] = {}
    for key, result in reversed([*cases.results.items()]):
        kind, step, _ = key
        if kind in ("input", "output"):
            later[key] = wrong.get(step, False) or ("loss", step, "loss") not in cases.results
        if kind in ("output", "loss"):
            wrong[step] = wrong.get(step, False) or not result.exact
    return later


def _is_cause(
    cases: Cases, key: Key, wrong: AbstractSet[tuple[int, str]], later: Mapping[Key, bool]
) -> bool:
    """Return True if a tensor is not as it should be, and nothing later makes up for it.

    Args:
        cases: Results of the comparison.
        key: The tensor.
        wrong: Steps and names of parameters that are wrong after a step.
        later: True for inputs and outputs that wrong ones follow.
    """
    kind = key[0]
    is_wrong = not cases.results[key].exact
    if kind in GRADIENTS:
        hidden = is_wrong and _is_hidden(cases, key)
        return hidden or (key[1:] in wrong and (is_wrong or "P" in cases.placement(key)))
    if kind == "loss" and _is_shared_loss(cases, key):
        return True
    if not is_wrong or kind == "start":
        return False
    if kind in ("output", "loss") and _is_made_up_for(cases, key):
        return False
    return later.get(key, True)


def _is_made_up_for(cases: Cases, key: Key) -> bool:
    """Return True if gradients are right that couldn't be, were this what the gradients are of.

    A pipeline adds up its micro-batches' losses, and may call a stage once more to learn shapes.
    """
    kind, step, name = key
    if kind == "loss":
        return cases.results[key].holds and step in cases.steps_with_right_gradients
    homes = ((step, home) for home in (name, *enclosing(name)))
    right = next((cases.gradients_of[own] for own in homes if own in cases.gradients_of), {False})
    case = cases.case(key)
    is_longer = max(case.rows.values(), default=0) > case.reference.rows
    return True in right if is_longer else right == {True}


def _is_shared_loss(cases: Cases, key: Key) -> bool:
    """Return True if ranks that have the same rows have different losses."""
    ways = zip(
        cases.placement(key),
        cases.placement(("input", key[1], "input")),
        cases.placement(("output", key[1], "model")),
        strict=False,
    )
    return any(way in ("mean", "P") and rows == "R" and out != ROWS for way, rows, out in ways)


def _is_hidden(cases: Cases, key: Key) -> bool:
    """Return True if an adaptive optimizer hides that a gradient is wrong.

    A gradient that differs between the ranks may be made up for, as ZeRO does.
    """
    optimizers = " ".join(cases.notes[0].optimizers)
    is_scaled = cases.results[key].holds and "P" not in cases.placement(key)
    case = cases.case(key)
    is_scaled = is_scaled or all(
        multiple(part, own, case.tolerance) for part, own in case.wholes.values()
    )
    is_same = is_scaled or len(case.equal_ranks()) == 1
    return is_same and any(name in optimizers for name in ADAPTIVE)
