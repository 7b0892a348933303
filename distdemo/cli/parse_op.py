"""From the flags of an op's command to its spec: sizes, values, root, reduce op, and what fits."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from typing import Any

from distdemo import backends, dtypes
from distdemo.cli.parse import (
    Flags,
    View,
    choose,
    parse_view,
    parse_world,
    parse_world_size,
    rank_number,
    unknown,
    whole,
)
from distdemo.cli.values import Row, check_fit, misfit, parse_number, parse_values, roomier
from distdemo.errors import UsageError
from distdemo.launchers.limits import check_machine
from distdemo.model import Number, OpSpec, WorldSpec
from distdemo.ops import reduction
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint


@dataclass(frozen=True, slots=True)
class Request:
    """A command line that can be carried out, as far as can be told without torch."""

    spec: OpSpec
    world: WorldSpec
    view: View


def parse_op(op: Op, flags: Flags) -> Request:
    """The request that these flags make of this op.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    spec = _spec(op, flags)
    world = replace(parse_world(flags, spec.world_size), lazy=op.lazy)
    refusal = backends.REGISTRY[world.backend].refuses(op.name, spec.dtype, spec.reduce_op)
    if refusal is not None:
        raise _no_combination(op, spec, world.backend, refusal)
    check_machine(world, footprint(op, spec))
    return Request(spec, world, parse_view(flags, spec.world_size))


def parse_explained(op: Op, flags: Flags) -> OpSpec:
    """The spec to explain. A flag that means nothing to this op is an error, as in its command."""
    for name, default in (("root", None), ("reduce_op", "sum"), ("pattern", "pair")):
        if name not in op.takes and flags[name] != default:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing to {op.command}.",
                op.words.summary,
                "Leave it out.",
            )
    absent = {"values": None, "fill": None, "src": None, "dst": None, "start_method": "auto"}
    return _spec(op, {**absent, **flags})


def _spec(op: Op, flags: Flags) -> OpSpec:
    dtype = _dtype(flags["dtype"])
    rows = parse_values(flags["values"])
    world_size = _world_size(op, flags["world_size"], rows)
    check_machine(WorldSpec(world_size, start_method=flags["start_method"]))
    base = OpSpec(
        op=op.name,
        world_size=world_size,
        dtype=dtype,
        reduce_op=_reduce_op(op, flags),
        root=rank_number("root", flags.get("root") or "0", world_size)
        if "root" in op.takes
        else None,
        async_op=flags.get("async_op", False) or flags.get("nonblocking", False),
        **_exchange(op, flags, world_size),
    )
    values = None if rows is None else _by_label(op, base, rows)
    shape = _shape(flags["shape"], rows)
    fill = _fill(flags["fill"], dtype, world_size, rows)
    return replace(base, values=values, shape=shape, fill=fill)


def _world_size(op: Op, text: str | None, rows: list[Row] | None) -> int:
    """As asked for; else as many as there are rows of values; else the op's default."""
    default = op.default_world
    if rows is not None and len(rows) >= max(2, op.smallest_world):
        default = len(rows)
    why = f"{op.command} needs two ranks: one can't send to itself."
    return parse_world_size(text, default, op.smallest_world, why if op.smallest_world > 1 else "")


def _exchange(op: Op, flags: Flags, world_size: int) -> dict[str, Any]:
    """Sender, receiver and pattern of a point-to-point exchange."""
    if "pattern" not in op.takes:
        return {}
    pattern = choose("pattern", flags["pattern"], ("pair", "ring"))
    if pattern == "ring":
        for name in ("src", "dst"):
            if flags[name] is not None:
                raise UsageError(
                    f"--{name} and --pattern ring don't go together.",
                    "In a ring every rank sends to its right neighbour.",
                    f"Leave out --{name}, or take --pattern pair.",
                )
        return {"pattern": pattern}
    # Whoever is not named is the other one of 0 and 1.
    src = rank_number("src", flags["src"] or ("1" if flags["dst"] == "0" else "0"), world_size)
    dst = rank_number("dst", flags["dst"] or ("0" if src == 1 else "1"), world_size)
    if src == dst:
        raise UsageError(
            f"--src and --dst are both {src}.",
            "A rank can't send to itself.",
            f"Try --dst {(src + 1) % world_size}.",
        )
    return {"pattern": pattern, "src": src, "dst": dst}


def _by_label(op: Op, spec: OpSpec, rows: list[Row]) -> tuple[Row | None, ...]:
    """The rows of values in the order of their labels; None where the user gave no row."""
    labels = op.value_labels(spec)
    lone = op.lone_label(spec)
    if len(rows) == 1 and lone is not None:
        check_fit(rows, spec.dtype)
        return tuple(rows[0] if label == lone else None for label in labels)
    if len(rows) != len(labels):
        each = "one a piece of the root's" if op.pieces(spec.root or 0, spec) > 1 else "one a rank"
        alone = f", or one for rank {lone}" if lone is not None else ""
        raise UsageError(
            f"--values has {len(rows)} {'row' if len(rows) == 1 else 'rows'} for "
            f"{len(labels)} ranks.",
            f"{op.command} takes {each}{alone}.",
            f"Give --values {len(labels)} times, or a file of {len(labels)} lines, or "
            f"--world-size {len(rows)}.",
        )
    check_fit(rows, spec.dtype)
    return tuple(rows)


def _shape(text: str | None, rows: list[Row] | None) -> tuple[int, ...]:
    if text is None:
        return (4,) if rows is None else (len(rows[0]),)
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
    if rows is not None and math.prod(shape) != len(rows[0]):
        raise UsageError(
            f"--shape {text} has {math.prod(shape)} elements, --values has {len(rows[0])} a rank.",
            "The shape of your own values has to hold them.",
            "Leave out --shape to take them as they are.",
        )
    return shape


def _fill(
    text: str | None, dtype_name: str, world_size: int, rows: list[Row] | None
) -> Number | str | None:
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


def _dtype(text: str) -> str:
    name = dtypes.NAMES.get(text.lower().removeprefix("torch."))
    if name is None:
        near = difflib.get_close_matches(text.lower(), dtypes.NAMES, n=3, cutoff=0.5)
        names = list(dict.fromkeys(dtypes.NAMES[each] for each in near))
        raise UsageError(
            f"There is no dtype {text!r}.",
            f"Known are: {', '.join(dtypes.DTYPES)}.",
            f"Did you mean {' or '.join('--dtype ' + each for each in names)}?"
            if names
            else "Try --dtype float32.",
        )
    return name


def _reduce_op(op: Op, flags: Flags) -> str | None:
    if "reduce_op" not in op.takes:
        return None
    given = flags["reduce_op"].lower()
    if given in reduction.NAMES:
        return reduction.NAMES[given]
    raise unknown("reduce op", list(reduction.REDUCTIONS), given, "--reduce-op")


def _no_combination(op: Op, spec: OpSpec, backend: str, reason: str) -> UsageError:
    wanted = f"{op.command} of {spec.dtype}"
    if spec.reduce_op is not None:
        wanted = f"{op.command} --reduce-op {spec.reduce_op} --dtype {spec.dtype}"
    known = backends.REGISTRY[backend]
    fitting = [
        name for name in dtypes.DTYPES if known.refuses(op.name, name, spec.reduce_op) is None
    ]
    return UsageError(
        f"{backend} can't do {wanted}.", reason, f"These dtypes work: {', '.join(fitting)}."
    )
