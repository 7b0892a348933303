"""Find what was asked about and could not be compared. Pure logic, no torch.

Asked about are, of a program that trains, the gradients and the parameters of every step: outputs
and the loss only help to find the first cause. Of any other program it is every output.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from distdemo.parity.compare import RunNotes
from distdemo.parity.notes import Unread
from distdemo.parity.records import GRADIENTS, Difference, Reason, TensorId, Uncompared
from distdemo.parity.results import Compared, Results

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
    # A module that isn't called may be a part of a pipeline.
    named = ("initial", "parameter" if comparing.steps else "output")
    found: dict[Reason, list[TensorId]] = defaultdict(list)
    compared = 0
    for key, tensor in results.items():
        if key.kind in asked:
            compared += key.kind != "initial" and not tensor.incomparable
            if tensor.incomparable:
                found[tensor.incomparable].append(key)
    absent = [key for key in comparing.keys if key not in results]
    found["absent"] = [key for key in absent if key.kind in named]
    gradients = {key[1:] for key in results if key.kind in GRADIENTS}
    found["gradient"] = [
        key
        for key in absent
        if key.kind in GRADIENTS
        and key[1:] not in gradients
        and any(whole.norm != 0 for whole in comparing.references(key))
    ]
    if difference is None:
        found["hidden"] = [key for key in results if _is_hidden(results, results[key])]
    started = {key for key in comparing.ranks.keys if key.kind == "initial"}
    extra = sorted(started.difference(comparing.keys))
    found["extra"] = [key for key in extra if not comparing.exclusion.excludes(key.name)]

    def is_asked(unread: Unread) -> bool:
        is_kind = unread.kind in asked or not comparing.steps
        return is_kind and not comparing.exclusion.excludes(unread.name)

    skipped = list(unrecorded(comparing.runs, is_asked))
    yield from skipped
    for reason, keys in found.items():
        if keys:
            yield Uncompared(reason, len(keys), tuple(dict.fromkeys(key.name for key in keys)))
    left_out = max(notes.left_out for run in comparing.runs for notes in run.ranks)
    if left_out:
        yield Uncompared("limit", left_out)
    steps = [min(notes.steps for notes in run.ranks) for run in comparing.runs]
    if steps[0] != steps[1]:
        yield Uncompared("steps", steps[1] - steps[0])
    if comparing.steps and not comparing.learns:
        yield Uncompared("untrained")
    elif not (compared or skipped or any(found.values())):
        yield Uncompared("nothing")


def unrecorded(
    runs: tuple[RunNotes, ...], is_asked: Callable[[Unread], bool]
) -> Iterator[Uncompared]:
    """Yield what ranks could not read, of what was asked about, and the errors of recorders."""
    unread = {tensor for run in runs for tensor in run.all_of("unread") if is_asked(tensor)}
    if unread:
        names = tuple(sorted({tensor.name for tensor in unread}))
        what = tuple(sorted({tensor.what for tensor in unread}))
        yield Uncompared("unread", len(unread), names, what)
    errors = {error for run in runs for error in run.all_of("errors")}
    if errors:
        yield Uncompared("unrecorded", len(errors), what=tuple(sorted(errors)))


def _is_hidden(results: Results, tensor: Compared) -> bool:
    """Return True if a gradient differs, and nothing is known that makes up for it.

    The optimizer may reduce partial gradients, and a smaller learning rate makes up for a factor.
    """
    is_partial = tensor.holds and "P" in tensor.placement
    is_wrong = tensor.key.kind in GRADIENTS and not (tensor.exact or is_partial)
    if not is_wrong or tensor.incomparable:
        return False
    notes = [run.note(tensor.key) for run in results.comparing.runs]
    rates = [note.settings.get("lr", 1.0) if note else 1.0 for note in notes]
    return not (tensor.holds and math.isclose(rates[1] * tensor.factor, rates[0], rel_tol=1e-3))
