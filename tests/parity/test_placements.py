"""Infer placements from values: every split of a tensor is recognised, and only the right one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sketching import sketch

from distdemo.parity.notes import Mesh, RankNotes
from distdemo.parity.placements import (
    Tolerance,
    combinations,
    explain,
    in_shape,
    meshes,
    multiple,
    named,
)
from distdemo.parity.records import Axis

TOLERANCE = Tolerance(1e-9, 1e-9)
RNG = np.random.default_rng(0)


def mesh_of(*sizes):
    axes = tuple(Axis(f"a{index}", size) for index, size in enumerate(sizes))
    return Mesh(axes, tuple(range(math.prod(sizes))))


def explained(reference, parts, mesh, *, dims=None, rows=False, scalar=False, usual=()):
    sketches = [None if part is None else sketch(part, dims) for part in parts]
    without = {*([] if rows else ["S(batch)"]), *([] if scalar else ["mean"])}
    ways = combinations(in_shape(mesh, sketches), TOLERANCE, without)
    return explain([sketch(reference, dims)], ways, TOLERANCE, usual)


def split(array, way, size):
    """Return the parts of an array along one axis of a mesh."""
    if way == "R":
        return [array] * size
    if way == "P":
        parts = [RNG.normal(size=array.shape) for _ in range(size - 1)]
        return [*parts, array - sum(parts)]
    dim = 0 if way == "S(batch)" else int(way[2:-1])
    return np.array_split(array, size, dim)


# --------------------------------------------------------------------------------- placements


@given(
    st.lists(st.sampled_from(["R", "P", "S(0)", "S(1)"]), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_a_parameter_that_is_split_along_each_axis_is_recognised(ways, seed):
    whole = np.random.default_rng(seed).normal(size=(12, 16))
    parts = [whole]
    for way in ways:
        parts = [piece for part in parts for piece in split(part, way, 2)]
    result = explained(whole, parts, mesh_of(*[2] * len(ways)))
    assert result.holds
    assert (result.placement, result.factor, result.reordered) == (tuple(ways), 1, False)


def test_rows_of_an_output_may_be_split_along_several_axes():
    whole = RNG.normal(size=(12, 5))
    parts = [whole[rank::6] for rank in range(6)]
    result = explained(whole, parts, mesh_of(2, 3), dims=[1], rows=True)
    assert result.placement == ("S(batch)", "S(batch)")


def test_a_shard_that_was_split_along_the_inner_axis_first():
    whole = RNG.normal(size=(8, 3))
    outer = [half for tp in np.split(whole, 2) for half in np.split(tp, 2)]
    parts = [outer[tp * 2 + dp] for dp in range(2) for tp in range(2)]
    result = explained(whole, parts, mesh_of(2, 2))
    assert (result.placement, result.reordered) == (("S(0)", "S(0)"), False)


def test_packed_columns_are_recognised_in_another_order():
    whole = RNG.normal(size=(12, 4))  # q, k and v of four rows each
    parts = [
        np.concatenate([whole[i : i + 2], whole[4 + i : 6 + i], whole[8 + i : 10 + i]])
        for i in (0, 2)
    ]
    result = explained(whole, parts, mesh_of(2))
    assert (result.placement, result.holds, result.reordered) == (("S(0)",), True, True)


def test_modules_on_some_ranks_only():
    whole = RNG.normal(size=(4, 3))
    parts = [None, None, whole[:2], whole[2:]]
    result = explained(whole, parts, mesh_of(2, 2), dims=[1], rows=True)
    assert result.placement == ("@1", "S(batch)")


def test_a_loss_may_be_a_mean_but_a_gradient_may_not():
    values = [np.array([1.0]), np.array([3.0])]
    assert explained(np.array([2.0]), values, mesh_of(2), scalar=True).placement == ("mean",)
    gradient = explained(np.array([2.0]), values, mesh_of(2))
    assert (gradient.placement, gradient.factor) == (("P",), 2)


def test_a_factor_is_found_in_every_placement():
    whole = RNG.normal(size=(4, 6))
    for way, factor in (("R", 4.0), ("S(1)", 0.5), ("P", 3.0)):
        result = explained(whole, [factor * part for part in split(whole, way, 2)], mesh_of(2))
        assert result.placement == (way,)
        assert math.isclose(result.factor, factor, rel_tol=1e-6)


def test_ranks_that_hold_multiples_of_one_tensor_are_not_partial():
    whole = RNG.normal(size=(4, 6))
    result = explained(whole, [0.4 * whole, 0.6 * whole], mesh_of(2))
    assert not result.holds
    assert multiple(sketch(-0.4 * whole), sketch(whole), TOLERANCE) == pytest.approx(-0.4)
    assert multiple(sketch(whole**2), sketch(whole), TOLERANCE) is None


def test_the_usual_placement_decides_between_two():
    whole = RNG.normal(size=(8, 3))
    halves = [whole[:4], whole[4:]]
    noise = RNG.normal(size=(2, 4, 3))
    both = [
        0.5 * half + sign * n for half, n in zip(halves, noise, strict=True) for sign in (1, -1)
    ]
    for usual in (("S(batch)", "R"), ("R", "S(batch)")):
        result = explained(whole, both, mesh_of(2, 2), dims=[1], rows=True, usual=usual)
        assert result.placement[usual.index("S(batch)")] == "S(batch)"
        assert "P" in result.placement


def test_other_values_are_not_explained():
    whole = RNG.normal(size=(4, 6))
    result = explained(whole, [whole, whole + 1e-6], mesh_of(2))
    assert not result.holds


# --------------------------------------------------------------------------------------- meshes


def notes_of(groups, created=(), size=4):
    return [
        RankNotes(
            rank,
            1,
            (),
            groups=tuple(group for group in groups if rank in group),
            meshes=tuple(created),
        )
        for rank in range(size)
    ]


def names(mesh):
    return [(axis.name, axis.size) for axis in mesh.axes]


def test_a_created_mesh_comes_first():
    created = Mesh((Axis("dp", 2), Axis("tp", 2)), (0, 2, 1, 3))
    assert created.lines(0) == [(0, 1), (2, 3)]
    first, *others = meshes(notes_of([(0, 1, 2, 3)], [created]))
    assert first == created
    assert [mesh.shape for mesh in others] == [(4,), (2, 2)]


def test_a_group_of_a_created_mesh_names_an_axis():
    created = Mesh((Axis("tp", 2),), (0, 1))
    first, *_ = meshes(notes_of([(0, 1), (2, 3)], [created]))
    assert names(first) == [("", 2), ("tp", 2)]


@pytest.mark.parametrize(
    ("groups", "size", "shapes"),
    [
        ([(0, 1), (2, 3)], 4, [(2, 2), (4,)]),
        ([(0, 1, 2, 3)], 4, [(4,), (2, 2)]),
        ([(1, 2), (2, 9)], 4, [(4,), (2, 2)]),
        ([], 8, [(8,), (2, 4), (4, 2), (2, 2, 2)]),
    ],
)
def test_all_factorisations_are_tried_and_those_with_groups_first(groups, size, shapes):
    assert [mesh.shape for mesh in meshes(notes_of(groups, size=size))] == shapes


def test_an_axis_without_a_name_is_named_after_what_it_splits():
    unnamed = Mesh((Axis("", 2), Axis("", 2)), (0, 1, 2, 3))
    rows = named(unnamed, ("S(batch)", "R"), [("R", "S(0)"), ("R", "R")])
    assert names(rows) == [("dp", 2), ("tp", 2)]
    stages = named(unnamed, ("@0", "S(batch)"), [("@0", "R"), ("@1", "R")])
    assert names(stages) == [("pp", 2), ("dp", 2)]
    assert names(named(unnamed, (), [])) == [("outer", 2), ("inner", 2)]
    assert names(named(mesh_of(2, 2), ("S(batch)", "R"), [])) == [("a0", 2), ("a1", 2)]
