"""Which form of an op the flags choose: variant, uneven sizes and splits, objects, stragglers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from distdemo.cli.option_table import OPTIONS
from distdemo.cli.parse import Flags, choose, rank_number, whole
from distdemo.demo.old_values import Row, read_lines
from distdemo.errors import UsageError
from distdemo.ops.contract import Form, Op
from distdemo.ops.values import pickled_size

NAMES = {"async_op": "--async", "nonblocking": "--nonblocking"}


def flag(name: str) -> str:
    """The flag of an option, as it is typed."""
    return NAMES.get(name, "--" + name.replace("_", "-"))


def is_given(name: str, flags: Flags) -> bool:
    """Whether the user gave this option (another value than its default)."""
    default = None if name == "root" else OPTIONS[name][1]
    return bool(name in flags and flags[name] != default)


def parse_variant(op: Op, flags: Flags) -> str | None:
    """``list``, ``single`` or ``uneven``; None for an op that has no variants.

    By default a list; parts of unequal lengths in a single tensor, which more backends take.
    """
    if "variant" not in op.takes:
        return None
    usual = "single" if flags.get("splits") else "list"
    variant = choose("variant", flags.get("variant") or usual, ("list", "single"))
    if not (flags.get("uneven") or flags.get("sizes")):
        return variant
    if variant == "single":
        raise UsageError(
            "--uneven and --variant single don't go together.",
            "Tensors of unequal sizes are padded, gathered as a list and trimmed.",
            "Leave out --variant.",
        )
    return "uneven"


def refuse_lacking(form: Form, flags: Flags) -> None:
    """Refuse options of the op that this form of it does not have.

    Raises:
        UsageError: naming the first of them.
    """
    for name in sorted(form.lacks):
        if is_given(name, flags):
            raise UsageError(
                f"{flag(name)} and {form.flags} don't go together.",
                f"{form.calls} has nothing of the kind.",
                f"Leave out {flag(name)}, or {form.flags}.",
            )
    if flags.get("shape") is not None and (flags.get("uneven") or flags.get("sizes")):
        raise UsageError(
            f"--shape and {form.flags} don't go together.",
            "The tensors' lengths differ from rank to rank.",
            "Say them with --sizes, one a rank: --sizes 3,0,7.",
        )


def parse_sizes(flags: Flags, rows: Sequence[Row] | None, ranks: int) -> tuple[int, ...] | None:
    """The length of each rank's tensor for ``--uneven``: as asked, as the values are, or 1, 2, 3.

    Args:
        flags: of the command.
        rows: the user's own values, one a rank.
        ranks: how many take part.
    """
    text = flags.get("sizes")
    if text is None:
        found = tuple(range(1, ranks + 1)) if rows is None else tuple(len(row) for row in rows)
        _refuse_nothing("--values", "", found)
        return found
    sizes = _lengths("--sizes", text)
    if len(sizes) != ranks:
        raise UsageError(
            f"--sizes {text} has {len(sizes)} lengths for {ranks} ranks.",
            "It gives the length of each rank's tensor.",
            f"Give {ranks}, or --world-size {len(sizes)}.",
        )
    _refuse_nothing("--sizes", text, sizes)
    if rows is not None and tuple(len(row) for row in rows) != sizes:
        raise UsageError(
            f"--sizes {text} and the lengths of --values differ.",
            "The values say by themselves how long each rank's tensor is.",
            "Leave out --sizes.",
        )
    return sizes


def parse_splits(
    given: Sequence[str] | None, size: int, ranks: int
) -> tuple[tuple[int, ...], ...] | None:
    """For each rank the lengths of its parts; a single row holds for all.

    Args:
        given: ``1,2,3``, once or once a rank.
        size: ranks of a group: so many parts.
        ranks: how many take part in all groups together.
    """
    if not given:
        return None
    rows = [_lengths("--splits", text) for text in given]
    for text, row in zip(given, rows, strict=True):
        if len(row) != size:
            raise UsageError(
                f"--splits {text} has {len(row)} parts for {size} ranks.",
                "Every rank has one part for each.",
                f"Give {size} lengths, or --world-size {len(row)}.",
            )
    if len(rows) == 1:
        rows *= ranks
    _refuse_nothing("--splits", " ".join(given), [length for row in rows for length in row])
    if len(rows) != ranks:
        raise UsageError(
            f"--splits was given {len(rows)} times for {ranks} ranks.",
            "It is given once for all ranks, or once for each.",
            f"Give it {ranks} times.",
        )
    return tuple(rows)


def split_shape(
    splits: Sequence[tuple[int, ...]], shape: tuple[int, ...] | None, rows: Sequence[Row] | None
) -> tuple[int, ...]:
    """The shape of a rank's whole tensor, whose first length the splits add up to.

    Raises:
        UsageError: they don't.
    """
    rest = (shape or ())[1:]
    for rank, row in enumerate(splits):
        total = sum(row)
        has = None
        if shape is not None:
            has = shape[0] if shape else 0
        elif rows is not None:
            has = len(rows[rank])
        if has is not None and has != total:
            text = ",".join(map(str, row))
            raise UsageError(
                f"--splits {text} add up to {total}, but rank {rank} has {has}.",
                "The parts of a rank are all that it has.",
                f"Give lengths that add up to {has}.",
            )
    for rank, values in enumerate(rows or ()):
        if shape is not None and math.prod(shape) != len(values):
            raise UsageError(
                f"--shape has {math.prod(shape)} elements, --values {len(values)} on rank {rank}.",
                "The shape of your own values has to hold them.",
                "Leave out --shape to take them as they are.",
            )
    return (max(sum(row) for row in splits), *rest)


def parse_things(given: Sequence[str] | None) -> list[str] | None:
    """The user's own objects as JSON text, one a rank; None if none was given.

    Raises:
        UsageError: one of them is not JSON.
    """
    if not given:
        return None
    texts = [(text, f"--values {text}") for text in given]
    if len(given) == 1 and (given[0] == "-" or _json_error(given[0])):
        error = _json_error(given[0])
        if given[0] != "-" and given[0].lstrip()[:1] in ("{", "[", '"', "'"):
            raise _no_json(f"--values {given[0]}", error)
        lines = read_lines(given[0], "JSON")
        texts = [(line, f"--values {given[0]}, line {number}") for number, line in lines]
    for text, where in texts:
        error = _json_error(text)
        if error:
            raise _no_json(where, error)
    return [json.dumps(json.loads(text), ensure_ascii=False) for text, _ in texts]


def parse_straggler(
    text: str | None, size: int, group: str | None = None
) -> tuple[int, float] | None:
    """The rank (of the group, if there is one) that comes late to a barrier, and by how much."""
    if text is None:
        return None
    hint = "Try --straggler 1:0.5."
    first, colon, last = text.partition(":")
    rank = rank_number("straggler", first, size, group)
    try:
        seconds = float(last.removesuffix("s")) if colon else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise UsageError(
            f"--straggler {text}: that is no RANK:SECONDS.",
            "It says which rank comes late to the barrier, and by how much.",
            hint,
        )
    return rank, seconds


def _lengths(name: str, text: str) -> tuple[int, ...]:
    why, hint = "It holds lengths, 0 or more.", f"Try {name} 3,0,7."
    lengths = tuple(whole(name, word.strip(), why, hint) for word in text.split(","))
    if min(lengths) < 0:
        raise UsageError(f"{name} {text}: {min(lengths)} is no length.", why, hint)
    return lengths


def _refuse_nothing(name: str, text: str, lengths: Sequence[int]) -> None:
    """Refuse tensors that are empty on all ranks, as ``--shape 0`` is."""
    if not any(lengths):
        raise UsageError(
            f"{name} {text}".rstrip() + ": all lengths are 0.",
            "There would be no element to show and verify.",
            "Give at least one rank something.",
        )


def _json_error(text: str) -> str:
    """What is wrong with this JSON; empty if nothing is."""
    try:
        pickled_size(json.loads(text))
    except (ValueError, RecursionError) as error:
        return str(error) or "too deep"
    return ""


def _no_json(where: str, error: str) -> UsageError:
    return UsageError(
        f"{where}: that is no JSON.",
        f"{error}. Text needs its double quotes.",
        """Try --values '{"loss": 0.5}', or --values '"text"'.""",
    )
