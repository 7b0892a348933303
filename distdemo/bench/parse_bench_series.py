"""From the flags of ``bench`` to its series: each op on each backend, at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from distdemo import ops
from distdemo.bench.bench_options import EVERY_OP, PLACEMENTS, SECOND_WORDS
from distdemo.bench.old_records import SeriesSpec, Sized
from distdemo.bench.sizes import SizeRange, cut_notes, of_size, part_bytes, series_sizes, size_text
from distdemo.cli.parse import Flags, choose, unknown
from distdemo.cli.parse_sizes import parse_range
from distdemo.cli.support import check_support
from distdemo.demo.parse_data import parse_dtype
from distdemo.demo.parse_groups import Groups
from distdemo.demo.parse_op import base_spec
from distdemo.errors import UsageError
from distdemo.launcher.limits import memory_text, room_beside
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.footprint import memory_of_all
from distdemo.ops.spec import OpSpec

DEFAULT_OP = "all-reduce"
PREFERRED = "single"  # of the variants: what the libraries below have, without copies around it


def _takes(option: str) -> Callable[[Op], bool]:
    return lambda op: option in op.takes


def _moves(op: Op) -> bool:
    return not op.meets


_MEANING: dict[str, tuple[str, Callable[[Op], bool]]] = {
    "min_bytes": ("-b", _moves),
    "max_bytes": ("-e", _moves),
    "step_factor": ("-f", _moves),
    "step_bytes": ("-i", _moves),
    "bench_dtype": ("--dtype", _moves),
    "bench_reduce_op": ("--reduce-op", _takes("reduce_op")),
    "root": ("--root", _takes("root")),
    "bench_variant": ("--variant", _takes("variant")),
    "bench_pattern": ("--pattern", _takes("pattern")),
    "src": ("--src", _takes("src")),
    "dst": ("--dst", _takes("dst")),
}
"""The flag of each option that not every op has, and which ops have it."""


def parse_ops(given: Sequence[str] | None) -> list[Op]:
    """The ops that were named, each once; all-reduce if none was.

    Raises:
        UsageError: there is no such op.
    """
    words = [word for text in given or (DEFAULT_OP,) for word in text.split(",") if word]
    chosen: dict[str, Op] = {}
    for word in words:
        if word.lower() == EVERY_OP:
            chosen |= ops.REGISTRY
            continue
        op = ops.find(word)
        if op is None:
            known = [*(each.command for each in ops.REGISTRY.values()), EVERY_OP, *SECOND_WORDS]
            raise unknown("operation", known, word, "distdemo bench")
        chosen[op.name] = op
    return list(chosen.values())


def check_meaning(chosen: Sequence[Op], flags: Flags) -> None:
    """Refuse an option that none of these ops has.

    Raises:
        UsageError: naming the first of them.
    """
    for name, (flag, means) in _MEANING.items():
        if flags[name] is not None and not any(means(op) for op in chosen):
            raise _meaningless(flag, chosen, [op for op in ops.REGISTRY.values() if means(op)])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured of every op.

    Attributes:
        flags: of the command.
        groups: that run an op at once; None: the whole world is one.
        world_size: ranks of the world.
        here: how many of them this machine has to hold.
    """

    flags: Flags
    groups: Groups | None
    world_size: int
    here: int

    @property
    def group_size(self) -> int:
        """Ranks of one group; n of the formulas."""
        return self.world_size if self.groups is None else len(self.groups[0])


def parse_series(
    chosen: Sequence[Op], worlds: Sequence[WorldSpec], wanted: Wanted
) -> tuple[tuple[SeriesSpec, ...], tuple[str, ...]]:
    """The series of every op on every backend, and what a reader should know of them.

    What can't be measured stands among the others with the reason; alone it is an error.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    dtype = parse_dtype(wanted.flags["bench_dtype"] or "float32")
    asked = SizeRange(8, 8) if not any(map(_moves, chosen)) else parse_range(wanted.flags, dtype)
    found: list[SeriesSpec] = []
    refusals: list[UsageError] = []
    cut: dict[int, list[str]] = {}
    both = False
    for world in worlds:
        for op in chosen:
            try:
                template = _template(op, world, wanted, dtype)
                sizes, part = series_sizes(op, template, asked)
            except _RefusedError as refused:
                refusals.append(refused.error)
                found.append(_refused(op, world, refused.error))
                continue
            cut.setdefault(part, []).append(op.command)
            both |= op.has_both(template)
            made = list(_placed(op, template, wanted.flags))
            _check_room(op, made[0], sizes, world, wanted)
            found += [_one(op, each, sizes, world, wanted) for each in made]
    if refusals and not any(series.points for series in found):
        raise refusals[0]
    if wanted.flags["placement"] is not None and not both:
        raise _one_way(chosen)
    return tuple(found), tuple(cut_notes(cut, wanted.group_size, dtype))


class _RefusedError(Exception):
    """This op can't be measured there; others can."""

    def __init__(self, error: UsageError) -> None:
        super().__init__(str(error))
        self.error = error


