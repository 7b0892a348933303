"""Verdicts on gradients, and on parameters after the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distdemo.parity.hints import HINTS
from distdemo.parity.placements import Explanation
from distdemo.parity.records import Difference, TensorId
from distdemo.parity.results import (
    NEAR,
    Results,
    Suspect,
    by_rank,
    listed,
    number,
    ranks_named,
    subject,
    times,
)
from distdemo.parity.sketches import distance

MOST = 1025  # largest factor that is a number of ranks or of micro-batches


def gradient_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a gradient."""
    right, wrong = suspect.right_ranks(suspect.pieces)
    if suspect.result.holds and not (wrong and suspect.result.factor != 1):
        return (
            _partial_difference(results, suspect)
            if "P" in suspect.result.placement
            else _factor_difference(results, suspect)
        )
    tensor = subject(suspect.key)
    factors = suspect.factors()
    facts = []
    if factors and factors.keys() >= {*wrong}:
        facts = [f"In multiples of the reference: {by_rank(factors)}."]
    holders = {rank: pair for rank, pair in suspect.wholes.items() if all(pair[0].lengths)}
    pieces = (suspect.pieces or holders).items()
    zeros = [rank for rank, (part, expected) in pieces if part.norm == 0 < expected.norm]
    unlike = _unlike_axis(results, suspect)
    groups = suspect.equal_ranks()
    is_reduced = len(groups) == 1 and len(groups[0]) > 1
    is_first = results.alike(suspect.key)[0] == suspect.key
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
        what = f"{tensor} is not the reference's: {results.nearest(suspect)}."
        more["ranks"] = tuple(suspect.wholes) if len(suspect.wholes) < results.size else ()
    return results.difference(suspect.key, "gradient", what, hint, facts, **more)


def clipped_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a gradient that agrees until it is clipped."""
    factors = suspect.factors()
    what = (
        f"{subject(suspect.key)} is not the reference's, though it agrees before clip_grad_norm_."
    )
    facts = _clips_text(results, suspect.key.step)
    if factors:
        facts = [f"In multiples of the reference: {by_rank(factors)}.", *facts]
    return results.difference(suspect.key, "gradient", what, HINTS["clipped"], facts)


def _partial_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a gradient whose parts must still be added."""
    index = suspect.result.placement.index("P")
    axis = results.mesh.axes[index]
    factor = suspect.result.factor
    is_mean = abs(factor - axis.size) < NEAR * axis.size
    does = "hold parts that add up to the reference"
    if is_mean:
        does = "hold parts whose mean is the reference"
    elif factor != 1:
        does += f" times {number(factor)}"
    facts = [
        results.lines_text(index, does, suspect.parts),
        *_others(results, suspect.key, lambda other: other.holds and other.placement[index] == "P"),
    ]
    over = results.over(index)
    clipped = results.get(suspect.key._replace(kind="clipped"))
    if clipped is not None and "P" not in clipped.placement:
        what = f"clip_grad_norm_ is called before {subject(suspect.key)} is reduced{over}."
        facts += _clips_text(results, suspect.key.step)
        return results.difference(
            suspect.key, "gradient", what, HINTS["clipped"], facts, axis=axis.name
        )
    what = f"{subject(suspect.key)} is not reduced{over}."
    hint = HINTS["mean" if is_mean else "partial"].format(over=over)
    return results.difference(suspect.key, "gradient", what, hint, facts, axis=axis.name)


def _factor_difference(results: Results, suspect: Suspect) -> Difference:
    factor = suspect.result.factor
    facts = [
        *_others(
            results, suspect.key, lambda other: abs(other.factor - factor) < NEAR * abs(factor)
        )
    ]
    sizes = [results.size, *(axis.size for axis in results.mesh.axes)]
    hint = "factor" if _is_simple(factor) else "odd"
    if any(abs(factor - size) < NEAR * size for size in sizes):
        hint = "sum"
    elif any(abs(factor * size - 1) < NEAR for size in sizes):
        is_sum = "P" in results.placement(TensorId("loss", suspect.key.step, "loss"))
        hint = "summed" if is_sum else "divided"
    what = f"{subject(suspect.key)} is {times(factor)} the reference."
    return results.difference(suspect.key, "gradient", what, HINTS[hint], facts, factor=factor)


def _is_simple(factor: float) -> bool:
    """Return True for a small whole number, its reciprocal, or a power of two."""
    larger = max(abs(factor), 1 / abs(factor))
    return abs(larger - round(larger)) < NEAR * larger and (
        larger < MOST or math.log2(round(larger)).is_integer()
    )


