"""Verdicts on gradients, and on parameters after the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distdemo.parity.cases import (
    NEAR,
    Case,
    Cases,
    by_rank,
    listed,
    number,
    ranks_named,
    subject,
    times,
)
from distdemo.parity.hints import HINTS
from distdemo.parity.placements import Explanation
from distdemo.parity.records import Difference, Key
from distdemo.parity.sketches import distance

MOST = 1025  # largest factor that is a number of ranks or of micro-batches


def gradient_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient."""
    right, wrong = case.right_ranks(case.pieces)
    if case.result.holds and not (wrong and case.result.factor != 1):
        return (
            _partial_difference(cases, case)
            if "P" in case.result.placement
            else _factor_difference(cases, case)
        )
    tensor = subject(case.key)
    factors = case.factors()
    facts = []
    if factors and factors.keys() >= {*wrong}:
        facts = [f"In multiples of the reference: {by_rank(factors)}."]
    holders = {rank: own for rank, own in case.wholes.items() if all(own[0].lengths)}
    pieces = (case.pieces or holders).items()
    zeros = [rank for rank, (part, own) in pieces if part.norm == 0 < own.norm]
    unlike = _unlike_axis(cases, case)
    groups = case.equal_ranks()
    is_reduced = len(groups) == 1 and len(groups[0]) > 1
    is_first = next(own for own in cases.results if own[:2] == case.key[:2]) == case.key
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
        along = cases.over(unlike, "along")
        what = f"{tensor} differs between the ranks{along}, which hold the same parameter."
        hint = HINTS["contribution"].format(over=cases.over(unlike))
        more["axis"] = cases.mesh.axes[unlike].name
    else:
        what = f"{tensor} is not the reference's: {cases.nearest(case)}."
        more["ranks"] = tuple(case.wholes) if len(case.wholes) < cases.size else ()
    return cases.difference(case.key, "gradient", what, hint, facts, **more)


def clipped_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient that agrees until it is clipped."""
    factors = case.factors()
    what = f"{subject(case.key)} is not the reference's, though it agrees before clip_grad_norm_."
    facts = _clips_text(cases, case.key[1])
    if factors:
        facts = [f"In multiples of the reference: {by_rank(factors)}.", *facts]
    return cases.difference(case.key, "gradient", what, HINTS["clipped"], facts)


def _partial_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient whose parts must still be added."""
    index = case.result.placement.index("P")
    axis = cases.mesh.axes[index]
    factor = case.result.factor
    is_mean = abs(factor - axis.size) < NEAR * axis.size
    does = "hold parts that add up to the reference"
    if is_mean:
        does = "hold parts whose mean is the reference"
    elif factor != 1:
        does += f" times {number(factor)}"
    facts = [
        cases.lines_text(index, does, case.parts),
        *_others(cases, case.key, lambda own: own.holds and own.placement[index] == "P"),
    ]
    over = cases.over(index)
    clipped = cases.results.get(("clipped", *case.key[1:]))
    if clipped is not None and "P" not in clipped.placement:
        what = f"clip_grad_norm_ is called before {subject(case.key)} is reduced{over}."
        facts += _clips_text(cases, case.key[1])
        return cases.difference(case.key, "gradient", what, HINTS["clipped"], facts, axis=axis.name)
    what = f"{subject(case.key)} is not reduced{over}."
    hint = HINTS["mean" if is_mean else "partial"].format(over=over)
    return cases.difference(case.key, "gradient", what, hint, facts, axis=axis.name)


def _factor_difference(cases: Cases, case: Case) -> Difference:
    factor = case.result.factor
    facts = [*_others(cases, case.key, lambda own: abs(own.factor - factor) < NEAR * abs(factor))]
    sizes = [cases.size, *(axis.size for axis in cases.mesh.axes)]
    hint = "factor" if _is_simple(factor) else "odd"
    if any(abs(factor - size) < NEAR * size for size in sizes):
        hint = "sum"
    elif any(abs(factor * size - 1) < NEAR for size in sizes):
        is_sum = "P" in cases.placement(("loss", case.key[1], "loss"))
        hint = "summed" if is_sum else "divided"
    what = f"{subject(case.key)} is {times(factor)} the reference."
    return cases.difference(case.key, "gradient", what, HINTS[hint], facts, factor=factor)


def _is_simple(factor: float) -> bool:
    """Return True for a small whole number, its reciprocal, or a power of two."""
    larger = max(abs(factor), 1 / abs(factor))
    return abs(larger - round(larger)) < NEAR * larger and (
        larger < MOST or math.log2(round(larger)).is_integer()
    )


def _others(cases: Cases, key: Key, is_alike: Callable[[Explanation], bool]) -> Iterator[str]:
    """Yield the sentence on the other gradients of the step that are alike."""
    gradients = {own: r for own, r in cases.results.items() if own[:2] == key[:2]}
    alike = [own[2] for own, result in gradients.items() if own != key and is_alike(result)]
    if len(alike) + 1 == len(gradients) > 1:
        yield f"The same goes for all {len(gradients):,} parameters."
    elif alike:
        yield f"The same goes for {listed(alike)}."