def _template(op: Op, world: WorldSpec, wanted: Wanted, dtype: str) -> OpSpec:
    """The op with all its settings but the size.

    Raises:
        _RefusedError: this backend, or so few ranks, can't do it.
        UsageError: a flag is wrong.
    """
    size, flags = wanted.group_size, wanted.flags
    if size < op.smallest_world:
        raise _RefusedError(too_few(op, size))
    waits = bool(flags["bench_async"] or flags["overlap"])
    settings = {
        **flags,
        "reduce_op": flags["bench_reduce_op"] or "sum",
        "pattern": flags["bench_pattern"] or "pair",
        "variant": flags["bench_variant"] or PREFERRED,
        "async_op": waits,
    }
    template = replace(base_spec(op, settings, size), dtype=dtype, shape=(1,))
    if op.meets:
        template = replace(template, shape=())
    try:
        check_support(op, template, world.backend, world.device)
    except UsageError as error:
        raise _RefusedError(error) from error
    return template


def _placed(op: Op, template: OpSpec, flags: Flags) -> Iterator[OpSpec]:
    """The op out of place and in place, as far as it has both and they are wanted."""
    where = choose("placement", flags["placement"] or PLACEMENTS[0], PLACEMENTS)
    if not op.has_both(template) or where != "in":
        yield template
    if op.has_both(template) and where != "out":
        yield replace(template, in_place=True)


def _one(
    op: Op, template: OpSpec, sizes: Sequence[int], world: WorldSpec, wanted: Wanted
) -> SeriesSpec:
    form = op.form(template)
    alone = wanted.flags["placement"] not in (None, PLACEMENTS[0])
    return SeriesSpec(
        op.command,
        form.name,
        form.calls,
        world,
        tuple(Sized(size, _of_groups(of_size(op, template, size), wanted)) for size in sizes),
        in_place=template.in_place or op.is_in_place(template),
        both=op.has_both(template) and not alone,
    )


def _of_groups(spec: OpSpec, wanted: Wanted) -> tuple[OpSpec, ...]:
    if wanted.groups is None:
        return (spec,)
    return tuple(replace(spec, members=members) for members in wanted.groups)


def _refused(op: Op, world: WorldSpec, error: UsageError) -> SeriesSpec:
    form = op.all_forms[0]
    why = f"{error.what} {error.why}"
    return SeriesSpec(op.command, form.name, form.calls, world, (), refused=why)


# ------------------------------------------------------------------------------------ refusals


def too_few(op: Op, size: int) -> UsageError:
    """So few ranks make no sense for this op."""
    least = op.smallest_world
    return UsageError(
        f"{op.command} on {size} {'rank' if size == 1 else 'ranks'}: {least} at least.",
        f"{op.command} needs {least} ranks: one can't send to itself.",
        f"Try --world-size {least}.",
    )


def _meaningless(flag: str, chosen: Sequence[Op], takers: Sequence[Op]) -> UsageError:
    who = ", ".join(op.command for op in chosen)
    belongs = ", ".join(op.command for op in takers)
    many = len(takers) > len(ops.REGISTRY) // 2
    return UsageError(
        f"{flag} means nothing to {who}.",
        "No data moves: there is one point, of size 0." if many else f"It belongs to: {belongs}.",
        "Leave it out.",
    )


def _one_way(chosen: Sequence[Op]) -> UsageError:
    who = ", ".join(op.command for op in chosen)
    return UsageError(
        f"--placement means nothing to {who}.",
        "torch makes the call in one way alone.",
        "Leave it out.",
    )


def _check_room(
    op: Op, template: OpSpec, sizes: Sequence[int], world: WorldSpec, wanted: Wanted
) -> None:
    """Refuse a largest size that this machine can't hold; the memory of a GPU is not looked at.

    Raises:
        UsageError: naming the largest that fits.
    """
    free = room_beside(replace(world, world_size=wanted.here))
    if world.device != "cpu" or _needed(op, template, sizes[-1], wanted) <= free:
        return
    most = _largest_that_fits(op, template, sizes[-1], wanted, free)
    needed = memory_text(_needed(op, template, sizes[-1], wanted))
    raise UsageError(
        f"{op.command} of {size_text(sizes[-1])} bytes needs {needed} on {wanted.here} ranks.",
        f"About {memory_text(free)} of memory are free beside the ranks themselves; the largest "
        f"size that fits is {memory_text(most)}.",
        f"Try -e {size_text(_power_of_two(most))}, or fewer ranks." if most else "Try fewer ranks.",
    )


def _needed(op: Op, template: OpSpec, size: int, wanted: Wanted) -> int:
    """Bytes of all ranks here at this size; one size is held at a time."""
    groups = 1 if wanted.groups is None else len(wanted.groups)
    whole = groups * memory_of_all(op, of_size(op, template, size))
    return whole * wanted.here // wanted.world_size


def _largest_that_fits(op: Op, template: OpSpec, size: int, wanted: Wanted, free: int) -> int:
    """By halving what lies between; 0 if nothing fits."""
    part = part_bytes(op, template)
    low, high = 0, size // part
    while high - low > 1:
        middle = (low + high) // 2
        fits = _needed(op, template, middle * part, wanted) <= free
        low, high = (middle, high) if fits else (low, middle)
    return low * part


def _power_of_two(size: int) -> int:
    """The largest that is no larger: easy to type, and some room is left."""
    return 1 << (size.bit_length() - 1)
