"""The cases of ``check``, generated from the declarations of the ops along or across the axes.

Nothing here names an op. The axes follow from the settings that an op has and a form lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any

from distdemo import ops
from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Form, Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import Call, OpSpec

QUICK_SIZES = (1, 2, 3, 4, 5)
FULL_SIZES = (1, 2, 3, 4, 5, 8)
PROBE_SIZES = (3,)  # odd, and enough for two ranks with equal data
LARGE = 70_001  # elements: more than any backend sends as a small message, and not a round number
SHAPES = ((), (0,), (1,), (7,), (3, 5), (LARGE,))
LENGTHS = (3, 0, 7, 1, 2, 5, 0, 4)  # of uneven tensors, repeated across the ranks
SEED = 0  # of values to reduce: counted ones would make the last rank's always the largest
STRAGGLER_DELAY_S = 0.02  # seconds that a late rank waits before a barrier; may end early
LAYOUTS = ("", "ends", "halves", "strided")
NESTED = (
    '{"loss": 0.5, "history": [1, 2.5, null, {"best": true}]}',
    '"a text with \\"quotes\\" and ünïcode"',
    "[]",
    "null",
    '{"deep": [[[[["deeper"]]]]], "many": [' + ", ".join(["1e300"] * 100) + "]}",
)


# ----------------------------------------------------------------------------------------- cases


@dataclass(frozen=True, slots=True)
class Case:
    """One op in one form with one value of every setting.

    Attributes:
        op: Op to run.
        form: Form of the op.
        specs: One spec per group; all groups run at the same time.
        world_size: Number of ranks.
    """

    op: Op
    form: Form
    specs: tuple[OpSpec, ...]
    world_size: int

    @property
    def spec(self) -> OpSpec:
        """Spec of the first group."""
        return self.specs[0]

    @property
    def form_name(self) -> str:
        """Form as part of the ID."""
        return form_name(self.form)

    @property
    def dtype(self) -> str:
        """Element type; ``object`` or ``none`` if there are no elements."""
        if self.op.is_barrier:
            return "none"
        return "object" if self.spec.objects else self.spec.dtype

    @property
    def id(self) -> str:
        """Unique ID, made of the settings that differ between cases."""
        spec = self.spec
        words = [self.op.name, self.form_name, spec.reduce_op, self.dtype, f"n{self.world_size}"]
        if spec.sizes is not None:
            words.append("sizes" + ",".join(map(str, spec.sizes)))
        elif spec.splits is not None:
            words.append(f"splits{sum(map(sum, spec.splits))}")
        elif not (self.op.is_barrier or spec.objects):
            shape = "x".join(map(str, spec.shape)) if spec.numel else "empty"
            words.append(shape or "scalar")
        if spec.objects_json is not None:
            words.append("nested")
        if spec.root is not None:
            words.append(f"root{spec.root}")
        if spec.src is not None:
            words.append(f"{spec.src}to{spec.dst}")
        if spec.straggler is not None:
            words.append(f"late{spec.straggler}")
        if spec.members is not None:
            groups = (".".join(map(str, group.members or ())) for group in self.specs)
            words.append("groups" + "+".join(groups))
        if spec.async_op:
            words.append("async")
        if spec.inference:
            words.append("inference")
        return "/".join(filter(None, words))


def form_name(form: Form) -> str:
    """Return the form as part of a case's ID."""
    return form.name.replace(" ", "-")


# ---------------------------------------------------------------------------------- the matrices


@dataclass(frozen=True, slots=True)
class Setting:
    """One value on every axis. A form ignores the settings that it doesn't have.

    Attributes:
        call: Settings of the call. Its group is the world; its root is the root, sender or late
            rank, and −1 the last rank.
        layout: Groups: none, ``ends`` (all ranks but rank 1), ``halves`` or ``strided`` (two groups
            at the same time).
    """

    call: Call
    layout: str = ""


_BASE = Call("", dtype="float32", reduce_op="sum", shape=(7,), root=0)


def _setting(world_size: int, layout: str = "", **axes: Any) -> Setting:
    """Return a setting with these values; the other axes have fixed ones."""
    return Setting(replace(_BASE, group_size=world_size, **axes), layout)


def quick(sizes: Collection[int] = (), names: Collection[str] = ()) -> list[Case]:
    """Return the cases of every form along every axis, with the other axes fixed.

    Args:
        sizes: World sizes; empty for the default ones.
        names: Names of the ops; empty for all.
    """
    return _cases(_along_axes(tuple(sizes or QUICK_SIZES)), names)


def full(sizes: Collection[int] = (), names: Collection[str] = ()) -> list[Case]:
    """Return every form × dtype × reduce op × world size, and every form × the other axes.

    With one world size, these include every case of that size in `quick` and in `full`.
    """
    sizes = tuple(sizes or FULL_SIZES)
    return _cases([*_along_axes(sizes), *_across(sizes)], names)


def probe(sizes: Collection[int] = (), names: Collection[str] = ()) -> list[Case]:
    """Return every form × dtype × reduce op once, and with scalar and empty tensors."""
    settings = []
    for size in sizes or PROBE_SIZES:
        settings += [
            _setting(size, dtype=dtype, reduce_op=name)
            for dtype, name in product(DTYPES, REDUCTIONS)
        ]
        settings += [_setting(size, shape=shape) for shape in ((), (0,))]
    return [case for case in _cases(settings, names) if case.form.lacking() is None]


SCOPES = {"quick": quick, "full": full, "probe": probe}


