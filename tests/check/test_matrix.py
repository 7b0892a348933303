"""The matrix has every value of every axis, in an order of the seed's."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from matrices import every, supported

from distdemo import ops
from distdemo.backends.capabilities import form_key
from distdemo.check import matrix
from distdemo.check.matrix import Case, Setting, make_case
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec

FORMS = {(op.name, form.name) for op in ops.REGISTRY.values() for form in op.all_forms}
WHOLE, ENDS, HALVES, STRIDED = None, ((0, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3))


def groups(case: Case) -> tuple[tuple[int, ...], ...] | None:
    """Who is in which group; None: all are in one."""
    members = tuple(spec.members for spec in case.specs if spec.members is not None)
    return members or None


def tensors(cases: tuple[Case, ...]) -> list[Case]:
    return [case for case in cases if not (case.op.meets or case.spec.objects)]


# --------------------------------------------------------------------------------------- contents


def test_quick_is_some_hundred_cases_and_full_thousands() -> None:
    assert len(supported("quick")) >= 300
    assert len(supported("full")) >= 5 * len(supported("quick"))
    assert len(supported("full")) >= 5000


@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_form_is_there_with_every_world_size_that_it_makes_sense_in(name: str) -> None:
    sizes = {"quick": matrix.QUICK_SIZES, "full": matrix.FULL_SIZES}[name]
    found = {(case.op.name, case.form.name, case.world_size) for case in supported(name)}
    wanted = {
        (op.name, form.name, size)
        for op in ops.REGISTRY.values()
        for form in op.all_forms
        for size in sizes
        if size >= op.smallest_world
    }
    refused = {("all_to_all", "uneven list", size) for size in sizes}
    assert found == wanted - refused
    assert {size % 2 for _, _, size in found} == {0, 1}


@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_form_of_tensors_has_every_dtype(name: str) -> None:
    forms = {form_key(case.op, case.spec) for case in tensors(every(name))}
    assert len(forms) == len([form for op, form in FORMS if op != "barrier" and form != "objects"])
    found = {(form_key(case.op, case.spec), case.dtype) for case in tensors(every(name))}
    assert found == set(product(forms, DTYPES))
    assert {case.dtype for case in tensors(supported(name))} == set(DTYPES)


@pytest.mark.parametrize("name", ["all_reduce", "reduce", "reduce_scatter"])
def test_every_reduce_op_is_tried_on_every_kind_of_dtype(name: str) -> None:
    found = {
        (case.spec.reduce_op, DTYPES[case.dtype].kind)
        for case in every("quick")
        if case.op.name == name
    }
    assert found >= set(product(REDUCTIONS, ("int", "float", "bool")))
    passed = {case.spec.reduce_op for case in supported("quick") if case.op.name == name}
    assert passed == set(REDUCTIONS) - {"premul_sum"}


@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_form_of_tensors_has_every_shape(name: str) -> None:
    shapes: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for case in every(name):
        if case.op.meets or case.spec.objects or case.form.uneven:
            continue
        shapes.setdefault((case.op.name, case.form.name), set()).add(case.spec.shape)
    assert all(found == set(matrix.SHAPES) for found in shapes.values()), shapes


@pytest.mark.parametrize("name", ["quick", "full"])
def test_uneven_tensors_are_large_small_and_all_empty(name: str) -> None:
    uneven = [case for case in supported(name) if case.form.uneven]
    assert {case.op.name for case in uneven} == {"all_gather", "all_to_all"}
    for op in ("all_gather", "all_to_all"):
        longest = {case.spec.shape[0] for case in uneven if case.op.name == op}
        assert 0 in longest
        assert max(longest) >= 1000
        assert any(0 < length < 100 for length in longest)
    some = [case.spec.sizes for case in uneven if case.spec.sizes is not None]
    assert any(0 in sizes and any(sizes) for sizes in some), "nobody's tensor alone is empty"


@pytest.mark.parametrize("name", ["quick", "full"])
@pytest.mark.parametrize("async_op", [False, True])
def test_every_form_runs_in_every_layout_of_groups(name: str, async_op: bool) -> None:
    found: dict[tuple[str, str], set[tuple[tuple[int, ...], ...] | None]] = {}
    for case in supported(name):
        if case.world_size == 4 and (case.spec.async_op == async_op or not can_wait(case)):
            found.setdefault((case.op.name, case.form.name), set()).add(groups(case))
    assert set(found) >= {each for each in FORMS if each[0] not in ("p2p", "all_to_all")}
    for form, layouts in found.items():
        assert layouts >= {WHOLE, ENDS, HALVES, STRIDED}, form


def can_wait(case: Case) -> bool:
    """Whether this form is run both with and without a handle to wait on."""
    has = case.op.takes - case.form.lacks
    return bool(has & {"async_op", "nonblocking"}) and "async_op" not in case.form.settings


@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_form_runs_in_inference_mode_and_without(name: str) -> None:
    found = {(case.op.name, case.form.name, case.spec.inference) for case in every(name)}
    assert found == {(*form, inference) for form in FORMS for inference in (False, True)}


@pytest.mark.parametrize("name", [op.name for op in ops.REGISTRY.values() if "root" in op.takes])
def test_every_rank_is_the_root_of_some_world(name: str) -> None:
    found = {
        (case.world_size, case.spec.root)
        for case in supported("quick")
        if case.op.name == name and groups(case) is None
    }
    first_second_last = {(n, root % n) for n in matrix.QUICK_SIZES for root in (0, 1, -1)}
    assert found == first_second_last


def test_pairs_send_in_both_directions() -> None:
    found = {
        (case.world_size, case.spec.src, case.spec.dst)
        for case in supported("quick")
        if case.op.name == "p2p" and case.spec.src is not None and groups(case) is None
    }
    assert found >= {(5, 0, 1), (5, 1, 2), (5, 4, 0), (2, 1, 0)}


def test_at_a_barrier_the_first_and_the_last_rank_come_late() -> None:
    late = {
        (case.world_size, case.spec.straggler)
        for case in supported("quick")
        if case.spec.straggler is not None
    }
    assert late >= {(4, 0), (4, 3), (5, 0), (5, 4)}
    alone = [case for case in supported("quick") if case.op.meets and case.world_size == 1]
    assert alone
    assert all(case.spec.straggler is None for case in alone)


def test_objects_are_simple_and_nested() -> None:
    objects = [case for case in supported("quick") if case.spec.objects]
    assert {case.op.name for case in objects} == {op for op, form in FORMS if form == "objects"}
    assert {case.spec.objects_json is None for case in objects} == {True, False}


def test_every_pair_of_values_of_two_axes_meets_in_full() -> None:
    def axes(spec: OpSpec, case: Case) -> dict[str, object]:
        return {
            "world_size": case.world_size,
            "dtype": spec.dtype,
            "reduce_op": spec.reduce_op,
            "async": spec.async_op,
        }

    mine = [
        axes(case.spec, case)
        for case in every("full")
        if case.op.name == "all_reduce" and groups(case) is None
    ]
    seen = Counter((a, found[a], b, found[b]) for found in mine for a in found for b in found)
    for a, b in product(mine[0], mine[0]):
        values = {each[a] for each in mine}, {each[b] for each in mine}
        if a != b:
            assert all(seen[a, x, b, y] for x, y in product(*values)), (a, b)


# ---------------------------------------------------------------------------------- seed and sizes


def ids(cases: list[Case]) -> list[str]:
    return [case.id for case in cases]


def test_the_seed_makes_the_order_and_the_values() -> None:
    three, four = matrix.quick(seed=3), matrix.quick(seed=4)
    assert three == matrix.quick(seed=3)
    assert ids(three) != ids(four)
    assert sorted(ids(three)) == sorted(ids(four))
    for case in three:
        reduces = case.spec.reduce_op is not None
        assert {spec.seed for spec in case.specs} == {3 if reduces else None}


@pytest.mark.parametrize("sizes", [(1,), (2,), (3, 7), (6, 1)], ids=str)
@pytest.mark.parametrize("make", [matrix.quick, matrix.full])
def test_the_sizes_narrow_it(make: object, sizes: tuple[int, ...]) -> None:
    cases = matrix.quick(sizes=sizes) if make is matrix.quick else matrix.full(sizes=sizes)
    assert {case.world_size for case in cases} == set(sizes)
    fitting = {op.name for op in ops.REGISTRY.values() if op.smallest_world <= max(sizes)}
    assert {case.op.name for case in cases} == fitting


def test_sizes_come_from_anything_that_can_be_gone_through_once() -> None:
    assert ids(matrix.quick(sizes=iter((2, 3)))) == ids(matrix.quick(sizes=(2, 3)))
    assert ids(matrix.full(sizes=iter((1,)))) == ids(matrix.full(sizes=(1,)))


# ---------------------------------------------------------------------------------------- the probe


def test_pairs_has_each_form_with_each_dtype_and_reduce_op_once() -> None:
    usual = Counter(
        (form_key(case.op, case.spec), case.spec.reduce_op, case.dtype)
        for case in matrix.pairs()
        if case.spec.shape not in ((), (0,)) or case.op.meets or case.spec.objects
    )
    wanted: Counter[tuple[str, str | None, str]] = Counter()
    for op in ops.REGISTRY.values():
        reduce_ops = list(REDUCTIONS) if "reduce_op" in op.takes else [None]
        for form in op.all_forms:
            dtypes = ["none"] if op.meets else ["object"] if form.name == "objects" else DTYPES
            for reduce_op, dtype in product(reduce_ops, dtypes):
                wanted[f"{op.name}/{form.name}", reduce_op, dtype] += 1
    assert usual == wanted


def test_pairs_has_a_scalar_and_an_empty_tensor_of_each_form() -> None:
    found = Counter(
        (case.op.name, case.form.name, case.spec.shape)
        for case in matrix.pairs()
        if case.spec.shape in ((), (0,)) and not (case.op.meets or case.spec.objects)
    )
    wanted = Counter(
        (op.name, form.name, shape)
        for op in ops.REGISTRY.values()
        for form in op.all_forms
        for shape in (((0,),) if form.uneven else ((), (0,)))  # lengths have a dimension
        if not (op.meets or form.name == "objects")
    )
    assert found == wanted


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pairs_are_all_of_one_world_size(size: int) -> None:
    cases = matrix.pairs(size)
    assert {case.world_size for case in cases} == {size}
    assert {case.op.name for case in cases} == {
        op.name for op in ops.REGISTRY.values() if op.smallest_world <= size
    }


# ---------------------------------------------------------------------------------- single cases


@pytest.mark.parametrize(
    ("layout", "size", "members"),
    [
        ("", 3, None),
        ("ends", 3, ((0, 2),)),
        ("ends", 5, ((0, 2, 3, 4),)),
        ("halves", 6, ((0, 1, 2), (3, 4, 5))),
        ("strided", 6, ((0, 2, 4), (1, 3, 5))),
    ],
)
def test_a_layout_says_who_is_in_which_group(
    layout: str, size: int, members: tuple[tuple[int, ...], ...] | None
) -> None:
    op = ops.REGISTRY["gather"]
    case = make_case(op, op.all_forms[0], Setting(size, layout=layout, root=-1))
    assert case is not None
    assert groups(case) == members
    inside = size if members is None else len(members[0])
    assert {spec.group_size for spec in case.specs} == {inside}
    assert {spec.root for spec in case.specs} == {inside - 1}, "the last rank of its group"


@pytest.mark.parametrize(
    ("layout", "size"),
    [("ends", 2), ("halves", 2), ("halves", 5), ("strided", 3), ("strided", 1)],
)
def test_a_world_too_small_for_its_groups_makes_no_case(layout: str, size: int) -> None:
    op = ops.REGISTRY["all_reduce"]
    assert make_case(op, op.all_forms[0], Setting(size, layout=layout)) is None


def test_a_form_takes_of_a_setting_only_what_it_has() -> None:
    setting = Setting(3, "int8", "max", (3, 5), 1, async_op=True)
    op = ops.REGISTRY["broadcast"]
    objects = next(form for form in op.all_forms if form.name == "objects")
    case = make_case(op, objects, setting)
    assert case is not None
    spec = case.spec
    assert (spec.dtype, spec.shape, spec.reduce_op, spec.async_op) == ("float32", (), None, False)
    assert spec.root == 1
    tensor = make_case(op, op.all_forms[0], setting)
    assert tensor is not None
    assert tensor.spec == OpSpec("broadcast", 3, "int8", (3, 5), root=1, async_op=True)