def _others(
    results: Results, key: TensorId, is_alike: Callable[[Explanation], bool]
) -> Iterator[str]:
    """Yield the sentence on the other gradients of the step that are alike."""
    gradients = results.alike(key)
    alike = [other.name for other in gradients if other != key and is_alike(results[other])]
    if len(alike) + 1 == len(gradients) > 1:
        yield f"The same goes for all {len(gradients):,} parameters."
    elif alike:
        yield f"The same goes for {listed(alike)}."


def _unlike_axis(results: Results, suspect: Suspect) -> int | None:
    """Return an axis whose ranks hold the same parameter, but not the same gradient."""
    groups = suspect.equal_ranks()
    for index in range(len(results.mesh.axes)):
        lines = [
            [rank for rank in line if suspect.parts[rank]] for line in results.mesh.lines(index)
        ]
        is_same = all(any({*line} <= {*group} for group in groups) for line in lines)
        if results.is_placed(suspect.key.initial, index, "R") and not is_same:
            return index
    return None


def is_rescaled(suspect: Suspect) -> bool:
    """Return True if every rank may hold a multiple of its piece, by a factor of no meaning."""
    factors = suspect.factors()
    return len(factors) == len(suspect.pieces) and not any(map(_is_simple, factors.values()))


def _clips_text(results: Results, step: int) -> list[str]:
    """Return the sentence on ``clip_grad_norm_``, if ranks computed other norms."""
    runs = (results.comparing.reference.notes[:1], results.notes)
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
    earlier = {notes.backwards[:step] for notes in results.notes}
    counts = {
        notes.rank: notes.backwards[step] for notes in results.notes if len(notes.backwards) > step
    }
    least = min(counts.values(), default=0)
    ranks = [rank for rank, count in counts.items() if count > least]
    is_multiple = least > 0 and all(count % least == 0 for count in counts.values())
    if not ranks or len(earlier) > 1 or not is_multiple:
        return None
    return _skipped(step, ranks, f"Calls of backward() before it: {by_rank(counts)}.")


def _skipped(step: int, ranks: Sequence[int], fact: str) -> Difference:
    what = f"Step {step}: {ranks_named(ranks)} skipped the optimizer's step."
    return Difference("parameter", what, (fact,), HINTS["skipped"], step=step, ranks=tuple(ranks))


def parameter_difference(results: Results, suspect: Suspect) -> Difference:
    """Return the difference for a parameter after a step, whose gradient agrees."""
    tensor = subject(suspect.key)
    settings = _settings_text(results, suspect.key)
    right, wrong = suspect.right_ranks(suspect.wholes)
    same = _unchanged(results, suspect)
    gradient = results.comparing.ranks.note(results.comparing.last_gradient(suspect.key))
    is_seen = results.comparing.last_gradient(suspect.key) in results
    though = "though its gradient agrees" if is_seen else "and its gradient was not seen"
    if right:
        who = f"{ranks_named(right)}, and not on {ranks_named(wrong)}"
        what = f"{tensor} is right after the step on {who}."
    elif same:
        who = "any rank" if len(same) == results.size else ranks_named(same)
        what = f"{tensor} has not changed on {who}, {though}."
    else:
        what = f"{tensor} is not the reference's after the step, {though}."
    hint = "settings" if settings else "parameter"
    if len(same) == results.size and not (gradient and gradient.settings):
        hint = "unheld"
    if not is_seen:
        hint = "unseen"
    return results.difference(
        suspect.key, "parameter", what, HINTS[hint], settings, ranks=tuple(wrong or same)
    )


def _settings_text(results: Results, key: TensorId) -> list[str]:
    """Return the sentences on settings of the optimizer that are not the reference's."""
    gradient = results.comparing.last_gradient(key)
    reference = results.comparing.reference.note(gradient)
    notes = {
        rank: t[gradient][0]
        for rank, t in enumerate(results.comparing.ranks.tables)
        if gradient in t
    }
    texts = []
    for name, expected in reference.settings.items() if reference else ():
        values = {
            rank: note.settings[name] for rank, note in notes.items() if name in note.settings
        }
        if values and {*values.values()} != {expected}:
            texts.append(f"Its {name} is {by_rank(values)}; the reference's is {expected:.4g}.")
    return texts


def _unchanged(results: Results, suspect: Suspect) -> list[int]:
    """Return the ranks on which a parameter has the values from before the step."""
    _, step, name = suspect.key
    before = TensorId("parameter", step - 1, name) if step else TensorId("initial", 0, name)
    earlier = results.comparing.ranks.sketches(before)
    return [
        rank
        for rank, (part, known) in enumerate(zip(suspect.parts, earlier, strict=True))
        if part and known and distance(part, known) == (0, 0)
    ]
