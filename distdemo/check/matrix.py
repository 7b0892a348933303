"""The matrix of ``check``: cases made from the ops' declarations, axis by axis or all across.

Nothing here names an op: what an op takes, and what a form of it lacks, says which axes it has.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, product

from distdemo import ops
from distdemo.check.cases import Case
from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Form, Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec

QUICK_SIZES = (1, 2, 3, 4, 5)
FULL_SIZES = (1, 2, 3, 4, 5, 8)
PROBE_RANKS = 3  # an odd number, and enough for two of them to hold the same
LARGE = 70_001  # elements: beyond what any backend sends as a small message, and no round number
SHAPES = ((), (0,), (1,), (7,), (3, 5), (LARGE,))
LENGTHS = (3, 0, 7, 1, 2, 5, 0, 4)  # of uneven tensors, repeated over the ranks
LATE = 0.02  # seconds by which a rank comes late to a barrier; it need not wait them out
NESTED = (
    '{"loss": 0.5, "history": [1, 2.5, null, {"best": true}]}',
    '"a text with \\"quotes\\" and ünïcode"',
    "[]",
    "null",
    '{"deep": [[[[["deeper"]]]]], "many": [' + ", ".join(["1e300"] * 100) + "]}",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One point on all axes; a form takes from it what it has.

    Attributes:
        root: the root, or the sender, or who comes late; −1 is the last rank.
        layout: which groups: none, ``ends`` (the first and last ranks, without those between),
            ``halves`` or ``strided`` (two groups at once).
    """

    world_size: int
    dtype: str = "float32"
    reduce_op: str = "sum"
    shape: tuple[int, ...] = (7,)
    root: int = 0
    layout: str = ""
    async_op: bool = False
    inference: bool = False


LAYOUTS = ("", "ends", "halves", "strided")


def quick(
    seed: int = 0, sizes: Iterable[int] = QUICK_SIZES, names: Collection[str] = ()
) -> list[Case]:
    """Every form along every axis, the other axes at rest.

    Args:
        seed: of the order, and of the values that are reduced.
        sizes: of the worlds.
        names: of the ops; none: all.
    """
    return _shuffled(_cases(_along_axes(tuple(sizes)), names), seed)


def full(
    seed: int = 0, sizes: Iterable[int] = FULL_SIZES, names: Collection[str] = ()
) -> list[Case]:
    """Every form × dtype × reduce op × world size, and every form × all the other axes."""
    sizes = tuple(sizes)
    return _shuffled(_cases([*_along_axes(sizes), *_across(sizes)], names), seed)


def pairs(world_size: int = PROBE_RANKS) -> list[Case]:
    """Every form × dtype × reduce op once, and with scalar and empty tensors: for the probe."""
    one = [Setting(world_size, dtype, op) for dtype, op in product(DTYPES, REDUCTIONS)]
    shapes = [Setting(world_size, shape=shape) for shape in ((), (0,))]
    return _unique(_cases([*one, *shapes]))


def _shuffled(cases: Iterable[Case], seed: int) -> list[Case]:
    """In an order of the seed's, and reductions of values that the seed mixes."""
    mixed = _unique(
        replace(case, specs=tuple(_seeded(spec, seed) for spec in case.specs)) for case in cases
    )
    random.Random(seed).shuffle(mixed)
    return mixed


def _seeded(spec: OpSpec, seed: int) -> OpSpec:
    """Counted values would always make the first or last rank's the smallest or largest."""
    return spec if spec.reduce_op is None else replace(spec, seed=seed)


def _unique(cases: Iterable[Case]) -> list[Case]:
    return list({case.id: case for case in cases}.values())


# ---------------------------------------------------------------------------------------- settings


def _along_axes(sizes: tuple[int, ...]) -> list[Setting]:
    turn = count()

    def size(least: int = 1) -> int:
        """The next of the world sizes that are large enough; the largest if none is."""
        fitting = [each for each in sizes if each >= least] or [max(sizes)]
        return fitting[next(turn) % len(fitting)]

    settings = [Setting(size(2), dtype) for dtype in DTYPES]
    for name, dtype in product(REDUCTIONS, ("int32", "float32", "bool", "bfloat16")):
        settings.append(Setting(size(2), dtype, name))
    for n, async_op in product(sizes, (False, True)):
        settings.append(Setting(n, async_op=async_op))
        settings.append(Setting(n, "int64", "max", (3, 5), -1, async_op=async_op))
    settings += [Setting(n, shape=shape) for shape, n in product(SHAPES, sizes[1:4:2] or sizes)]
    settings += [Setting(n, root=root) for n in sizes for root in (0, 1, -1)]
    for layout, async_op in product(LAYOUTS, (False, True)):
        settings.append(Setting(size(3), layout=layout, root=-1, async_op=async_op))
        settings.append(Setting(size(4), "int32", layout=layout, async_op=async_op))
    settings += [Setting(size(2), inference=True, async_op=each) for each in (False, True)]
    return settings


