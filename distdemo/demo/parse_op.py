"""From the flags of an op's command to its specs: form, groups, data, root, and what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from distdemo.cli.parse import Flags, View, choose, parse_view, parse_world, rank_number, unknown
from distdemo.cli.parse_engine import check_input, parse_seat, placed, ranks_here, size_of_world
from distdemo.cli.support import check_support
from distdemo.demo import parse_form
from distdemo.demo.old_values import Row, check_fit, parse_values
from distdemo.demo.parse_data import (
    parse_dtype,
    parse_factor,
    parse_fill,
    parse_seed,
    parse_shape,
    shape_of,
)
from distdemo.demo.parse_groups import Groups, named_ranks, parse_groups
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec
from distdemo.ops import reduction
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.p2p import PATTERNS
from distdemo.ops.spec import OpSpec

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class Request:
    """A command line that can be carried out, as far as can be told without torch.

    Attributes:
        specs: one a group that runs at once; the whole world is one group by default.
        seat: this process's place in a world that an engine started; None: it starts its own.
    """

    specs: tuple[OpSpec, ...]
    world: WorldSpec
    view: View
    seat: Placement | None = None


@dataclass(frozen=True, slots=True)
class _Given:
    """What the user gave for the ranks that take part, in their order."""

    rows: list[Row] | None
    things: list[str] | None

    @property
    def count(self) -> int:
        """How many rows or objects."""
        return len(self.rows or self.things or ())


def parse_op(op: Op, flags: Flags, *, calls: bool = True) -> Request:
    """The request that these flags make of this op; with ``calls`` the backend has to take it.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    seat = parse_seat(flags)
    check_input(seat, flags)
    specs, world_size = _specs(op, flags, seat)
    # On a connection yet to be made a monitored barrier may wait beyond its limit.
    lazy = op.lazy and not specs[0].monitored
    world = replace(parse_world(flags, world_size), lazy=lazy)
    if specs[0].monitored:
        specs = tuple(replace(spec, monitor_timeout_s=_patience(world)) for spec in specs)
    if calls:
        check_support(op, specs[0], world.backend, world.device)
    here = ranks_here(placed(seat, world_size), world_size)
    data = sum(footprint(op, spec) for spec in specs) * here // world_size
    check_machine(replace(world, world_size=here), data)
    return Request(specs, world, parse_view(flags, world_size), placed(seat, world_size))


def parse_explained(op: Op, flags: Flags) -> OpSpec:
    """The spec to explain. A flag that means nothing to this op is an error, as in its command."""
    for name in ("root", "reduce_op", "pattern", "variant", "objects"):
        if name not in op.takes and parse_form.is_given(name, flags):
            raise UsageError(
                f"{parse_form.flag(name)} means nothing to {op.command}.",
                op.words.summary,
                "Leave it out.",
            )
    absent = {"values": None, "fill": None, "src": None, "dst": None, "start_method": "auto"}
    return _specs(op, {**absent, **flags}, None)[0][0]


def _specs(op: Op, flags: Flags, seat: Placement | None) -> tuple[tuple[OpSpec, ...], int]:
    """The spec of each group, and the size of the world."""
    given = _given(flags)
    world_size = _world_size(op, flags, given, seat)
    here = ranks_here(placed(seat, world_size), world_size)
    check_machine(WorldSpec(here, start_method=flags["start_method"]))
    groups = parse_groups(flags, world_size)
    size = world_size if groups is None else len(groups[0])
    base = base_spec(op, flags, size)
    parse_form.refuse_lacking(op.form(base), flags)
    base = replace(
        base,
        dtype=parse_dtype(flags.get("dtype", "float32")),
        factor=parse_factor(base.reduce_op, flags),
    )
    whole = groups or (tuple(range(world_size)),)
    if given.count:
        _check_count(op, base, given, size * len(whole), grouped=groups is not None)
    base = _shaped(op, base, flags, given, whole)
    return tuple(_of_groups(op, base, groups, given)), world_size


def _given(flags: Flags) -> _Given:
    values = flags.get("values")
    if flags.get("objects"):
        return _Given(None, parse_form.parse_things(values))
    uneven = bool(flags.get("uneven") or flags.get("sizes") or flags.get("splits"))
    return _Given(parse_values(values, uneven=uneven), None)


def _world_size(op: Op, flags: Flags, given: _Given, seat: Placement | None) -> int:
    """As asked for; else as many as there are rows or named ranks; else the op's default."""
    default = op.default_world
    named = named_ranks(flags.get("group"))
    default = max(default, named)
    told = given.count or len((flags.get("sizes") or "").split(",")) or 1
    if flags.get("split") is None:  # else the splits are as many as a group has ranks
        told = max(told, len((flags.get("splits") or [""])[0].split(",")))
    if flags.get("group") is None and told >= max(2, op.smallest_world):
        default = told
    why = f"{op.command} needs two ranks: one can't send to itself."
    why = why if op.smallest_world > 1 else ""
    return size_of_world(seat, flags["world_size"], default, op.smallest_world, why)


def base_spec(op: Op, flags: Flags, size: int) -> OpSpec:
    """What needs no data: the op, its form, root and partners."""
    whose = flags.get("group") or flags.get("split")
    root = None
    late = parse_form.parse_straggler(flags.get("straggler"), size, whose) or (None, 0.0)
    if "root" in op.takes:
        root = rank_number("root", flags.get("root") or "0", size, whose)
    return OpSpec(
        op=op.name,
        group_size=size,
        reduce_op=_reduce_op(op, flags),
        root=root,
        async_op=flags.get("async_op", False) or flags.get("nonblocking", False),
        variant=parse_form.parse_variant(op, flags),
        objects=flags.get("objects", False),
        splits=((),) if flags.get("splits") else None,
        monitored=flags.get("monitored", False),
        straggler=late[0],
        straggler_delay_s=late[1],
        inference=flags.get("inference", False),
        **_partners(op, flags, size),
    )


