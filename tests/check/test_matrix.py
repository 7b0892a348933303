"""The matrix covers every value of every axis."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import Any

from distdemo import backends, ops
from distdemo.backends.contract import form_key
from distdemo.check import matrix
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS

FORMS = {
    f"{op.name}/{form.name}": (op, form) for op in ops.REGISTRY.values() for form in op.all_forms
}
LAYOUTS = {None, ((0, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3))}


def groups(case):
    """Return the members of each group, or None for the whole world."""
    return tuple(spec.members for spec in case.specs if spec.members is not None) or None


def values(cases, axis):
    """Return the values of an axis by form."""
    by_form = defaultdict(set)
    for case in cases:
        by_form[form_key(case.op, case.spec)].add(axis(case))
    return by_form.items()


def test_every_form_has_every_value_of_every_axis():
    every = matrix.quick()
    gloo = backends.REGISTRY["gloo"]
    supported = [case for case in every if gloo.why_unsupported(case.op, case.spec) is None]
    assert len({case.id for case in every}) == len(every)
    for form, world_sizes in values(supported, lambda case: case.world_size):
        smallest = FORMS[form][0].smallest_world
        assert world_sizes == {size for size in matrix.QUICK_SIZES if size >= smallest}, form
    unsupported = set(FORMS) - {form for form, _ in values(supported, lambda case: None)}
    assert unsupported - {"all_to_all/list"} == {"all_to_all/uneven list", "gather/single"}
    tensors = [case for case in every if not (case.op.is_barrier or case.spec.objects)]
    for form, dtypes in values(tensors, lambda case: case.dtype):
        assert dtypes == set(DTYPES), form
    even = [case for case in tensors if not case.form.uneven]
    for form, shapes in values(even, lambda case: case.spec.shape):
        assert shapes == set(matrix.SHAPES), form
    uneven = [case for case in supported if case.form.uneven]
    for form, lengths in values(uneven, lambda case: case.spec.shape[0]):
        assert 0 in lengths, form
        assert max(lengths) >= 1000, form
        assert any(0 < length < 100 for length in lengths), form
    sizes = [case.spec.sizes or () for case in uneven]
    assert any(0 in lengths and any(lengths) for lengths in sizes)
    for form, modes in values(every, lambda case: case.spec.inference):
        assert modes == {False, True}, form
    four = [case for case in supported if case.world_size == 4]
    for form, pairs in values(four, lambda case: (groups(case), case.spec.async_op)):
        assert pairs >= set(product(LAYOUTS, {async_op for _, async_op in pairs})), form
    asynchronous = {form_key(case.op, case.spec) for case in supported if case.spec.async_op}
    assert asynchronous == {
        name
        for name, (op, form) in FORMS.items()
        if (op.takes - form.lacks) & {"async_op", "nonblocking"}
        if form.settings.get("async_op", True) and name not in unsupported
    }


def test_full_has_every_pair_of_values_of_two_axes():
    pairs: Counter[Any] = Counter()
    for case in matrix.full(names=("all_reduce",)):
        if groups(case) is None:
            axes = ("group_size", "dtype", "reduce_op", "async_op")
            settings = [(axis, getattr(case.spec, axis)) for axis in axes]
            pairs.update(product(settings, settings))
    every = {one for one, _ in pairs}
    for one, other in product(every, every):
        assert one[0] == other[0] or pairs[one, other], (one, other)


def test_quick_covers_reduce_ops_roots_pairs_stragglers_and_objects():
    every = matrix.quick()
    for name in ("all_reduce", "reduce", "reduce_scatter"):
        kinds = {
            (case.spec.reduce_op, DTYPES[case.dtype].kind) for case in every if case.op.name == name
        }
        assert kinds >= set(product(REDUCTIONS, ("int", "float", "bool")))
    whole = [case for case in every if groups(case) is None]
    for op in (op for op in ops.REGISTRY.values() if "root" in op.takes):
        roots = {(case.world_size, case.spec.root) for case in whole if case.op is op}
        assert roots == {(n, root % n) for n in matrix.QUICK_SIZES for root in (0, 1, -1)}
    pairs = {(case.world_size, case.spec.src, case.spec.dst) for case in whole}
    assert pairs >= {(5, 0, 1), (5, 1, 2), (5, 4, 0), (2, 1, 0)}
    late = {(case.world_size, case.spec.straggler) for case in every if case.op.is_barrier}
    assert late >= {(4, 0), (4, 3), (5, 0), (5, 4), (1, None)}
    objects = {
        (case.op.name, case.spec.objects_json is None) for case in every if case.spec.objects
    }
    with_objects = [op.name for op, form in FORMS.values() if form.name == "objects"]
    assert objects == set(product(with_objects, (False, True)))


def test_every_case_is_found_by_the_world_size_in_its_id():
    names = ("reduce", "p2p")
    every = {case.id for make in (matrix.quick, matrix.full) for case in make(names=names)}
    assert every <= {case.id for n in matrix.FULL_SIZES for case in matrix.full((n,), names)}


def test_cases_have_the_same_text_in_every_process():
    """Joined worlds compare it. The order of a set of words differs between processes."""
    assert "set({" not in repr(matrix.full(sizes=(2,)))