def _along_axes(sizes: tuple[int, ...]) -> list[Setting]:
    turn = count()

    def size(least: int = 1) -> int:
        """Return the next world size that is large enough, or the largest if there is none."""
        fitting = [size for size in sizes if size >= least] or [max(sizes)]
        return fitting[next(turn) % len(fitting)]

    settings = [_setting(size(2), dtype=dtype) for dtype in DTYPES]
    for name, dtype in product(REDUCTIONS, ("int32", "float32", "bool", "bfloat16")):
        settings.append(_setting(size(2), dtype=dtype, reduce_op=name))
    for n, async_op in product(sizes, (False, True)):
        settings.append(_setting(n, async_op=async_op))
        other: dict[str, Any] = {"dtype": "int64", "reduce_op": "max", "shape": (3, 5), "root": -1}
        settings.append(_setting(n, async_op=async_op, **other))
    settings += [_setting(n, shape=shape) for shape, n in product(SHAPES, sizes[1:4:2] or sizes)]
    settings += [_setting(n, root=root) for n, root in product(sizes, (0, 1, -1))]
    for layout, async_op in product(LAYOUTS, (False, True)):
        settings.append(_setting(size(3), layout, root=-1, async_op=async_op))
        settings.append(_setting(size(4), layout, dtype="int32", async_op=async_op))
    for async_op in (False, True):
        settings.append(_setting(size(2), inference=True, async_op=async_op))
    return settings


def _across(sizes: Collection[int]) -> list[Setting]:
    """Return two products that together cover every pair of values of any two axes."""
    names = ("shape", "root", "layout", "async_op", "inference")
    values = product(SHAPES[2:5], (0, -1), ("", "ends"), (False, True), (False, True))
    others = [dict(zip(names, chosen, strict=True)) for chosen in values]
    settings = []
    for n in sizes:
        for turn, (dtype, name) in enumerate(product(DTYPES, REDUCTIONS), start=n):
            other: dict[str, Any] = others[turn * 7 % len(others)]
            settings.append(_setting(n, dtype=dtype, reduce_op=name, **other))
    for axes in product(sizes, SHAPES, (0, 1, -1), LAYOUTS, (False, True)):
        n, shape, root, layout, async_op = axes
        settings.append(_setting(n, layout, shape=shape, root=root, async_op=async_op))
    return settings


def _cases(settings: Iterable[Setting], names: Collection[str] = ()) -> list[Case]:
    """Return the distinct cases of every form of the named ops with these settings."""
    cases = {}
    selected = [op for op in ops.REGISTRY.values() if not names or op.name in names]
    for setting, op in product(settings, selected):
        for form in op.all_forms:
            case = make_case(op, form, setting)
            if case is not None:
                cases[case.id] = case
    return list(cases.values())


def make_case(op: Op, form: Form, setting: Setting) -> Case | None:
    """Return the case of a form and a setting, or None if the world is too small."""
    groups = _groups(setting.layout, setting.call.group_size)
    if not groups or len(groups[0]) < op.smallest_world:
        return None
    specs = tuple(_spec(op, form, setting, members) for members in groups)
    return Case(op, form, specs, setting.call.group_size)


def _spec(op: Op, form: Form, setting: Setting, members: tuple[int, ...]) -> OpSpec:
    """Return the spec of one group. Built once from a dictionary, for speed."""
    n = len(members)
    call = setting.call
    root = (call.root or 0) % n
    has = op.takes - form.lacks
    given: dict[str, Any] = {
        "shape": call.shape,
        "async_op": call.async_op and bool(has & {"async_op", "nonblocking"}),
        "inference": call.inference,
        "members": members if setting.layout else None,
    }
    if op.is_barrier:
        given |= {"straggler": root, "straggler_delay_s": STRAGGLER_DELAY_S} if n > 1 else {}
    elif "dtype" not in form.lacks:
        given["dtype"] = call.dtype
    if "reduce_op" in has:
        given |= {"reduce_op": call.reduce_op, "seed": SEED}
    if "root" in has:
        given["root"] = root
    given |= {name: value for name, value in form.settings.items() if value is not None}
    if "pattern" in op.takes and given.get("pattern", "pair") == "pair":
        given |= {"pattern": "pair", "src": root, "dst": (root + 1) % n}
    if op.is_barrier or given.get("objects"):
        given["shape"] = ()
    scale = 1  # of uneven lengths
    if call.shape == (0,):
        scale = 0
    elif call.shape == (LARGE,):
        scale = 1000
    if given.get("objects"):
        if call.shape == (3, 5):
            given["objects_json"] = tuple(NESTED[rank % len(NESTED)] for rank in members)
    elif form.uneven and "splits" in op.takes:
        rows = (tuple((2 * i + 3 * j + 1) % 4 * scale for j in range(n)) for i in range(n))
        given["splits"] = tuple(rows)
        given["shape"] = (max(map(sum, given["splits"])),)
    elif form.uneven:
        given["sizes"] = tuple(LENGTHS[rank % len(LENGTHS)] * scale for rank in members)
        given["shape"] = (max(given["sizes"]),)
    return OpSpec(op.name, n, **given)


def _groups(layout: str, n: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a layout, or () if there are too few ranks."""
    if not layout:
        return (tuple(range(n)),)
    if layout == "ends":
        ends = (0, *range(2, n)) if n > 3 else (0, 2)
        return (ends,) if n >= 3 else ()
    if n < 4 or n % 2:
        return ()
    if layout == "halves":
        return tuple(range(n // 2)), tuple(range(n // 2, n))
    return tuple(range(0, n, 2)), tuple(range(1, n, 2))