def _partners(op: Op, flags: Flags, size: int) -> dict[str, Any]:
    """Sender, receiver and pattern of a point-to-point exchange."""
    if "pattern" not in op.takes:
        return {}
    pattern = choose("pattern", flags["pattern"], PATTERNS)
    if pattern != "pair":
        for name in ("src", "dst"):
            if flags[name] is not None:
                raise UsageError(
                    f"--{name} and --pattern {pattern} don't go together.",
                    "There every rank has its neighbours to talk to.",
                    f"Leave out --{name}, or take --pattern pair.",
                )
        return {"pattern": pattern}
    whose = flags.get("group") or flags.get("split")
    # Whoever is not named is the other one of 0 and 1.
    src = rank_number("src", flags["src"] or ("1" if flags["dst"] == "0" else "0"), size, whose)
    dst = rank_number("dst", flags["dst"] or ("0" if src == 1 else "1"), size, whose)
    if src == dst:
        raise UsageError(
            f"--src and --dst are both {src}.",
            "A rank can't send to itself.",
            f"Try --dst {(src + 1) % size}.",
        )
    return {"pattern": pattern, "src": src, "dst": dst}


def _shaped(op: Op, base: OpSpec, flags: Flags, given: _Given, groups: Groups) -> OpSpec:
    """The spec with its shape, its uneven lengths and what fills it, for all ranks together."""
    if base.objects or op.meets:
        return replace(base, shape=())
    rows, ranks = given.rows, sum(map(len, groups))
    uneven = base.variant == "uneven" or base.splits is not None
    if rows is not None:
        check_fit(rows, base.dtype, uneven=uneven)
    asked = parse_shape(flags["shape"])
    filled = replace(
        base,
        fill=parse_fill(flags, base.dtype, 1 + max(map(max, groups)), rows),
        seed=parse_seed(flags, rows),
    )
    if base.variant == "uneven":
        sizes = parse_form.parse_sizes(flags, rows, ranks)
        return replace(filled, sizes=sizes, shape=(max(sizes or (0,)),))
    splits = parse_form.parse_splits(flags.get("splits"), base.group_size, ranks)
    if splits is not None:
        shape = parse_form.split_shape(splits, asked, rows)
        return replace(filled, splits=splits, shape=shape)
    return replace(filled, shape=shape_of(op, base, asked, rows))


def _of_groups(op: Op, base: OpSpec, groups: Groups | None, given: _Given) -> list[OpSpec]:
    """One spec a group, each with its own share of what was given a rank."""
    if groups is None:
        return [_with_values(op, base, given.rows, given.things)]
    size = base.group_size
    specs = []
    for members in groups:
        # One group: what was given is in its order. Several: in the order of the world's ranks.
        share = range(size) if len(groups) == 1 else members
        if len(groups) > 1 and given.count == 1:
            share = range(1)
        spec = replace(
            base,
            members=members,
            sizes=_share(base.sizes, share),
            splits=_share(base.splits, share),
        )
        rows, things = _share(given.rows, share), _share(given.things, share)
        specs.append(_with_values(op, spec, rows, things))
    return specs


def _share(given: Sequence[Each] | None, places: Sequence[int]) -> tuple[Each, ...] | None:
    if given is None:
        return None
    return tuple(given[place] for place in places if place < len(given))


def _with_values(
    op: Op, spec: OpSpec, rows: Sequence[Row] | None, things: Sequence[str] | None
) -> OpSpec:
    return replace(spec, values=_by_label(op, spec, rows), objects_json=_by_label(op, spec, things))


def _by_label(op: Op, spec: OpSpec, given: Sequence[Each] | None) -> tuple[Each | None, ...] | None:
    """What was given in the order of the labels; None where the user gave nothing."""
    if given is None:
        return None
    labels, lone = op.value_labels(spec), op.lone_label(spec)
    if len(given) == 1 and lone is not None:
        return tuple(given[0] if label == lone else None for label in labels)
    return tuple(given)


def _check_count(op: Op, spec: OpSpec, given: _Given, ranks: int, *, grouped: bool) -> None:
    """Refuse too few or too many rows."""
    lone = op.lone_label(spec)
    if given.count == ranks or (given.count == 1 and lone is not None):
        return
    each = (
        "one a piece of the root's"
        if op.pieces(spec.root or 0, spec) > 1 and "root" in op.takes
        else "one a rank"
    )
    alone = f", or one for rank {lone}" if lone is not None else ""
    times = "once" if ranks == 1 else f"{ranks} times, or a file of {ranks} lines"
    other = "" if grouped else f", or --world-size {given.count}"
    raise UsageError(
        f"--values has {given.count} {'row' if given.count == 1 else 'rows'} for "
        f"{ranks} {'rank' if ranks == 1 else 'ranks'}.",
        f"{op.command} takes {each}{alone}.",
        f"Give --values {times}{other}.",
    )


def _reduce_op(op: Op, flags: Flags) -> str | None:
    if "reduce_op" not in op.takes:
        return None
    given = flags["reduce_op"].lower()
    if given in reduction.NAMES:
        return reduction.NAMES[given]
    raise unknown("reduce op", list(reduction.REDUCTIONS), given, "--reduce-op")


def _patience(world: WorldSpec) -> float:
    """The seconds of a monitored barrier: it speaks up before the launcher's time is up."""
    return max(world.deadline / 2, world.deadline - min(2.0, max(0.3, world.deadline / 4)))
