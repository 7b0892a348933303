"""Create an op's specs from its options: form, groups, data and root.

Errors that can be found without torch are raised here.
"""

from __future__ import annotations

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
    flag_of,
)
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.spec import OpSpec
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec

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
    default = _default_size(op, options)
    world_size = session.world_size(options.world_size, default, op.smallest_world, why)
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
    rows = _rows(op, options, base, ranks)
    if isinstance(options, DataOptions) and not base.objects:
        base = _with_shape(op, base, options, rows, ranks)
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
        data = tuple(rows[index] for index in indices) if rows else None
        if base.objects:
            spec = replace(spec, objects_json=data)
        elif data is not None:
            _check_rows(op, spec, data)
            spec = replace(spec, values=data)
        specs.append(spec)
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
        check_rank("--straggler", options.straggler.rank, size, of)
        settings["straggler"] = options.straggler.rank
        settings["straggler_delay_s"] = options.straggler.delay_s
    spec = OpSpec(op.name, size, shape=(), **settings)
    form = op.form(spec)
    for name in sorted(options.given & form.lacks):
        flag = "--async" if name == "async_op" else flag_of(name)
        raise _clash(flag, form.flags, f"{form.call} doesn't support {flag}.")
    return spec


def _clash(one: str, other: str, why: str) -> UsageError:
    return UsageError(f"{one} and {other} can't be combined.", why, "Leave out one of them.")


def _rows(op: Op, options: OpOptions, base: OpSpec, ranks: int) -> Sequence[Any]:
    """Return the input values or objects of ``--values`` by label, None for unused ones."""
    if not isinstance(options, DataOptions) or not options.values:
        return ()
    rows: Sequence[Row | str]
    if base.objects:
        rows = read_objects(options.values)
    else:
        if options.seed is not None:
            raise _clash("--values", "--seed", "Each sets the input values.")
        uneven = base.variant == "uneven" or base.splits is not None
        rows = read_numbers(options.values, uneven=uneven)
        for number in chain.from_iterable(rows):
            check_fit("--values", number, options.dtype)
    size = base.group_size
    row = rows[0]
    if len(rows) == 1 and not base.objects and len(row) % size == 0 < len(row):
        counts = sorted(op.pieces(rank, base) for rank in range(size))
        if counts == [0] * (size - 1) + [size]:  # the root holds all pieces, as for scatter
            length = len(row) // size
            rows = [row[start : start + length] for start in range(0, size * length, length)]
    sender = op.single_row_label(base)
    if len(rows) == 1 and sender is not None:
        return [row if label == sender else None for label in range(size)] * (ranks // size)
    if len(rows) == ranks:
        return rows
    alone = "" if sender is None else f", or one for rank {sender}"
    hint = f"Give --values {ranks} times."
    if len(rows) == 1 and len(row) == ranks and not base.objects:
        hint = f"For one number per rank, try {' '.join(f'--values {number}' for number in row)}."
    raise UsageError(
        f"--values has {plural(len(rows), 'row')} for {plural(ranks, 'rank')}.",
        f"{op.command} takes one row per rank{alone}.",
        hint,
    )


def _check_rows(op: Op, spec: OpSpec, rows: Sequence[Row | None]) -> None:
    """Raise `UsageError` unless the rows have the lengths that the ranks need."""
    for rank, row in enumerate(rows):
        needed = op.row(rank, spec)
        if row is not None and len(row) != needed:
            raise UsageError(
                f"--values has {plural(len(row), 'number')} for rank {rank}, which needs {needed}.",
                "That is the number of elements in all pieces of the rank.",
                f"Give {plural(needed, 'number')}.",
            )


def _with_shape(
    op: Op, base: OpSpec, options: DataOptions, rows: Sequence[Row], ranks: int
) -> OpSpec:
    """Return the spec with its shape, and with uneven lengths or splits for all ranks."""
    shape = options.shape
    if isinstance(options, UnevenOptions) and base.variant == "uneven":
        if shape is not None:
            why = "The lengths differ: set them with --sizes 3,0,7."
            raise _clash("--shape", "--uneven", why)
        sizes = tuple(options.sizes or map(len, rows)) or tuple(range(1, ranks + 1))
        _check_lengths("--sizes", [sizes], ranks)
        return replace(base, sizes=sizes, shape=(max(sizes),))
    if isinstance(options, SplitsOptions) and options.splits:
        default = range(1, base.group_size + 1)
        splits = [tuple(lengths or default) for lengths in options.splits]
        _check_lengths("--splits", splits, base.group_size)
        if len(splits) == 1:
            splits *= ranks
        if len(splits) != ranks:
            what = f"--splits was given {len(splits)} times for {ranks} ranks."
            raise UsageError(what, "Give it once, or once per rank.", "Give it once.")
        longest = max(map(sum, splits))
        if shape is not None and shape[:1] != (longest,):
            raise _clash("--shape", "--splits", f"The parts of a rank add up to {longest}.")
        return replace(base, splits=tuple(splits), shape=(longest, *(shape or ())[1:]))
    if shape is None and rows:
        pieces = op.row(0, replace(base, shape=(1,)))
        length = max(len(row) for row in rows if row is not None)
        return replace(base, shape=(max(1, length // pieces),))
    return replace(base, shape=op.default_shape if shape is None else tuple(shape))


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
