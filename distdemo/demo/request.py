"""Create an op's specs from its options: form, groups, data and root.

Errors that can be found without torch are raised here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from distdemo import backends
from distdemo.backends.contract import check_support
from distdemo.cli.types import check_rank, make_groups, make_pair
from distdemo.cli.values import Row, check_fit, read_numbers, read_objects
from distdemo.demo.options import (
    BarrierOptions,
    DataOptions,
    OpOptions,
    PairOptions,
    PatternOptions,
    RootOptions,
    SplitsOptions,
    UnevenOptions,
)
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.spec import OpSpec
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec

Rows = Sequence[Row | str]
COPIED = frozenset(
    {"reduce_op", "factor", "pattern", "async_op", "variant", "objects", "monitored"}
    | {"dtype", "seed"}
)
"""Options that are fields of the spec."""


def make_request(
    op: Op, options: OpOptions, session: Session
) -> tuple[tuple[OpSpec, ...], WorldSpec]:
    """Return the specs of the groups, and the world to start.

    Raises:
        UsageError: An option can't be used.
    """
    why = f"{op.command} needs two ranks: a rank can't send to itself."
    size = _default_size(op, options)
    world_size = session.world_size(options.world_size, size, op.smallest_world, why)
    world = session.world(world_size, options)
    specs = make_specs(op, options, world_size)
    data = sum(footprint(op, spec) for spec in specs) * session.ranks_here(world_size) // world_size
    session.check_memory(world, data)
    # A monitored barrier that has to connect first may wait beyond its limit.
    world = replace(world, lazy=op.lazy and not specs[0].monitored)
    if specs[0].monitored:  # let it raise before the launcher's deadline
        spare = min(2.0, max(0.3, world.deadline / 4))
        limit = max(world.deadline / 2, world.deadline - spare)
        specs = tuple(replace(spec, monitor_timeout_s=limit) for spec in specs)
    check_support(backends.REGISTRY[world.backend], op, specs[0], world.device)
    return specs, world


def _default_size(op: Op, options: OpOptions) -> int:
    """Return the number of ranks that the other options need, or the op's own."""
    given = len(options.values or ()) if isinstance(options, DataOptions) else 0
    if isinstance(options, UnevenOptions):
        given = max(given, len(options.sizes or ()))
    # With --split there is one part per rank of a group.
    if isinstance(options, SplitsOptions) and options.splits and options.split is None:
        given = max(given, len(options.splits[0]))
    if options.group is None and given >= max(2, op.smallest_world):
        return given
    pattern = options.pattern if isinstance(options, PatternOptions) else None
    return max(op.default_size(pattern), max(options.group or (), default=0) + 1)


def make_specs(op: Op, options: OpOptions, world_size: int) -> tuple[OpSpec, ...]:
    """Return the specs of the groups.

    Args:
        op: Op to run.
        options: Options of the command.
        world_size: Number of ranks in the world.

    Raises:
        UsageError: An option can't be used.
    """
    groups = make_groups(options.group, options.split, world_size)
    size = len(groups[0]) if groups else world_size
    ranks = size * max(1, len(groups))
    base = _form(op, options, size, "A group" if groups else "A world")
    rows = _rows(options, base)
    if len(rows) == 1:
        rows = _root_pieces(op, base, rows[0]) or rows
    sender = op.single_row_label(base) if len(rows) == 1 else None
    if rows and len(rows) != ranks and sender is None:
        raise _wrong_row_count(op, base, rows, ranks)
    if isinstance(options, DataOptions) and not base.objects:
        numbers = [row for row in rows if not isinstance(row, str)]
        base = _with_shape(op, base, options, numbers, ranks)
    field = "objects_json" if base.objects else "values"
    specs = []
    for group in groups or (None,):
        # Rows are in the order of the group, or with several groups of the world's ranks.
        indices = group if group is not None and len(groups) > 1 else range(size)
        spec = replace(
            base,
            members=group,
            sizes=base.sizes and tuple(base.sizes[index] for index in indices),
            splits=base.splits and tuple(base.splits[index] for index in indices),
        )
        data: dict[str, Any] = {}
        if sender is not None:
            labels = op.value_labels(spec)
            data[field] = tuple(rows[0] if label == sender else None for label in labels)
        elif rows:
            data[field] = tuple(rows[index] for index in indices)
        specs.append(replace(spec, **data))
    return tuple(specs)


