"""Which sizes are measured, and an op of each size. Pure arithmetic; no torch.

The bounds are bytes S, what algbw counts. An op moves whole elements, and where S is that of n
parts, n of them at least: sizes are cut down to whole parts, the first is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

MOST = 200
"""Sizes of one series: nobody reads more."""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """From a smallest to a largest size, by a factor or by a step.

    Attributes:
        first: bytes, a lower bound.
        last: bytes, an upper bound.
        factor: each size is so many times the one before; with a step it means nothing.
        step: bytes from one size to the next; None: by the factor.
    """

    first: int
    last: int
    factor: float = 4.0
    step: int | None = None

    @property
    def text(self) -> str:
        """As it is typed, but for the factor."""
        return f"-b {size_text(self.first)} -e {size_text(self.last)}"


def check_range(asked: SizeRange, dtype: str) -> None:
    """Refuse a range that holds no size, too many, or elements cut in two.

    Args:
        asked: the range.
        dtype: torch's name of the element type.

    Raises:
        UsageError: naming the flag and what to try.
    """
    itemsize = DTYPES[dtype].itemsize
    for flag, size in (("-b", asked.first), ("-e", asked.last), ("-i", asked.step)):
        if size is not None:
            _check_whole(flag, size, itemsize, dtype)
    if asked.step is None and not 1 < asked.factor < math.inf:
        raise UsageError(
            f"-f {asked.factor:g}: the sizes would not grow.",
            "Each size is so many times the one before.",
            "Try -f 2 or -f 4.",
        )
    if asked.first > asked.last:
        raise UsageError(
            f"{asked.text}: there is no size between them.",
            "-b is the smallest size, -e the largest.",
            f"Try -b {size_text(asked.last)} -e {size_text(asked.first)}.",
        )
    _check_count(asked)


def range_sizes(asked: SizeRange) -> list[int]:
    """The sizes of a range that was found right, the smallest first; the last may not be met."""
    if asked.step is not None:
        return list(range(asked.first, asked.last + 1, asked.step))
    count = _growths(asked) + 1
    sizes = [int(asked.first * asked.factor**power) for power in range(count)]
    return [size for size in sizes if size <= asked.last]


def part_bytes(op: Op, template: OpSpec) -> int:
    """Bytes S of the smallest call that moves anything: an element, or one for each rank.

    0 for an op that moves none.
    """
    return 0 if op.meets else op.traffic(replace(template, shape=(1,))).payload_bytes


def whole_parts(sizes: list[int], part: int, last: int) -> list[int]:
    """The same cut down to whole parts, the first rounded up; none twice.

    Args:
        sizes: the smallest first.
        part: bytes; 0: there are none, and one size of 0 bytes is left.
        last: an upper bound.
    """
    if not part:
        return [0]
    first = -(-sizes[0] // part) * part
    cut = {max(first, size // part * part) for size in sizes}
    return sorted(size for size in cut if size <= last)


def of_size(op: Op, template: OpSpec, size: int) -> OpSpec:
    """The op whose S is so many bytes, a whole number of its parts; a one-dimensional tensor."""
    part = part_bytes(op, template)
    return replace(template, shape=(size // part,) if part else ())


def series_sizes(op: Op, template: OpSpec, asked: SizeRange) -> tuple[list[int], int]:
    """The sizes at which this op can be measured; the bytes whose multiples they were cut down to.

    The second is 0 where they are those that were asked for.

    Raises:
        UsageError: no multiple of its parts lies in the range.
    """
    sizes, part = range_sizes(asked), part_bytes(op, template)
    found = whole_parts(sizes, part, asked.last)
    n, dtype = template.group_size, template.dtype
    if not found:
        low, high = asked.last // part * part, -(-asked.last // part) * part
        raise UsageError(
            f"{asked.text}: there is no size of {op.command} on {n} ranks between them.",
            f"It moves {n} parts of whole elements of {dtype}: a multiple of {part} bytes.",
            f"Try -e {size_text(high)}." if not low else f"Try -b {size_text(low)}.",
        )
    return found, 0 if not part or found == sizes else part


def cut_notes(cut: Mapping[int, Sequence[str]], size: int, dtype: str) -> Iterator[str]:
    """Why sizes are not those that were asked for, a sentence for each kind of multiple.

    Args:
        cut: commands by the bytes whose multiples they move; 0: all sizes are as asked for.
        size: ranks of a group.
        dtype: of the elements.
    """
    for part, commands in cut.items():
        names = list(dict.fromkeys(commands))
        verb = "moves" if len(names) == 1 else "move"
        if part:
            yield (
                f"{', '.join(names)} on {size} ranks {verb} a multiple of {part} bytes of {dtype}: "
                "sizes were cut down to one."
            )


def size_text(size: int) -> str:
    """Bytes as they are typed: ``64K`` where that is exact, else the number."""
    for power, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


def _check_whole(flag: str, size: int, itemsize: int, dtype: str) -> None:
    """Refuse no byte at all, and a part of an element."""
    if size > 0 and size % itemsize == 0:
        return
    low = size // itemsize * itemsize
    near = [f"{flag} {size_text(each)}" for each in (low, low + itemsize) if each > 0]
    each = "One is 1 byte." if itemsize == 1 else f"One is {itemsize} bytes."
    raise UsageError(
        f"{flag} {size_text(size)} is no whole number of {dtype} elements, one or more.",
        each,
        f"Try {' or '.join(near)}.",
    )


def _growths(asked: SizeRange) -> int:
    """How often the first size grows by the factor before it is above the last, about."""
    return int(math.log(asked.last / asked.first) / math.log(asked.factor) + 1e-9)


def _check_count(asked: SizeRange) -> None:
    if asked.step is not None:
        count, flag = (asked.last - asked.first) // asked.step + 1, "-i"
        other = size_text(1 << ((asked.last - asked.first) // (MOST - 1)).bit_length())
    else:
        count, flag, other = _growths(asked) + 1, "-f", "2"
    if count > MOST:
        raise UsageError(
            f"{asked.text} would be {count:,} sizes: {MOST} at most.",
            "Each is measured and shown.",
            f"Try a larger {flag}, {flag} {other} say.",
        )
