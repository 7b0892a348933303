"""The data of an op: element type, shape, what fills it, and the rows of the user's own values."""

from __future__ import annotations

import difflib
import math

from distdemo import dtypes
from distdemo.cli.parse import Flags, whole
from distdemo.demo.old_values import Row, misfit, parse_number, roomier
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import Number, OpSpec

SCALAR = ("scalar", "0d", "0-d")


def parse_dtype(text: str) -> str:
    """Torch's name of the element type."""
    name = dtypes.NAMES.get(text.lower().removeprefix("torch."))
    if name is not None:
        return name
    near = difflib.get_close_matches(text.lower(), dtypes.NAMES, n=3, cutoff=0.5)
    names = list(dict.fromkeys(dtypes.NAMES[each] for each in near))
    raise UsageError(
        f"There is no dtype {text!r}.",
        f"Known are: {', '.join(dtypes.DTYPES)}.",
        f"Did you mean {' or '.join('--dtype ' + each for each in names)}?"
        if names
        else "Try --dtype float32.",
    )


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """The lengths as asked for; None if nothing was asked for."""
    if text is None:
        return None
    if text.lower() in SCALAR:
        return ()
    parts = text.lower().replace("x", ",").replace("(", "").replace(")", "").split(",")
    lengths = [part.strip() for part in parts]
    if not lengths[-1]:  # (4,) is how Python writes it
        lengths.pop()
    if not any(lengths):
        lengths = []
    hint = "Try --shape 4, or --shape 2,3."
    if not lengths:
        raise UsageError("--shape is empty.", "A tensor needs a length to be looked at.", hint)
    shape = tuple(whole("--shape", length, "It holds whole numbers.", hint) for length in lengths)
    if min(shape) < 1:
        raise UsageError(
            f"--shape {text}: {min(shape)} is no length.",
            "There would be no element to show and verify.",
            hint,
        )
    return shape


def shape_of(
    op: Op, spec: OpSpec, asked: tuple[int, ...] | None, rows: list[Row] | None
) -> tuple[int, ...]:
    """The shape of one piece: as asked, as the values are, or the op's default.

    Raises:
        UsageError: the values don't fill pieces of that shape.
    """
    if rows is None:
        return op.default_shape if asked is None else asked
    length, pieces = len(rows[0]), _pieces_a_row(op, spec)
    if asked is not None and math.prod(asked) * pieces != length:
        each = f" in each of {pieces} pieces" if pieces > 1 else ""
        text = ",".join(map(str, asked)) or "scalar"
        raise UsageError(
            f"--shape {text} has {math.prod(asked)} elements{each}, --values has {length} a rank.",
            "The shape of your own values has to hold them.",
            "Leave out --shape to take them as they are.",
        )
    if length % pieces:
        raise UsageError(
            f"--values has {length} numbers a rank for {pieces} pieces.",
            f"{op.command} cuts what a rank holds into {pieces} equal pieces, one for each.",
            f"Give {pieces}, {2 * pieces} or {3 * pieces} numbers a rank.",
        )
    return asked if asked is not None else (length // pieces,)


def _pieces_a_row(op: Op, spec: OpSpec) -> int:
    """How many pieces a row of values is cut into."""
    from dataclasses import replace

    return op.row(0, replace(spec, shape=(1,)))


def parse_fill(
    flags: Flags, dtype_name: str, world_size: int, rows: list[Row] | None
) -> Number | str | None:
    """What fills every element, if the user says so.

    ``rank`` is each one's number in the world, also in a group.
    """
    text = flags["fill"]
    if text is None:
        return None
    if rows is not None:
        raise UsageError(
            "--fill and --values don't go together.", "Each says what the ranks hold.", "Take one."
        )
    if text == "rank":
        number: Number = world_size - 1
    else:
        parsed = parse_number(text)
        if parsed is None:
            raise UsageError(
                f"--fill {text}: that is no number.",
                "It fills every element with one number, or with each rank's own.",
                "Try --fill 1, or --fill rank.",
            )
        number = parsed
    reason = misfit(number, dtypes.DTYPES[dtype_name])
    if reason is not None:
        raise UsageError(f"--fill {text}: {number} is no {dtype_name}.", reason, roomier(number))
    return "rank" if text == "rank" else number


def parse_seed(flags: Flags, rows: list[Row] | None) -> int | None:
    """The number that mixes the default values."""
    text = flags.get("seed")
    if text is None:
        return None
    if rows is not None or flags["fill"] is not None:
        raise UsageError(
            "--seed mixes the default values, and you gave your own.",
            "With --values or --fill there are no default values.",
            "Leave out --seed.",
        )
    seed = whole("--seed", text, "It mixes the default values.", "Try --seed 1.")
    if not 0 <= seed < 2**31 - 1:
        raise UsageError(f"--seed {text} is out of range.", "It goes from 0 to 2³¹ − 2.", "Try 1.")
    return seed


def parse_factor(reduce_op: str | None, flags: Flags) -> float:
    """What ``premul_sum`` multiplies with."""
    text = flags.get("factor")
    if text is None:
        return 2.0
    if reduce_op != "premul_sum":
        raise UsageError(
            "--factor means nothing without --reduce-op premul_sum.",
            "It is what premul_sum multiplies each rank's tensor with.",
            "Leave it out.",
        )
    number = parse_number(text)
    if isinstance(number, bool | complex) or number is None or not math.isfinite(number):
        raise UsageError(f"--factor {text}: that is no number.", "It multiplies.", "Try 2.")
    return float(number)