def _across(sizes: tuple[int, ...]) -> list[Setting]:
    """Two products that together meet every pair of values of any two axes."""
    rest = list(product(SHAPES[2:5], (0, -1), ("", "ends"), (False, True), (False, True)))
    settings = []
    for turn, (n, dtype, name) in enumerate(product(sizes, DTYPES, REDUCTIONS)):
        shape, root, layout, async_op, inference = rest[turn * 7 % len(rest)]
        settings.append(Setting(n, dtype, name, shape, root, layout, async_op, inference))
    for n, shape, root, layout, async_op in product(
        sizes, SHAPES, (0, 1, -1), LAYOUTS, (False, True)
    ):
        settings.append(Setting(n, "float32", "sum", shape, root, layout, async_op))
    return settings


# ----------------------------------------------------------------------------------------- cases


def _cases(settings: Iterable[Setting], names: Collection[str] = ()) -> Iterator[Case]:
    """The cases that these settings make of every form of every op (of these names)."""
    chosen = [op for op in ops.REGISTRY.values() if not names or op.name in names]
    everything = [(op, form) for op in chosen for form in op.all_forms]
    for setting in settings:
        for op, form in everything:
            case = make_case(op, form, setting)
            if case is not None:
                yield case


def make_case(op: Op, form: Form, setting: Setting) -> Case | None:
    """What this setting makes of the form; None where the world is too small for it."""
    groups = _groups(setting.layout, setting.world_size)
    if groups == ():
        return None
    size = setting.world_size if groups is None else len(groups[0])
    if size < op.smallest_world:
        return None
    base = _base(op, form, setting, size)
    if groups is None:
        return Case(op, (_filled(op, form, base, setting, range(size)),), setting.world_size)
    specs = (_filled(op, form, replace(base, members=each), setting, each) for each in groups)
    return Case(op, tuple(specs), setting.world_size)


def _groups(layout: str, n: int) -> tuple[tuple[int, ...], ...] | None:
    """The groups of a layout; None for the whole world, () where there are too few ranks."""
    if not layout:
        return None
    if layout == "ends":
        return () if n < 3 else ((0, *range(2, n)) if n > 3 else (0, 2),)
    if n < 4 or n % 2:
        return ()
    half = n // 2
    if layout == "halves":
        return tuple(range(half)), tuple(range(half, n))
    return tuple(range(0, n, 2)), tuple(range(1, n, 2))


def _base(op: Op, form: Form, setting: Setting, size: int) -> OpSpec:
    """The spec without its data: what the form has of the setting."""
    has = op.takes - form.lacks
    root = setting.root % size
    spec = OpSpec(
        op=op.name,
        group_size=size,
        dtype="float32" if "dtype" in form.lacks or op.meets else setting.dtype,
        shape=setting.shape,
        reduce_op=setting.reduce_op if "reduce_op" in has else None,
        root=root if "root" in has else None,
        async_op=setting.async_op and bool(has & {"async_op", "nonblocking"}),
        inference=setting.inference,
    )
    if op.meets:
        spec = replace(spec, shape=())
        if size > 1:
            spec = replace(spec, straggler=root, straggler_delay_s=LATE)
    chosen = {name: value for name, value in form.settings.items() if value is not None}
    spec = replace(spec, **chosen)
    if "pattern" in op.takes and spec.pattern in (None, "pair"):
        spec = replace(spec, pattern="pair", src=root, dst=(root + 1) % size)
    return spec


def _filled(op: Op, form: Form, spec: OpSpec, setting: Setting, ranks: Iterable[int]) -> OpSpec:
    """The spec with lengths for uneven forms, and objects for theirs."""
    n = spec.group_size
    scale = 0 if setting.shape == (0,) else 1000 if setting.shape == (LARGE,) else 1
    if spec.objects:
        nested = tuple(NESTED[rank % len(NESTED)] for rank in ranks)
        return replace(spec, shape=(), objects_json=nested if setting.shape == (3, 5) else None)
    if not form.uneven:
        return spec
    if "splits" in op.takes:
        splits = tuple(tuple((2 * i + 3 * j + 1) % 4 * scale for j in range(n)) for i in range(n))
        return replace(spec, splits=splits, shape=(max(map(sum, splits)),))
    sizes = tuple(LENGTHS[rank % len(LENGTHS)] * scale for rank in ranks)
    return replace(spec, sizes=sizes, shape=(max(sizes),))
