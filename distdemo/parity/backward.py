"""Verdicts on gradients, and on parameters after the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from distdemo.parity.records import Difference, TensorId
from distdemo.parity.results import MANY, Compared, Results
from distdemo.parity.sketches import distance
from distdemo.parity.wording import HINTS, NEAR, by_rank, number, ranks_named, subject, times
from distdemo.view.format import some

MOST = 1025  # largest factor that is a number of ranks or of micro-batches


def gradient_difference(results: Results, gradient: Compared) -> Difference:
    """Return the difference for a gradient."""
    right, wrong = gradient.right_ranks(gradient.pieces)
    if gradient.holds and not (wrong and gradient.factor != 1):
        is_partial = "P" in gradient.placement
        return (_partial_difference if is_partial else _factor_difference)(results, gradient)
    tensor = subject(gradient.key)
    factors = gradient.factors()
    facts = []
    if factors and factors.keys() >= {*wrong}:
        facts = [f"In multiples of the reference: {by_rank(factors)}."]
    holders = {rank: pair for rank, pair in gradient.wholes.items() if all(pair[0].lengths)}
    pieces = (gradient.pieces or holders).items()
    zeros = [rank for rank, (part, expected) in pieces if part.norm == 0 < expected.norm]
    unlike = _unlike_axis(results, gradient)
    groups = gradient.equal_ranks()
    is_reduced = len(groups) == 1 and len(groups[0]) > 1
    is_first = results.alike(gradient.key)[0] is gradient
    hint = HINTS["gradient" if is_first and not is_reduced else "lost"]
    more: dict[str, Any] = {}
    if zeros:
        who = "every rank" if len(zeros) == len(holders) else ranks_named(zeros)
        what = f"{tensor} is zero on {who}."
        facts = []
        hint = HINTS["zero"]
        more["ranks"] = tuple(zeros)
    elif wrong:
        what = f"{tensor} is right on {ranks_named(right)}, and not on {ranks_named(wrong)}."
        hint = HINTS["clipped"] if facts else hint
        more["ranks"] = tuple(wrong)
    elif len({number(factor) for factor in factors.values()}) == 1:
        factor = next(iter(factors.values()))
        what = f"{tensor} is {times(factor)} the reference on {ranks_named([*factors])}."
        facts = []
        hint = HINTS["sum" if _is_simple(factor) else "odd"]
        more = {"ranks": tuple(factors), "factor": factor}
    elif factors:
        what = f"{tensor} is scaled by a different factor on each rank."
        hint = HINTS["clipped"]
    elif unlike is not None:
        along = results.over(unlike, "along")
        what = f"{tensor} differs between the ranks{along}, which hold the same parameter."
        hint = HINTS["contribution"].format(over=results.over(unlike))
        more["axis"] = results.mesh.axes[unlike].name
    else:
        what = f"{tensor} is not the reference's: {results.nearest(gradient)}."
        more["ranks"] = tuple(gradient.wholes) if len(gradient.wholes) < results.size else ()
    return results.difference(gradient.key, "gradient", what, hint, facts, **more)


def clipped_difference(results: Results, gradient: Compared) -> Difference:
    """Return the difference for a gradient that agrees until it is clipped."""
    what = f"{subject(gradient.key)} is not the reference's, though it agrees before "
    what += "clip_grad_norm_."
    facts = _clips_text(results, gradient.key.step)
    factors = gradient.factors()
    if factors:
        facts = [f"In multiples of the reference: {by_rank(factors)}.", *facts]
    return results.difference(gradient.key, "gradient", what, HINTS["clipped"], facts)


def _partial_difference(results: Results, gradient: Compared) -> Difference:
    """Return the difference for a gradient whose parts must still be added."""
    index = gradient.placement.index("P")
    axis = results.mesh.axes[index]
    is_mean = abs(gradient.factor - axis.size) < NEAR * axis.size
    does = "hold parts that add up to the reference"
    if is_mean:
        does = "hold parts whose mean is the reference"
    elif gradient.factor != 1:
        does += f" times {number(gradient.factor)}"
    gradients = results.alike(gradient.key)
    partial = [other for other in gradients if other.holds and other.placement[index] == "P"]
    facts = [
        results.lines_text(index, does, gradient.parts),
        *_others_text(gradient, partial, gradients),
    ]
    over = results.over(index)
    hint = HINTS["mean" if is_mean else "partial"].format(over=over)
    what = f"{subject(gradient.key)} is not reduced{over}."
    clipped = results.get(gradient.key._replace(kind="clipped"))
    if clipped is not None and "P" not in clipped.placement:
        hint = HINTS["clipped"]
        what = f"clip_grad_norm_ is called before {subject(gradient.key)} is reduced{over}."
        facts += _clips_text(results, gradient.key.step)
    return results.difference(gradient.key, "gradient", what, hint, facts, axis=axis.name)


def _factor_difference(results: Results, gradient: Compared) -> Difference:
    factor = gradient.factor
    gradients = results.alike(gradient.key)
    scaled = [other for other in gradients if abs(other.factor - factor) < NEAR * abs(factor)]
    facts = _others_text(gradient, scaled, gradients)
    sizes = [results.size, *(axis.size for axis in results.mesh.axes)]
    hint = "factor" if _is_simple(factor) else "odd"
    if any(abs(factor - size) < NEAR * size for size in sizes):
        hint = "sum"
    elif any(abs(factor * size - 1) < NEAR for size in sizes):
        is_sum = "P" in results.placement(TensorId("loss", gradient.key.step, "loss"))
        hint = "summed" if is_sum else "divided"
    what = f"{subject(gradient.key)} is {times(factor)} the reference."
    return results.difference(gradient.key, "gradient", what, HINTS[hint], facts, factor=factor)


def _is_simple(factor: float) -> bool:
    """Return True for a small whole number, its reciprocal, or a power of two."""
    larger = max(abs(factor), 1 / abs(factor))
    return abs(larger - round(larger)) < NEAR * larger and (
        larger < MOST or math.log2(round(larger)).is_integer()
    )


def _others_text(
    gradient: Compared, alike: Sequence[Compared], gradients: Sequence[Compared]
) -> list[str]:
    """Return the sentence on the other gradients of the step that are alike."""
    names = [other.key.name for other in alike if other is not gradient]
    if len(names) + 1 == len(gradients) > 1:
        return [f"The same goes for all {len(gradients):,} parameters."]
    return [f"The same goes for {some(names, MANY)}."] if names else []


def _unlike_axis(results: Results, gradient: Compared) -> int | None:
    """Return an axis whose ranks hold the same parameter, but not the same gradient."""
    groups = gradient.equal_ranks()
    for index in range(len(results.mesh.axes)):
        lines = [
            {rank for rank in line if gradient.parts[rank]} for line in results.mesh.lines(index)
        ]
        is_same = all(any(line <= {*group} for group in groups) for line in lines)
        if results.is_placed(gradient.key.initial, index, "R") and not is_same:
            return index
    return None


def is_rescaled(gradient: Compared) -> bool:
    """Return True if every rank may hold a multiple of its piece, by a factor of no meaning."""
    factors = gradient.factors()
    return len(factors) == len(gradient.pieces) and not any(map(_is_simple, factors.values()))


def _clips_text(results: Results, step: int) -> list[str]:
    """Return the sentence on ``clip_grad_norm_``, if ranks computed other norms."""
    runs = (results.comparing.reference.ranks[:1], results.notes)
    reference, ranks = (
        {notes.rank: clip for notes in run for clip in notes.clips if clip.step == step}
        for run in runs
    )
    if not reference or not ranks:
        return []
    if len(ranks) < results.size:
        return [f"Only {ranks_named(list(ranks))} called clip_grad_norm_."]
    expected = reference[0].norm
    if all(abs(clip.norm - expected) <= NEAR * expected for clip in ranks.values()):
        return []
    norms = by_rank({rank: clip.norm for rank, clip in ranks.items()})
    how = f"clip_grad_norm_ at {ranks[0].line} computed the norm {norms}"
    return [f"{how}; the reference's is {expected:.4g}."]


def fewer_steps_difference(results: Results) -> Difference | None:
    """Return the difference for ranks that have made fewer steps than others."""
    steps = {notes.rank: notes.steps for notes in results.notes if notes.optimizers}
    least = min(steps.values(), default=0)
    ranks = [rank for rank, count in steps.items() if count == least]
    if len(ranks) == len(steps):
        return None
    return _skipped(least, ranks, f"Calls of step(): {by_rank(steps)}.")


def skipped_step_difference(results: Results, step: int) -> Difference | None:
    """Return the difference for ranks that called ``backward()`` for two steps before one."""
    training = [notes for notes in results.notes if 0 <= step < len(notes.backwards)]
    earlier = {notes.backwards[:step] for notes in training}
    counts = {notes.rank: notes.backwards[step] for notes in training}
    least = min(counts.values(), default=0)
    ranks = [rank for rank, count in counts.items() if count > least]
    is_multiple = least > 0 and all(count % least == 0 for count in counts.values())
    if not ranks or len(earlier) > 1 or not is_multiple:
        return None
    return _skipped(step, ranks, f"Calls of backward() before it: {by_rank(counts)}.")


def _skipped(step: int, ranks: Sequence[int], fact: str) -> Difference:
    number = step + 1
    what = f"Step {number}: {ranks_named(ranks)} skipped the optimizer's step."
    return Difference("parameter", what, (fact,), HINTS["skipped"], step=number, ranks=tuple(ranks))


def parameter_difference(results: Results, parameter: Compared) -> Difference:
    """Return the difference for a parameter after a step, whose gradient agrees."""
    comparing = results.comparing
    tensor = subject(parameter.key)
    right, wrong = parameter.right_ranks(parameter.wholes)
    gradient = comparing.last_gradient(parameter.key)
    settings = _settings_text(results, gradient)
    is_seen = gradient in results
    though = "though its gradient agrees" if is_seen else "and its gradient was not seen"
    _, step, name = parameter.key
    before = TensorId("parameter", step - 1, name) if step else parameter.key.initial
    known = comparing.ranks.sketches(before)
    same = [
        rank
        for rank, (part, earlier) in enumerate(zip(parameter.parts, known, strict=True))
        if part and earlier and distance(part, earlier) == (0, 0)
    ]
    if right:
        who = f"{ranks_named(right)}, and not on {ranks_named(wrong)}"
        what = f"{tensor} is right after the step on {who}."
    elif same:
        who = "any rank" if len(same) == results.size else ranks_named(same)
        what = f"{tensor} has not changed on {who}, {though}."
    else:
        what = f"{tensor} is not the reference's after the step, {though}."
    note = comparing.ranks.note(gradient)
    hint = "settings" if settings else "parameter"
    if len(same) == results.size and not (note and note.settings):
        hint = "unheld"
    if not is_seen:
        hint = "unseen"
    ranks = tuple(wrong or same)
    return results.difference(parameter.key, "parameter", what, HINTS[hint], settings, ranks=ranks)


def _settings_text(results: Results, gradient: TensorId) -> list[str]:
    """Return the sentences on settings of the optimizer that are not the reference's."""
    reference = results.comparing.reference.note(gradient)
    tables = enumerate(results.comparing.ranks.tables)
    settings = {rank: table[gradient].settings for rank, table in tables if gradient in table}
    texts = []
    for name, expected in reference.settings.items() if reference else ():
        values = {rank: numbers[name] for rank, numbers in settings.items() if name in numbers}
        if values and {*values.values()} != {expected}:
            texts.append(f"Its {name} is {by_rank(values)}; the reference's is {expected:.4g}.")
    return texts
