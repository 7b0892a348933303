"""Verdicts on gradients, and on parameters after the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from distdemo.parity.cases import (
    NEAR,
    Case,
    Cases,
    by_rank,
    listed,
    number,
    ranks_named,
    times,
)
from distdemo.parity.placements import Explanation, is_split_way, scales
from distdemo.parity.records import Difference, Key
from distdemo.parity.sketches import Sketch, distance

MOST = 1025  # largest factor that is a number of ranks or of micro-batches
HINTS = {
    "partial": "Reduce the gradients of parameters that are replicated{over}: after the backward "
    "pass, or within it, where their output enters a layer that is split.",
    "mean": "Average the gradients before the step: wrap the model in DDP, or all_reduce each "
    "gradient and divide it by the number of ranks.",
    "contribution": "A part of this gradient is not reduced{over}: wherever a split layer uses a "
    "replicated tensor, the gradients must be added up in the backward pass.",
    "sum": "Divide by the number of ranks after a sum: ReduceOp.AVG, or grad /= world_size.",
    "divided": "It is divided once too often: by the global batch and then by DDP, by the "
    "accumulation steps of all ranks, or averaged where each rank holds a part of the sum.",
    "summed": "The loss is a sum over each rank's rows, but the gradients are averaged over the "
    "ranks: take the mean as the loss, or add the gradients up.",
    "factor": "Look for a scale that is applied twice or not at all, in the loss if all gradients "
    "have it: accumulation steps, loss scale, the number of ranks.",
    "odd": "A factor of all gradients comes from clipping, by a norm that isn't the model's or "
    "that a wrong gradient has changed (marked below), or from the scale of the loss; in half "
    "precision, from sums of many equal rows.",
    "zero": "Check that the loss depends on it on every rank: a collective without autograd "
    "passes no gradient on.",
    "clipped": "Clip by the norm of the whole model, on every rank: add up the squares of shards "
    "over the ranks, and reduce the gradients of replicas first.",
    "lost": "If it is reduced as the gradients before it are, over the right ranks, a part got "
    "lost in the backward pass: a collective that has no autograd or doesn't add up what it "
    "joined, or a recomputed forward pass with other inputs.",
    "gradient": "Check which ranks take part in the reduction of this gradient, and that it "
    "happens after the last micro-batch.",
    "settings": "Give the optimizer the same settings for it on every rank: wrappers change the "
    "names of parameters, so choose groups before wrapping, or by a suffix of the name.",
    "skipped": "Decide on all ranks alike whether to step: all_reduce what the decision depends "
    "on, such as whether a gradient is finite.",
    "unheld": "No optimizer holds it: create the optimizer after the model is wrapped, sharded or "
    "moved, from the parameters that the model then has.",
    "parameter": "Check what happens between the reduction and the step: a step that some ranks "
    "skip, an update that isn't sent, an update outside the optimizer.",
}
"""Usual reason for each kind of difference, and what to do."""


def gradient_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient."""
    pieces = dict(_pieces(cases, case))
    right = [
        rank for rank, (part, own) in pieces.items() if case.tolerance.deviation(part, own) <= 1
    ]
    wrong = [rank for rank in pieces if right and rank not in right]
    right = right if wrong else []
    if case.result.holds and not (right and case.result.factor != 1):
        return (
            _partial_difference(cases, case)
            if cases.partial(case.key)
            else _factor_difference(cases, case)
        )
    groups = case.equal_ranks()
    is_reduced = len(groups) == 1 and len(groups[0]) > 1
    earlier = [own for own in cases.results if own[:2] == case.key[:2]]
    earlier = earlier[: earlier.index(case.key)]
    hint = "lost" if is_reduced or earlier else "gradient"
    facts: list[str] = []
    more: dict[str, Any] = {}
    zeros = [
        rank
        for rank, part in enumerate(case.parts)
        if part is not None and part.norm == 0 < case.reference.norm and all(part.lengths)
    ]
    factors = _scales(case, pieces)
    if factors and factors.keys() >= {*wrong}:
        facts = [f"In multiples of the reference: {by_rank(factors)}."]
    unlike = _unlike_axis(cases, case)
    if zeros:
        holders = [part for part in case.parts if part is not None and all(part.lengths)]
        who = "every rank" if len(zeros) == len(holders) else ranks_named(zeros)
        what = f"{case.label} is zero on {who}."
        facts = []
        hint = "zero"
        more = {"ranks": tuple(zeros)}
    elif right:
        what = f"{case.label} is right on {ranks_named(right)}, and not on {ranks_named(wrong)}."
        hint = "clipped" if facts else hint
        more = {"ranks": tuple(wrong)}
    elif len({number(factor) for factor in factors.values()}) == 1:
        factor = next(iter(factors.values()))
        what = f"{case.label} is {times(factor)} the reference on {ranks_named([*factors])}."
        facts = []
        hint = "sum" if _is_simple(factor) else "odd"
        more = {"ranks": tuple(factors), "factor": factor}
    elif factors:
        what = f"{case.label} is scaled by a different factor on each rank."
        hint = "clipped"
    elif unlike is not None:
        along = cases.over(unlike, "along")
        what = f"{case.label} differs between the ranks{along}, which hold the same parameter."
        hint = "contribution"
        more = {"axis": cases.mesh.axes[unlike].name}
    else:
        what = f"{case.label} is not the reference's: {cases.nearest(case)}."
        held = [rank for rank, part in enumerate(case.parts) if part is not None]
        more = {"ranks": tuple(held) if len(held) < cases.size else ()}
    text = HINTS[hint].format(over="" if unlike is None else cases.over(unlike))
    return cases.difference(case.key, "gradient", what, text, facts, **more)


