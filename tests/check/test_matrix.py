"""The matrix covers every value of every axis, in an order given by the seed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product
from typing import Any

from probe import cases

from distdemo import backends, ops
from distdemo.backends.capabilities import form_key
from distdemo.check import matrix
from distdemo.check.matrix import Case, Setting, make_case
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec

FORMS = [(op, form) for op in ops.REGISTRY.values() for form in op.all_forms]
LAYOUTS = {None, ((0, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3))}


def groups(case: Case) -> tuple[tuple[int, ...], ...] | None:
    """Return the members of each group, or None for the whole world."""
    return tuple(spec.members for spec in case.specs if spec.members is not None) or None


def values(cases: list[Case], *axes: Any) -> dict[str, set[Any]]:
    """Return the combined values of these axes by form."""
    found: defaultdict[str, set[Any]] = defaultdict(set)
    for case in cases:
        found[form_key(case.op, case.spec)].add(tuple(axis(case) for axis in axes))
    return found


def test_every_form_has_every_value_of_every_axis() -> None:
    every = matrix.quick(seed=5)
    gloo = backends.REGISTRY["gloo"]
    taken = [case for case in every if gloo.why_unsupported(case.op, case.spec) is None]
    assert len({case.id for case in every}) == len(every)
    keys = {f"{op.name}/{form.name}": op for op, form in FORMS}
    for key, found in values(taken, lambda case: case.world_size).items():
        assert found == {(n,) for n in matrix.QUICK_SIZES if n >= keys[key].smallest_world}, key
    refused = {f"{op.name}/{form.name}" for op, form in FORMS} - set(values(taken))
    assert refused - {"all_to_all/list"} == {"all_to_all/uneven list", "gather/single"}
    tensors = [case for case in every if not (case.op.is_barrier or case.spec.objects)]
    for key, found in values(tensors, lambda case: case.dtype).items():
        assert found == {(dtype,) for dtype in DTYPES}, key
    even = [case for case in tensors if not case.form.uneven]
    for key, found in values(even, lambda case: case.spec.shape).items():
        assert found == {(shape,) for shape in matrix.SHAPES}, key
    uneven = [case for case in taken if case.form.uneven]
    for key, found in values(uneven, lambda case: case.spec.shape[0]).items():
        longest = {length for (length,) in found}
        assert 0 in longest, key
        assert max(longest) >= 1000, key
        assert any(0 < length < 100 for length in longest), key
    sizes = [case.spec.sizes or () for case in uneven]
    assert any(0 in each and any(each) for each in sizes), "one tensor is empty and others aren't"
    for key, found in values(every, lambda case: case.spec.inference).items():
        assert found == {(False,), (True,)}, key
    four = [case for case in taken if case.world_size == 4]
    for key, found in values(four, groups, lambda case: case.spec.async_op).items():
        asked = {waits for _, waits in found}
        assert found >= set(product(LAYOUTS, asked)), key
    able = {
        f"{op.name}/{form.name}"
        for op, form in FORMS
        if (op.takes - form.lacks) & {"async_op", "nonblocking"}
        if form.settings.get("async_op", True)
    }
    assert set(values([case for case in taken if case.spec.async_op])) == able - refused
    assert all({spec.seed for spec in c.specs} == {5 if c.spec.reduce_op else None} for c in every)


def test_full_has_every_pair_of_values_of_two_axes() -> None:
    every = matrix.full(seed=5, names=("all_reduce",))
    pairs: Counter[Any] = Counter()
    for case in (each for each in every if groups(each) is None):
        axes = ("group_size", "dtype", "reduce_op", "async_op")
        mine = [(axis, getattr(case.spec, axis)) for axis in axes]
        pairs.update(product(mine, mine))
    alone = {one for one, _ in pairs}
    for one, other in product(alone, alone):
        assert one[0] == other[0] or pairs[one, other], (one, other)


def test_quick_covers_reduce_ops_roots_pairs_stragglers_and_objects() -> None:
    every = matrix.quick()
    for name in ("all_reduce", "reduce", "reduce_scatter"):
        mine = [case for case in every if case.op.name == name]
        found = {(case.spec.reduce_op, DTYPES[case.dtype].kind) for case in mine}
        assert found >= set(product(REDUCTIONS, ("int", "float", "bool")))
    whole = [case for case in every if groups(case) is None]
    for op in (op for op in ops.REGISTRY.values() if "root" in op.takes):
        roots = {(c.world_size, c.spec.root) for c in whole if c.op.name == op.name}
        assert roots == {(n, root % n) for n in matrix.QUICK_SIZES for root in (0, 1, -1)}
    pairs = {(case.world_size, case.spec.src, case.spec.dst) for case in whole}
    assert pairs >= {(5, 0, 1), (5, 1, 2), (5, 4, 0), (2, 1, 0)}
    late = {(case.world_size, case.spec.straggler) for case in every if case.op.is_barrier}
    assert late >= {(4, 0), (4, 3), (5, 0), (5, 4), (1, None)}
    objects = {(c.op.name, c.spec.objects_json is None) for c in every if c.spec.objects}
    named = [op.name for op, form in FORMS if form.name == "objects"]
    assert objects == set(product(named, (False, True)))


def test_the_seed_sets_the_order_and_sizes_filter() -> None:
    three, four = ([case.id for case in matrix.quick(seed=seed)] for seed in (3, 4))
    assert three == [case.id for case in matrix.quick(seed=3)]
    assert three != four
    assert sorted(three) == sorted(four)
    for make, sizes in product((matrix.quick, matrix.full), ((1,), (6, 1))):
        cases = make(sizes=sizes, names=("barrier", "p2p"))
        assert {case.world_size for case in cases} == set(sizes)
        assert {case.op.name for case in cases} == (
            {"barrier", "p2p"} if 6 in sizes else {"barrier"}
        )


def test_the_probe_covers_each_form_dtype_reduce_op_and_shape_once() -> None:
    found = Counter(
        (form_key(case.op, case.spec), case.spec.reduce_op, case.dtype, len(case.spec.shape))
        if case.spec.shape in ((), (0,)) and case.dtype in DTYPES
        else (form_key(case.op, case.spec), case.spec.reduce_op, case.dtype)
        for case in cases()
    )
    wanted: Counter[Any] = Counter()
    for op, form in FORMS:
        reduce_ops = list(REDUCTIONS) if "reduce_op" in op.takes else [None]
        dtypes = (
            ["none"] if op.is_barrier else ["object"] if form.name == "objects" else list(DTYPES)
        )
        wanted.update(product([f"{op.name}/{form.name}"], reduce_ops, dtypes))
        if len(dtypes) > 1:
            dimensions = (1,) if form.uneven else (0, 1)  # lengths have a dimension
            wanted.update(
                product([f"{op.name}/{form.name}"], reduce_ops[:1], ["float32"], dimensions)
            )
    assert found == wanted
    alone = {op.name for op in ops.REGISTRY.values() if op.smallest_world == 1}
    assert {case.op.name for case in cases(1)} == alone


def test_settings_that_do_not_fit_give_no_case_or_are_ignored() -> None:
    op = ops.REGISTRY["all_reduce"]
    for layout, size in (("ends", 2), ("halves", 2), ("halves", 5), ("strided", 3)):
        assert make_case(op, op.all_forms[0], Setting(size, layout=layout)) is None
    setting = Setting(3, "int8", "max", (3, 5), 1, async_op=True)
    op = ops.REGISTRY["broadcast"]
    tensor, objects = (make_case(op, form, setting) for form in op.all_forms)
    assert tensor is not None
    assert tensor.spec == OpSpec("broadcast", 3, "int8", (3, 5), root=1, async_op=True)
    assert objects is not None
    assert objects.spec.objects_json
    assert replace(objects.spec, objects_json=None) == OpSpec(
        "broadcast", 3, shape=(), root=1, objects=True
    )
