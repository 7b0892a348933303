"""Find what was asked about and could not be compared. Pure logic, no torch.

Asked about are, of a program that trains, the gradients and the parameters of every step: outputs
and the loss only help to find the first cause. Of any other program it is every output.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from distdemo.parity.compare import Comparing
from distdemo.parity.placements import Explanation
from distdemo.parity.records import (
    GRADIENTS,
    Difference,
    RankNotes,
    Reason,
    TensorId,
    Uncompared,
    Unread,
)
from distdemo.parity.results import Results

TRAINED = ("initial", *GRADIENTS, "parameter")
EVALUATED = ("initial", "output")


def gaps(results: Results, difference: Difference | None) -> Iterator[Uncompared]:
    """Yield what was asked about and could not be compared.

    Args:
        results: Explanation of each tensor.
        difference: First cause of what differs, or None.
    """
    comparing = results.comparing
    asked = TRAINED if comparing.steps else EVALUATED
    found: dict[Reason, list[TensorId]] = defaultdict(list)
    compared = 0
    for key, result in results.items():
        if key.kind in asked:
            reason = comparing.incomparable(key, result)
            compared += key.kind != "initial" and not reason
            if reason:
                found[reason].append(key)
    expected = {key for key in comparing.keys if key.kind in asked}
    started = {key for key in comparing.ranks.keys if key.kind == "initial"}
    names = {key for key in expected if key.kind in ("initial", "output")}
    if comparing.steps:  # a module that isn't called may be a part of a pipeline
        names = {key for key in expected if key.kind in ("initial", "parameter")}
    found["absent"] = [key for key in comparing.keys if key in names and key not in results]
    found["gradient"] = [*_without_gradient(comparing, results)]
    if difference is None:
        found["hidden"] = [key for key in results if _is_hidden(comparing, key, results[key])]
    extra = sorted(started - expected)
    found["extra"] = [key for key in extra if not comparing.exclusion.excludes(key.name)]

    def is_asked(unread: Unread) -> bool:
        is_kind = unread.kind in asked or not comparing.steps
        return is_kind and not comparing.exclusion.excludes(unread.name)

    notes = [notes for run in comparing.runs for notes in run.notes]
    skipped = list(unrecorded(notes, is_asked))
    yield from skipped
    for reason, keys in found.items():
        if keys:
            yield Uncompared(reason, len(keys), _names(name for _, _, name in keys))
    left_out = max(one.left_out for one in notes)
    if left_out:
        yield Uncompared("limit", left_out)
    steps = [min(notes.steps for notes in run.notes) for run in comparing.runs]
    if steps[0] != steps[1]:
        yield Uncompared("steps", steps[1] - steps[0])
    if comparing.steps and not comparing.learns:
        yield Uncompared("untrained")
    elif not (compared or skipped or any(found.values())):
        yield Uncompared("nothing")


def unrecorded(
    notes: Sequence[RankNotes], is_asked: Callable[[Unread], bool]
) -> Iterator[Uncompared]:
    """Yield what ranks could not read, of what was asked about, and the errors of recorders."""
    unread = {one for rank_notes in notes for one in rank_notes.unread if is_asked(one)}
    if unread:
        kinds = tuple(sorted({one.what for one in unread}))
        yield Uncompared("unread", len(unread), tuple(sorted({one.name for one in unread})), kinds)
    errors = {error for rank_notes in notes for error in rank_notes.errors}
    if errors:
        yield Uncompared("unrecorded", len(errors), what=tuple(sorted(errors)))


def _without_gradient(
    comparing: Comparing, results: Mapping[TensorId, Explanation]
) -> Iterator[TensorId]:
    """Yield the reference's gradients that no rank has, but those that are zero."""
    compared = {key[1:] for key in results if key.kind in GRADIENTS}
    for key in comparing.keys:
        is_absent = key.kind in GRADIENTS and key[1:] not in compared
        if is_absent and any(whole.norm != 0 for whole in comparing.references(key)):
            yield key


def _is_hidden(comparing: Comparing, key: TensorId, result: Explanation) -> bool:
    """Return True if a gradient differs, and nothing is known that makes up for it.

    The optimizer may reduce partial gradients, and a smaller learning rate makes up for a factor.
    """
    is_partial = result.holds and "P" in result.placement
    is_wrong = key.kind in GRADIENTS and not (result.exact or is_partial)
    if not is_wrong or comparing.incomparable(key, result):
        return False
    notes = [run.note(key) for run in comparing.runs]
    rates = [note.settings.get("lr", 1.0) if note else 1.0 for note in notes]
    return not (result.holds and math.isclose(rates[1] * result.factor, rates[0], rel_tol=1e-3))


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