def _form(op: Op, options: OpOptions, size: int, of: str) -> OpSpec:
    """Return the spec without its data: the op, its form, root and partners."""
    settings = {name: getattr(options, name) for name in COPIED if hasattr(options, name)}
    if settings.get("factor", 2.0) != 2.0 and settings["reduce_op"] != "premul_sum":
        what = "--factor requires --reduce-op premul_sum."
        raise UsageError(what, "Only premul_sum multiplies by a factor.", "Leave it out.")
    if isinstance(options, RootOptions):
        settings["root"] = check_rank("--root", options.root, size, of)
    if isinstance(options, PairOptions):
        src, dst = make_pair(settings["pattern"], options.src, options.dst, size, of)
        settings |= {"src": src, "dst": dst, "async_op": options.nonblocking}
    if isinstance(options, SplitsOptions) and options.splits:
        settings["splits"] = ((),)
    if isinstance(options, UnevenOptions) and (options.uneven or options.sizes):
        if settings["variant"] == "single":
            raise _clash("--uneven", "--variant single", "Uneven tensors need a list.")
        settings["variant"] = "uneven"
    elif settings.get("variant", "") is None:
        # More backends support unequal parts in a single tensor than in a list.
        settings["variant"] = "single" if "splits" in settings else "list"
    if isinstance(options, BarrierOptions) and options.straggler is not None:
        rank, delay_s = options.straggler
        check_rank("--straggler", rank, size, of)
        settings |= {"straggler": rank, "straggler_delay_s": delay_s}
    spec = OpSpec(op.name, size, shape=(), **settings)
    form = op.form(spec)
    for name in sorted(options.given & form.lacks):
        flag = "--async" if name == "async_op" else f"--{name.replace('_', '-')}"
        raise _clash(flag, form.flags, f"{form.call} doesn't support {flag}.")
    return spec


def _clash(one: str, other: str, why: str) -> UsageError:
    return UsageError(f"{one} and {other} can't be combined.", why, "Leave out one of them.")


# --------------------------------------------------------------------------------- input values


def _rows(options: OpOptions, spec: OpSpec) -> Rows:
    """Return the input values or objects of ``--values``, one row per rank that takes part."""
    if not isinstance(options, DataOptions):
        return ()
    if spec.objects:
        return read_objects(options.values or ())
    if options.values and options.seed is not None:
        raise _clash("--values", "--seed", "Each sets the input values.")
    uneven = spec.variant == "uneven" or spec.splits is not None
    rows = read_numbers(options.values or (), uneven=uneven)
    for number in chain.from_iterable(rows):
        check_fit("--values", number, options.dtype)
    return rows


def _root_pieces(op: Op, base: OpSpec, row: Row | str) -> Rows:
    """Cut a single row into a piece per rank if the root holds them all, as for scatter."""
    size = base.group_size
    piece_counts = sorted(op.pieces(rank, base) for rank in range(size))
    length, rest = divmod(len(row), size)
    if isinstance(row, str) or piece_counts != [0] * (size - 1) + [size] or rest or not length:
        return ()
    return [row[start : start + length] for start in range(0, size * length, length)]


