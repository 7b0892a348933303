"""Sizes of ``trace``: B of the formulas in bytes, an op of each size, and ranks. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdemo.bench.fitting import MOST_RANKS
from distdemo.bench.sizes import cut_notes, of_size, part_bytes, size_text
from distdemo.cli.parse_sizes import parse_bytes
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

MOST = 50  # sizes: each is run, or at least shown
_SUFFIXED = re.compile(r"([1-9][0-9]*)([KM])", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2}


def check_ranks(text: str | None) -> None:
    """Refuse a number of ranks with the suffix of a size: 1,000 or 1,024?

    Raises:
        UsageError: with the plain digits of what may be meant.
    """
    match = _SUFFIXED.fullmatch((text or "").strip())
    if match is None:
        return
    count, power = int(match[1]), _POWERS[match[2].upper()]
    meant = [count * thousand**power for thousand in (1000, 1024)]
    near = [f"-n {each}" for each in meant if each <= MOST_RANKS] or [f"-n {MOST_RANKS}"]
    raise UsageError(
        f"--world-size {text}: ranks are counted in plain digits.",
        "K and M are for sizes, in bytes, and count by 1024 there.",
        f"Try {' or '.join(near)}.",
    )


def parse_size(op: Op, template: OpSpec, text: str) -> tuple[OpSpec, tuple[str, ...]]:
    """The op with the one size of ``--size``, and a note if it was cut down to whole parts.

    Raises:
        UsageError: it is none, or several.
    """
    found, notes = parse_sizes(op, template, text, ())
    if len(found) > 1:
        raise UsageError(
            f"--size {text}: one at a time.",
            "Rounds are shown of one run; several sizes are compared.",
            f"Try --size {size_text(op.traffic(found[0]).payload_bytes)}, or add --compare or "
            "--simulate.",
        )
    return found[0], notes


def parse_sizes(
    op: Op, template: OpSpec, text: str | None, default: Sequence[int]
) -> tuple[tuple[OpSpec, ...], tuple[str, ...]]:
    """The op at every size, the smallest first, and a note if some were cut down to whole parts.

    Args:
        op: whose sizes.
        template: the op with all its settings but the shape.
        text: of ``--size``, ``1K,16M``; None: it was not given.
        default: bytes, then; those that are less than a part are left out.

    Raises:
        UsageError: no number of bytes, half an element, less than a part, or too many.
    """
    part = part_bytes(op, template)
    asked = sorted(set(default)) if text is None else _asked(text, template.dtype)
    if text is not None and asked[0] < part:
        raise UsageError(
            f"--size {size_text(asked[0])}: {op.command} on {template.group_size} ranks moves "
            f"{part:,} bytes at least.",
            "B counts the parts of all ranks, and each has an element at least.",
            f"Try --size {size_text(part)}.",
        )
    fitting = [size for size in asked if size >= part] or [part]
    found = sorted({size // part * part for size in fitting})
    cut = {} if found == fitting else {part: [op.command]}
    notes = tuple(cut_notes(cut, template.group_size, template.dtype))
    return tuple(of_size(op, template, size) for size in found), notes


def _asked(text: str, dtype: str) -> list[int]:
    words = [word for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--size names nothing.", "Its value is empty.", "Try --size 1M.")
    if len(words) > MOST:
        raise UsageError(
            f"--size has {len(words)} sizes: {MOST} at most.", "Each is shown.", "Take fewer."
        )
    sizes = [parse_bytes("--size", word) for word in words]
    for size in sizes:
        _check_whole(size, dtype)
    return sorted(set(sizes))


def _check_whole(size: int, dtype: str) -> None:
    """Refuse no byte at all, and a part of an element."""
    itemsize = DTYPES[dtype].itemsize
    if size > 0 and size % itemsize == 0:
        return
    low = size // itemsize * itemsize
    near = [f"--size {size_text(each)}" for each in (low, low + itemsize) if each > 0]
    raise UsageError(
        f"--size {size_text(size)} is no whole number of {dtype} elements, one or more.",
        f"One has {itemsize} {'byte' if itemsize == 1 else 'bytes'}.",
        f"Try {' or '.join(near)}.",
    )