def _unlike_axis(cases: Cases, case: Case) -> int | None:
    """Return an axis whose ranks hold the same parameter, but not the same gradient."""
    groups = case.equal_ranks()
    for index in range(len(cases.mesh.axes)):
        lines = [[rank for rank in line if case.parts[rank]] for line in cases.mesh.lines(index)]
        is_same = all(any({*line} <= {*group} for group in groups) for line in lines)
        if cases.is_way(("initial", 0, case.key[2]), index, "R") and not is_same:
            return index
    return None


def is_rescaled(case: Case) -> bool:
    """Return True if every rank may hold a multiple of its piece, by a factor of no meaning."""
    factors = case.factors()
    return len(factors) == len(case.pieces) and not any(map(_is_simple, factors.values()))


def _clips_text(cases: Cases, step: int) -> list[str]:
    """Return the sentence on ``clip_grad_norm_``, if ranks computed other norms."""
    runs = (cases.comparing.reference.notes[:1], cases.notes)
    reference, ranks = (
        {own.rank: clip for own in notes for clip in own.clips if clip.step == step}
        for notes in runs
    )
    if not reference or not ranks:
        return []
    if len(ranks) < cases.size:
        return [f"Only {ranks_named(list(ranks))} called clip_grad_norm_."]
    expected = reference[0].norm
    if all(abs(clip.norm - expected) <= NEAR * expected for clip in ranks.values()):
        return []
    norms = by_rank({rank: clip.norm for rank, clip in ranks.items()})
    how = f"clip_grad_norm_ at {ranks[0].line} computed the norm {norms}"
    return [f"{how}; the reference's is {expected:.4g}."]


def fewer_steps_difference(cases: Cases) -> Difference | None:
    """Return the difference for ranks that have made fewer steps than others."""
    steps = {own.rank: own.steps for own in cases.notes if own.optimizers}
    least = min(steps.values(), default=0)
    ranks = [rank for rank, count in steps.items() if count == least]
    if len(ranks) == len(steps):
        return None
    return _skipped(least, ranks, f"Calls of step(): {by_rank(steps)}.")


def skipped_step_difference(cases: Cases, step: int) -> Difference | None:
    """Return the difference for ranks that called ``backward()`` for two steps before one."""
    earlier = {own.backwards[:step] for own in cases.notes}
    counts = {own.rank: own.backwards[step] for own in cases.notes if len(own.backwards) > step}
    least = min(counts.values(), default=0)
    ranks = [rank for rank, count in counts.items() if count > least]
    is_multiple = least > 0 and all(count % least == 0 for count in counts.values())
    if not ranks or len(earlier) > 1 or not is_multiple:
        return None
    return _skipped(step, ranks, f"Calls of backward() before it: {by_rank(counts)}.")


def _skipped(step: int, ranks: Sequence[int], fact: str) -> Difference:
    what = f"Step {step}: {ranks_named(ranks)} skipped the optimizer's step."
    return Difference("parameter", what, (fact,), HINTS["skipped"], step=step, ranks=tuple(ranks))


def parameter_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a parameter after a step, whose gradient agrees."""
    tensor = subject(case.key)
    settings = _settings_text(cases, case.key)
    right, wrong = case.right_ranks(case.wholes)
    same = _unchanged(cases, case)
    gradient = cases.comparing.ranks.note(cases.comparing.last_gradient(case.key))
    is_seen = cases.comparing.last_gradient(case.key) in cases.results
    though = "though its gradient agrees" if is_seen else "and its gradient was not seen"
    if right:
        who = f"{ranks_named(right)}, and not on {ranks_named(wrong)}"
        what = f"{tensor} is right after the step on {who}."
    elif same:
        who = "any rank" if len(same) == cases.size else ranks_named(same)
        what = f"{tensor} has not changed on {who}, {though}."
    else:
        what = f"{tensor} is not the reference's after the step, {though}."
    hint = "settings" if settings else "parameter"
    if len(same) == cases.size and not (gradient and gradient.settings):
        hint = "unheld"
    if not is_seen:
        hint = "unseen"
    return cases.difference(
        case.key, "parameter", what, HINTS[hint], settings, ranks=tuple(wrong or same)
    )


def _settings_text(cases: Cases, key: Key) -> list[str]:
    """Return the sentences on settings of the optimizer that are not the reference's."""
    gradient = cases.comparing.last_gradient(key)
    reference = cases.comparing.reference.note(gradient)
    notes = {
        rank: t[gradient][0] for rank, t in enumerate(cases.comparing.ranks.tables) if gradient in t
    }
    texts = []
    for name, expected in reference.settings.items() if reference else ():
        values = {
            rank: note.settings[name] for rank, note in notes.items() if name in note.settings
        }
        if values and {*values.values()} != {expected}:
            texts.append(f"Its {name} is {by_rank(values)}; the reference's is {expected:.4g}.")
    return texts


def _unchanged(cases: Cases, case: Case) -> list[int]:
    """Return the ranks on which a parameter has the values from before the step."""
    _, step, name = case.key
    before = ("parameter", step - 1, name) if step else ("initial", 0, name)
    earlier = cases.comparing.ranks.sketches(before)
    return [
        rank
        for rank, (part, own) in enumerate(zip(case.parts, earlier, strict=True))
        if part and own and distance(part, own) == (0, 0)
    ]