def _wrong_row_count(op: Op, base: OpSpec, rows: Rows, ranks: int) -> UsageError:
    sender = op.single_row_label(base)
    alone = f", or one for rank {sender}" if sender is not None else ""
    hint = f"Give --values {ranks} times."
    if len(rows) == 1 and len(rows[0]) == ranks and not base.objects:
        hint = f"For one number per rank, try {' '.join(f'--values {n}' for n in rows[0])}."
    return UsageError(
        f"--values has {plural(len(rows), 'row')} for {plural(ranks, 'rank')}.",
        f"{op.command} takes one row per rank{alone}.",
        hint,
    )


# ---------------------------------------------------------------------------- shape and lengths


def _with_shape(
    op: Op, base: OpSpec, options: DataOptions, rows: Sequence[Row], ranks: int
) -> OpSpec:
    """Return the spec with its shape and uneven lengths, for all ranks together."""
    shape = options.shape
    if isinstance(options, UnevenOptions) and base.variant == "uneven":
        if shape is not None:
            why = "The lengths differ: set them with --sizes 3,0,7."
            raise _clash("--shape", "--uneven", why)
        sizes = tuple(options.sizes or map(len, rows)) or tuple(range(1, ranks + 1))
        _check_lengths("--sizes", [sizes], ranks)
        for size, row in zip(sizes, rows, strict=False):
            _check_count(size, len(row), "--sizes")
        return replace(base, sizes=sizes, shape=(max(sizes),))
    if isinstance(options, SplitsOptions) and options.splits:
        return _with_splits(base, options.splits, shape, rows, ranks)
    if not rows:
        return replace(base, shape=op.default_shape if shape is None else tuple(shape))
    pieces = op.row(0, replace(base, shape=(1,)))
    length = len(rows[0])
    if shape is not None:
        _check_count(math.prod(shape) * pieces, length, "--shape")
        return replace(base, shape=tuple(shape))
    if length % pieces:
        raise UsageError(
            f"--values has {length} numbers per rank for {pieces} pieces.",
            f"{op.command} cuts each rank's data into {pieces} equal pieces.",
            f"Give {pieces} or {2 * pieces} numbers per rank.",
        )
    return replace(base, shape=(length // pieces,))


def _with_splits(
    base: OpSpec,
    given: Sequence[Sequence[int]],
    shape: Sequence[int] | None,
    rows: Sequence[Row],
    ranks: int,
) -> OpSpec:
    """Return the spec with the lengths of the parts, and the shape of the largest tensor."""
    default = range(1, base.group_size + 1)
    splits = tuple(tuple(lengths or default) for lengths in given)
    _check_lengths("--splits", splits, base.group_size)
    if len(splits) == 1:
        splits *= ranks
    if len(splits) != ranks:
        what = f"--splits was given {len(splits)} times for {ranks} ranks."
        raise UsageError(what, "Give it once, or once per rank.", "Give it once.")
    rest = tuple(shape or ())[1:]
    for index, lengths in enumerate(splits):
        if shape is not None:
            _check_count(sum(lengths), shape[0] if shape else 0, "--splits")
        if rows:
            _check_count(sum(lengths) * math.prod(rest), len(rows[index]), "--splits")
    return replace(base, splits=splits, shape=(max(map(sum, splits)), *rest))


def _check_lengths(flag: str, rows: Sequence[Sequence[int]], ranks: int) -> None:
    """Raise `UsageError` unless there is one length per rank and not all are 0."""
    for row in rows:
        if len(row) != ranks:
            what = f"{flag} {','.join(map(str, row))} has {len(row)} lengths for {ranks} ranks."
            hint = f"Give {ranks}, or --world-size {len(row)}."
            raise UsageError(what, "It needs one per rank.", hint)
    if not any(map(any, rows)):
        why = "There would be no element to show and verify."
        raise UsageError(f"{flag}: all lengths are 0.", why, "Make at least one length positive.")


def _check_count(needed: int, given: int, flag: str) -> None:
    if needed != given:
        raise UsageError(
            f"{flag} needs {needed} elements per rank, but there are {given}.",
            "A rank's parts add up to its whole tensor.",
            f"Give {needed}, or leave out {flag}.",
        )
