"""Requests to test with: every form of every op, and whatever a user could ask for."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from distdemo import ops
from distdemo.backends.gloo import Gloo
from distdemo.dtypes import DTYPES, DType
from distdemo.ops.contract import Form, Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec

OPS = list(ops.REGISTRY.values())
FORMS = [(op, form) for op in OPS for form in op.all_forms]

# ------------------------------------------------------------------------------------- all forms


def lengths(n: int) -> tuple[int, ...]:
    """The sizes of uneven tensors: the first the usual example, one of them empty."""
    return (3, 0, 7, 1, 2, 5, 4, 1)[:n]


def splits(n: int) -> tuple[tuple[int, ...], ...]:
    """For each rank the lengths of its parts, some of them zero; no two rows or columns alike."""
    return tuple(tuple((rank + 2 * part) % 4 for part in range(n)) for rank in range(n))


def parameters(op: Op, form: Form, n: int) -> dict[str, Any]:
    """What a request for this form needs beside dtype and shape: an example of it."""
    given: dict[str, Any] = dict(form.settings)
    if "reduce_op" in op.takes:
        given["reduce_op"] = "sum"
    if "root" in op.takes:
        given["root"] = n - 1
    if "pattern" in op.takes and given.get("pattern", "pair") == "pair":
        given |= {"pattern": "pair", "src": 0, "dst": n - 1}
    if form.uneven and "splits" in op.takes:
        given |= {"splits": splits(n), "shape": (max(map(sum, splits(n))),)}
    elif form.uneven:
        given |= {"sizes": lengths(n), "shape": (max(lengths(n)),)}
    return given


def example(op: Op, form: Form, n: int, **changes: Any) -> OpSpec:
    """One request for this form."""
    return OpSpec(op.name, n, **{"shape": op.default_shape, **parameters(op, form, n), **changes})


def name_of(spec: OpSpec) -> str:
    """A short name for a test's id."""
    op = ops.REGISTRY[spec.op]
    where = [str(each) for each in (spec.root, spec.src, spec.dst) if each is not None]
    return "-".join([spec.op, op.form(spec).name.replace(" ", "-"), str(spec.group_size), *where])


# --------------------------------------------------------------------------------- any request


def numbers(dtype: DType) -> st.SearchStrategy[Any]:
    """Numbers that the type holds exactly; quarters, for the floating-point ones."""
    most = min(32, dtype.exact)
    quarters = st.integers(-most, most).map(lambda number: number / 4)
    return {
        "int": st.integers(dtype.lowest, dtype.exact),
        "bool": st.booleans(),
        "float": quarters,
        "complex": st.builds(complex, quarters, quarters),
    }[dtype.kind]


OBJECTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-1e9, 1e9), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
"""Whatever JSON has: nested, and of unequal sizes."""


def right_over_gloo(op: Op, spec: OpSpec) -> bool:
    """Whether gloo takes this, and does it right in the installed torch."""
    return Gloo().why_unsupported(op, spec) is None and Gloo().known_bug(op, spec) is None


@cache
def taken_by_gloo(place: int) -> list[tuple[str | None, str]]:
    """The pairs of reduce op and dtype that gloo takes in this one of ``FORMS``."""
    op, form = FORMS[place]
    spec = example(op, form, 2)
    reduce_ops = sorted(REDUCTIONS) if "reduce_op" in op.takes else [None]
    return [
        (reduce_op, dtype)
        for reduce_op in reduce_ops
        for dtype in DTYPES
        if right_over_gloo(op, replace(spec, reduce_op=reduce_op, dtype=dtype))
    ]


@st.composite
def requests(draw: st.DrawFn, most: int = 6) -> tuple[Op, OpSpec]:
    """An op and a request for it that gloo takes, in a world of at most so many ranks."""
    place = draw(st.sampled_from(range(len(FORMS))).filter(taken_by_gloo))
    op, form = FORMS[place]
    n = draw(st.integers(op.smallest_world, most))
    more = parameters(op, form, n)
    if "root" in op.takes:
        more["root"] = draw(st.integers(0, n - 1))
    if more.get("src") is not None:
        more["src"] = draw(st.integers(0, n - 1))
        more["dst"] = (more["src"] + draw(st.integers(1, n - 1))) % n
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, most), min_size=n, max_size=n))
        more["members"] = tuple(sorted(chosen))
    if op.is_barrier:
        return op, OpSpec(op.name, n, **{**more, "shape": ()})
    if form.name == "objects":
        if draw(st.booleans()):
            more["objects_json"] = tuple(json.dumps(draw(OBJECTS)) for _ in range(n))
        return op, OpSpec(op.name, n, **{**more, "shape": ()})
    more |= draw(shapes(more, n))
    more["reduce_op"], more["dtype"] = draw(st.sampled_from(taken_by_gloo(place)))
    assume(right_over_gloo(op, OpSpec(op.name, n, **more)))  # for its shape
    more |= draw(contents(op, OpSpec(op.name, n, **more)))
    return op, OpSpec(op.name, n, **more)


@st.composite
def shapes(draw: st.DrawFn, more: dict[str, Any], n: int) -> dict[str, Any]:
    """The shape; for uneven tensors and parts their lengths too."""
    length = st.integers(0, 3)
    rest = tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
    if "sizes" in more:
        sizes = tuple(draw(length) for _ in range(n))
        return {"sizes": sizes, "shape": (max(sizes), *rest)}
    if more.get("splits") is not None:
        rows = tuple(tuple(draw(length) for _ in range(n)) for _ in range(n))
        return {"splits": rows, "shape": (max(map(sum, rows)), *rest)}
    return {"shape": tuple(draw(st.lists(st.integers(1, 3), max_size=3)))}


@st.composite
def contents(draw: st.DrawFn, op: Op, spec: OpSpec) -> dict[str, Any]:
    """What fills the tensors: the default values, mixed ones, or the user's own."""
    kind = draw(st.sampled_from(["default", "seed", "values"]))
    if kind == "values":
        number = numbers(DTYPES[spec.dtype])
        rows = [op.row(label, spec) for label in range(spec.group_size)]
        return {
            "values": tuple(
                tuple(draw(st.lists(number, min_size=row, max_size=row))) for row in rows
            )
        }
    return {"seed": draw(st.integers(0, 2**31 - 2))} if kind == "seed" else {}