def clipped_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient that agrees until it is clipped."""
    factors = _scales(case, dict(_pieces(cases, case)))
    what = f"{case.label} is not the reference's, though it agrees before clip_grad_norm_."
    facts = _clips_text(cases, case.key[1])
    if factors:
        facts = [f"In multiples of the reference: {by_rank(factors)}.", *facts]
    return cases.difference(case.key, "gradient", what, HINTS["clipped"], facts)


def _partial_difference(cases: Cases, case: Case) -> Difference:
    """Return the difference for a gradient whose parts must still be added."""
    index = cases.partial(case.key)[0]
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
        what = f"clip_grad_norm_ is called before {case.label} is reduced{over}."
        facts += _clips_text(cases, case.key[1])
        return cases.difference(case.key, "gradient", what, HINTS["clipped"], facts, axis=axis.name)
    what = f"{case.label} is not reduced{over}."
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
    what = f"{case.label} is {times(factor)} the reference."
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
        is_same = all(not line or any({*line} <= {*group} for group in groups) for line in lines)
        if cases.is_way(("initial", 0, case.key[2]), index, "R") and not is_same:
            return index
    return None


def is_rescaled(cases: Cases, case: Case) -> bool:
    """Return True if every rank may hold a multiple of its piece, by a factor of no meaning."""
    pieces = dict(_pieces(cases, case))
    factors = _scales(case, pieces)
    return len(factors) == len(pieces) and not any(map(_is_simple, factors.values()))


def _scales(case: Case, pieces: Mapping[int, tuple[Sketch, Sketch]]) -> dict[int, float]:
    """Return the factors of the ranks that hold a multiple of their piece of the reference."""
    factors: dict[int, float] = {}
    for rank, (part, own) in pieces.items():
        factor = scales(own, [part], case.tolerance, simple=False).get(0)
        if factor is not None:
            factors[rank] = factor
    return factors


def _pieces(cases: Cases, case: Case) -> Iterator[tuple[int, tuple[Sketch, Sketch]]]:
    """Yield each rank that holds a part, with this part and that of the reference."""
    for rank, part in enumerate(case.parts):
        piece = _piece(cases, case, rank, part) if part and all(part.lengths) else None
        if piece is not None:
            yield rank, piece


def _piece(cases: Cases, case: Case, rank: int, part: Sketch) -> tuple[Sketch, Sketch] | None:
    """Return what a rank holds and the same of the reference; of a split tensor, its columns."""
    if part.lengths == case.reference.lengths:
        return part, case.reference
    ways = cases.placement(("initial", 0, case.key[2]))
    splits = [(axis, int(way[2:-1])) for axis, way in enumerate(ways) if is_split_way(way)]
    if len(splits) != 1:
        return None
    ((axis, dim),) = splits
    line = next(line for line in cases.mesh.lines(axis) if rank in line)
    before = [case.parts[other] for other in line[: line.index(rank)]]
    start = sum(other.lengths[dim] for other in before if other is not None)
    length = part.lengths[dim]
    return part.slice(dim, 0, length), case.reference.slice(dim, start, length)


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
    settings = _settings_text(cases, case.key)
    right, wrong = case.right_ranks()
    same = _unchanged(cases, case)
    gradient = cases.comparing.ranks.note(cases.comparing.last_gradient(case.key))
    if right:
        what = (
            f"{case.label} is right after the step on {ranks_named(right)}, "
            f"and not on {ranks_named(wrong)}."
        )
    elif same:
        who = "any rank" if len(same) == cases.size else ranks_named(same)
        what = f"{case.label} has not changed on {who}, though its gradient agrees."
    else:
        what = f"{case.label} is not the reference's after the step, though its gradient agrees."
    hint = "settings" if settings else "parameter"
    if len(same) == cases.size and not (gradient and gradient.settings):
        hint = "unheld"
    return cases.difference(
        case.key, "parameter", what, HINTS[hint], settings, ranks=tuple(wrong or same)
    )


def _settings_text(cases: Cases, key: Key) -> list[str]:
    """Return the sentences on settings of the optimizer that are not the reference's."""
    gradient = cases.comparing.last_gradient(key)
    expected = cases.comparing.reference.note(gradient)
    by_setting: dict[str, dict[int, float]] = {}
    for rank, table in enumerate(cases.comparing.ranks.tables):
        if gradient in table:
            for name, value in table[gradient][0].settings.items():
                by_setting.setdefault(name, {})[rank] = value
    return [
        f"Its {name} is {by_rank(values)}; the reference's is {expected.settings[name]:.4g}."
        for name, values in by_setting.items()
        if expected
        and {*values.values()} != {expected.settings.get(name)}
        and name in expected.settings
    ]


def _unchanged(cases: Cases, case: Case) -> list[int]:
    """Return the ranks on which a parameter has the values from before the step."""
    _, step, name = case.key
    before = ("parameter", step - 1, name) if step else ("initial", 0, name)
    earlier = cases.comparing.ranks.sketches(before)
    return [
        rank
        for rank, (part, own) in enumerate(zip(case.parts, earlier, strict=True))
        if part is not None and own is not None and distance(part, own) == (0, 0)
    ]
