"""Words of the verdicts: tensors, ranks and numbers in sentences, and the usual reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from distdemo.parity.records import TensorId
from distdemo.view.format import listing, ranks_text

NEAR = 1e-3  # relative difference of a factor from a number
SUBJECTS = {
    "input": "the input",
    "loss": "the loss",
    "clipped": "the clipped gradient of {name}",
    "parameter": "{name}",
    "start": "the initial {name}",
    "initial": "the initial {name}",
}
HINTS = {
    "not initialised": "It was not initialised: after to_empty() or torch.empty, call "
    "reset_parameters() of every module that has parameters.",
    "not finite": "Find out why the program overflows on one rank: NaN equals nothing, so it can't "
    "be compared.",
    "rows": "Give each rank its own rows: a DistributedSampler, or batch[rank::world_size].",
    "growth": "parity compares the same global batch: divide the batch size by the number of "
    "ranks, or give the reference more by an option of the program, such as --reference-args "
    "'--batch-size {rows}'.",
    "samples": "Draw or shuffle with the same seed on every rank, then let each take its part.",
    "group": "Split the batch by the position along the data axis, not by the rank: ranks that "
    "hold pieces of one layer read the same rows.",
    "seeds": "Call torch.manual_seed with the same number on every rank before the model is "
    "built, or broadcast the parameters as DDP does.",
    "start": "Draw the whole parameter with the same seed on every rank, then keep a slice.",
    "several": "The reference's start can be copied from one rank only: draw whole parameters with "
    "the same seed on every rank, or leave out --ranks-reference.",
    "output": "Look for a missing collective, a wrong group, or a wrong slice in this module.",
    "partial output": "all_reduce the output of a layer whose weight is split along its input "
    "dimension, before it is used.",
    "bias": "Add the bias of a layer that is split along its input dimension once, after the "
    "all_reduce.",
    "random": "Switch off dropout and other random numbers for the comparison: they differ with "
    "the number of ranks.",
    "norm": "Use SyncBatchNorm, or a norm that doesn't look at other rows, such as LayerNorm; or "
    "call .eval() on it for the comparison.",
    "loss": "Ranks with different numbers of tokens need a weight each: divide the sum of the "
    "loss by the number of all ranks' tokens, not each mean by the number of ranks. Or the targets "
    "differ, such as at the boundary of two pieces.",
    "order": "All ranks have the same loss, and sums over the rows agree: rows may be in a "
    "different order from their labels, such as after a gather along the wrong dimension.",
    "same rows": "Reduce over the ranks that split the outputs what the loss takes from all "
    "columns: the maximum, the sum of exponentials, the target's logit, label smoothing.",
    "factor": "Look for a scale that is applied twice or not at all, in the loss if all gradients "
    "have it: accumulation steps, loss scale, the number of ranks.",
    "partial": "Reduce the gradients of parameters that are replicated{over}: after the backward "
    "pass, or within it, where their output enters a layer that is split.",
    "mean": "Average the gradients before the step: wrap the model in DDP, or all_reduce each "
    "gradient and divide it by the number of ranks.",
    "contribution": "A part of this gradient is not reduced{over}: wherever a split layer uses a "
    "replicated tensor, the gradients must be added up in the backward pass.",
    "sum": "Divide by the number of ranks after a sum: ReduceOp.AVG, or grad /= world_size.",
    "divided": "It is divided once too often: by the global batch and then by DDP, by the "
    "accumulation steps of all ranks, or averaged where each rank holds a part of the sum, such as "
    "after an all_gather through which only the rank's own part has a gradient.",
    "summed": "The loss is a sum over each rank's rows, but the gradients are averaged over the "
    "ranks: take the mean as the loss, or add the gradients up.",
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
    "settings": "Give the optimizer the same settings for it on every rank. A scheduler that is "
    "given a rank's own loss sets another rate there: all_reduce the loss first. Wrappers change "
    "the names of parameters: choose groups before wrapping, or by a suffix of the name.",
    "skipped": "Decide on all ranks alike whether to step: all_reduce what the decision depends "
    "on, such as whether a gradient is finite.",
    "unheld": "No optimizer holds it: create the optimizer after the model is wrapped, sharded or "
    "moved, from the parameters that the model then has.",
    "unseen": "Reduce its gradient over the ranks before the update. parity sees gradients that "
    "are in .grad when an optimizer steps, or when the model is called again.",
    "parameter": "Check what happens between the reduction and the step: a step that some ranks "
    "skip, an update that isn't sent, an update outside the optimizer.",
}
"""Hints by the name of a difference; ``{over}`` is an axis, ``{rows}`` a number of rows."""


def subject(key: TensorId) -> str:
    """Return a tensor as the subject of a sentence."""
    return SUBJECTS.get(key.kind, f"the {key.kind} of {{name}}").format(name=key.name)


def ranks_named(ranks: Sequence[int]) -> str:
    """Return ``rank 2`` or ``ranks 0-1, 3``."""
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def by_rank(values: Mapping[int, float]) -> str:
    """Return ``0.5 on rank 0 and 2 on ranks 1-3``."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        ranks.setdefault(text, []).append(rank)
    return listing([f"{value} on {ranks_named(holders)}" for value, holders in ranks.items()][:8])


def _is_whole(value: float) -> bool:
    """Return True if a value is a whole number other than 0, but for rounding."""
    return round(value) != 0 and math.isclose(value, round(value), rel_tol=NEAR)


def number(factor: float) -> str:
    """Return a factor as a whole number, as one over a whole number, or with three digits."""
    if _is_whole(factor):
        return f"{round(factor)}"
    if _is_whole(1 / factor):
        return f"1/{round(1 / factor)}"
    return f"{factor:.3g}" if abs(factor - 1) > 0.01 else f"{factor:.6g}"


def times(factor: float) -> str:
    """Return ``4 times`` or ``1/4 of``."""
    is_share = _is_whole(1 / factor) and not _is_whole(factor)
    return f"{number(factor)} of" if is_share else f"{number(factor)} times"
