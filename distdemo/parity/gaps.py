"""Find what was asked about and could not be compared. Pure logic, no torch.

Asked about are, of a program that trains, the gradients and the parameters of every step: outputs
and the loss only help to find the first cause. Of any other program it is every output.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from distdemo.parity.compare import Comparing
from distdemo.parity.placements import Explanation
from distdemo.parity.records import GRADIENTS, Difference, Gap, Key, Reason

TRAINED = ("initial", *GRADIENTS, "parameter")
EVALUATED = ("initial", "output")


def gaps(
    comparing: Comparing, results: Mapping[Key, Explanation], difference: Difference | None
) -> Iterator[Gap]:
    """Yield what was asked about and could not be compared.

    Args:
        comparing: The runs.
        results: Explanation of each tensor.
        difference: First cause of what differs, or None.
    """
    asked = TRAINED if comparing.steps else EVALUATED
    found: dict[Reason, list[Key]] = defaultdict(list)
    compared = 0
    for key, result in results.items():
        if key[0] in asked:
            reason = comparing.incomparable(key, result)
            compared += key[0] != "initial" and not reason
            if reason:
                found[reason].append(key)
    own = {key for key in comparing.keys if key[0] in asked}
    theirs = {key for key in comparing.ranks.keys if key[0] == "initial"}
    names = {key for key in own if key[0] in ("initial", "output")}
    if comparing.steps:  # a module that isn't called may be a part of a pipeline
        names = {key for key in own if key[0] in ("initial", "parameter")}
    found["absent"] = [key for key in comparing.keys if key in names and key not in results]
    found["gradient"] = [*_without_gradient(comparing, results)]
    if difference is None:
        found["hidden"] = [key for key in results if _is_hidden(comparing, key, results[key])]
    found["extra"] = [key for key in sorted(theirs - own) if not comparing.is_excepted(key)]
    unread = {
        own
        for run in (comparing.reference, comparing.ranks)
        for notes in run.notes
        for own in notes.unread
        if (own.kind in asked or not comparing.steps)
        and not comparing.is_excepted((own.kind, 0, own.name))
    }
    if unread:
        whats = tuple(sorted({own.what for own in unread}))
        yield Gap("unread", len(unread), _names(own.name for own in unread), whats)
    errors = {error for run in comparing.runs for notes in run.notes for error in notes.errors}
    if errors:
        yield Gap("unrecorded", len(errors), what=tuple(sorted(errors)))
    for reason, keys in found.items():
        if keys:
            yield Gap(reason, len(keys), _names(name for _, _, name in keys))
    left_out = max(notes.left_out for run in comparing.runs for notes in run.notes)
    if left_out:
        yield Gap("limit", left_out)
    steps = [min(notes.steps for notes in run.notes) for run in comparing.runs]
    if steps[0] != steps[1]:
        yield Gap("steps", steps[1] - steps[0])
    if comparing.steps and not comparing.learns:
        yield Gap("untrained")
    elif not compared and not any(found.values()) and not unread and not errors:
        yield Gap("nothing")


def _without_gradient(comparing: Comparing, results: Mapping[Key, Explanation]) -> Iterator[Key]:
    """Yield the reference's gradients that no rank has, but those that are zero."""
    compared = {key[1:] for key in results if key[0] in GRADIENTS}
    for key in comparing.keys:
        is_absent = key[0] in GRADIENTS and key[1:] not in compared
        if is_absent and any(own.norm != 0 for own in comparing.references(key)):
            yield key


def _is_hidden(comparing: Comparing, key: Key, result: Explanation) -> bool:
    """Return True if a gradient differs, and nothing is known that makes up for it.

    The optimizer may reduce partial gradients, and a smaller learning rate makes up for a factor.
    """
    is_partial = result.holds and "P" in result.placement
    if key[0] not in GRADIENTS or result.exact or is_partial or comparing.incomparable(key, result):
        return False
    notes = [run.note(key) for run in comparing.runs]
    rates = [note.settings.get("lr", 1.0) if note else 1.0 for note in notes]
    return not (result.holds and math.isclose(rates[1] * result.factor, rates[0], rel_tol=1e-3))


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
