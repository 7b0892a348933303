from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from asking import refused, request, spec

from distdemo import ops
from distdemo.dtypes import NAMES
from distdemo.launcher import limits
from distdemo.ops import reduction
from distdemo.ops.spec import OpSpec

# ------------------------------------------------------------------------------------ defaults


def test_the_defaults_are_four_ranks_of_four_floats() -> None:
    assert spec("all_reduce") == OpSpec("all_reduce", 4, "float32", (4,), "sum")
    assert spec("broadcast") == OpSpec("broadcast", 4, root=0)
    assert spec("all_gather") == OpSpec("all_gather", 4, variant="list")
    assert spec("reduce_scatter") == OpSpec(
        "reduce_scatter", 4, shape=(2,), reduce_op="sum", variant="list"
    )
    assert spec("all_to_all") == OpSpec("all_to_all", 4, shape=(2,), variant="list")
    assert spec("barrier") == OpSpec("barrier", 4, shape=())
    assert spec("p2p") == OpSpec("p2p", 2, src=0, dst=1, pattern="pair")


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_the_world_has_as_many_ranks_as_the_op(name: str) -> None:
    asked = request(name, world_size="3", timeout="9", format="json")
    assert [each.group_size for each in asked.specs] == [asked.world.world_size] == [3]
    assert asked.world.deadline == 9
    assert asked.world.lazy is ops.REGISTRY[name].lazy
    assert asked.view.format == "json"


def test_the_ranks_of_a_monitored_barrier_are_connected_before_it_begins() -> None:
    # On a connection yet to be made it may wait beyond its own limit.
    assert request("barrier").world.lazy is True
    assert request("barrier", monitored=True).world.lazy is False


def test_async_and_nonblocking_both_ask_for_handles() -> None:
    assert spec("all_reduce", async_op=True).async_op
    assert spec("p2p", nonblocking=True).async_op
    assert not spec("p2p").async_op


# --------------------------------------------------------------------------------- dtype, shape


@pytest.mark.parametrize("alias", [*NAMES, "torch.float32", "BF16"])
def test_every_name_of_a_dtype_is_known(alias: str) -> None:
    known = NAMES[alias.removeprefix("torch.").lower()]
    assert spec("p2p", dtype=alias).dtype == known


@pytest.mark.parametrize(
    ("text", "hint"), [("flaot32", "--dtype float32"), ("", "--dtype"), ("quaternion", "--dtype")]
)
def test_an_unknown_dtype_is_refused_with_a_near_one(text: str, hint: str) -> None:
    error = refused("all_reduce", dtype=text)
    assert repr(text) in error.what
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("4", (4,)),
        ("2,3", (2, 3)),
        ("2x3", (2, 3)),
        ("2X3", (2, 3)),
        ("(2, 3)", (2, 3)),
        ("(2,)", (2,)),
        (" 5 ", (5,)),
        ("1,1,1", (1, 1, 1)),
    ],
)
def test_a_shape_is_written_as_people_write_it(text: str, shape: tuple[int, ...]) -> None:
    assert spec("all_reduce", shape=text).shape == shape


@pytest.mark.parametrize("text", ["", "()", "0", "2,0", "-1", "a", "2.5", "2,b", "2;3", "1e3"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    error = refused("all_reduce", shape=text)
    assert "--shape" in error.what
    assert error.hint == "Try --shape 4, or --shape 2,3."


def test_tensors_that_no_machine_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_available", lambda: 2**34)
    assert "tensors" in refused("all_reduce", shape="1000000000000").what


def test_more_ranks_than_the_machine_holds_are_refused_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_available", lambda: 2**30)
    assert "can't hold 1,000,000 ranks" in refused("scatter", world_size="1000000").what


# ------------------------------------------------------------------------------ root, reduce op


def test_the_root_is_a_rank_of_the_world() -> None:
    assert spec("reduce", root="3").root == 3
    assert "--root 4" in refused("reduce", root="4").what
    assert "--root x" in refused("scatter", root="x").what


@pytest.mark.parametrize(
    "alias", [*(name for name in reduction.NAMES if name != "premul_sum"), "SUM", "Max"]
)
def test_every_name_of_a_reduce_op_is_known(alias: str) -> None:
    name = reduction.NAMES[alias.lower()]
    dtype = "int32" if name in ("band", "bor", "bxor") else "float32"
    assert spec("all_reduce", reduce_op=alias, dtype=dtype).reduce_op == name


def test_an_unknown_reduce_op_is_refused_with_a_near_one() -> None:
    assert "--reduce-op max" in refused("all_reduce", reduce_op="mux").hint
    assert "sum, product" in refused("reduce", reduce_op="").why


@pytest.mark.parametrize(
    ("name", "flags", "why"),
    [
        ("all_reduce", {"reduce_op": "avg", "dtype": "int32"}, "average"),
        ("all_reduce", {"reduce_op": "max", "dtype": "complex64"}, "complex"),
        ("all_reduce", {"reduce_op": "band"}, "whole numbers"),
        ("all_reduce", {"dtype": "int16"}, "int16"),
        ("gather", {"dtype": "complex64"}, "gather"),
        ("all_reduce", {"dtype": "bool"}, "bool"),
    ],
)
def test_what_the_backend_can_not_do_is_refused_with_the_dtypes_that_work(
    name: str, flags: Any, why: str
) -> None:
    error = refused(name, **flags)
    assert error.what.startswith("gloo can't do")
    assert why in error.why
    assert error.hint.startswith("These dtypes work: ")
    assert not error.hint.endswith(": .")


# --------------------------------------------------------------------------------------- values


def test_values_make_the_shape_and_the_world() -> None:
    asked = spec("all_reduce", values=["1,2,3", "4,5,6"])
    assert (asked.group_size, asked.shape) == (2, (3,))
    assert asked.values == ((1, 2, 3), (4, 5, 6))


def test_values_may_be_shaped() -> None:
    assert spec("all_reduce", values=["1,2,3,4", "5,6,7,8"], shape="2,2").shape == (2, 2)
    assert "--shape 3 has 3 elements" in refused("all_reduce", values=["1,2"] * 2, shape="3").what


@pytest.mark.parametrize(("name", "giver"), [("broadcast", {"root": "2"}), ("p2p", {"src": "2"})])
def test_one_row_is_the_giver_s_where_there_is_one(name: str, giver: dict[str, str]) -> None:
    asked = spec(name, values=["7,8"], world_size="3", **giver)
    assert asked.values == (None, None, (7, 8))
    assert asked.shape == (2,)


def test_one_row_leaves_the_world_as_large_as_it_is_by_default() -> None:
    assert spec("broadcast", values=["7,8"]).group_size == 4


def test_scatter_takes_a_row_for_each_piece_of_the_root_s() -> None:
    assert spec("scatter", values=["1", "2", "3"], root="1").group_size == 3
    error = refused("scatter", values=["1", "2"], world_size="3")
    assert "a piece of the root's" in error.why


@pytest.mark.parametrize(
    ("name", "flags", "named"),
    [
        ("all_reduce", {"values": ["1,2"]}, "1 row for 4 ranks"),
        ("all_reduce", {"values": ["1", "2"], "world_size": "3"}, "2 rows for 3 ranks"),
        ("broadcast", {"values": ["1", "2"], "world_size": "3"}, "2 rows for 3 ranks"),
        ("p2p", {"values": ["1"], "pattern": "ring"}, "1 row for 2 ranks"),
        ("all_reduce", {"values": ["1,2", "3"]}, "row 0 has 2 numbers, row 1 has 1 number"),
        ("all_reduce", {"values": ["1", "x"]}, "'x' is no number"),
        ("all_reduce", {"values": ["1.5", "2"], "dtype": "int32"}, "1.5 in row 0 is no int32"),
        ("all_reduce", {"values": ["300", "2"], "dtype": "uint8"}, "300 in row 0 is no uint8"),
        ("broadcast", {"values": ["300"], "dtype": "uint8"}, "300 in row 0"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, flags: Any, named: str) -> None:
    assert named in refused(name, **flags).what


def test_values_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("# a rank a line\n1 2\n\n3 4\n5 6\n")
    asked = spec("all_gather", values=[str(file)])
    assert asked.group_size == 3
    assert asked.values == ((1, 2), (3, 4), (5, 6))


# ----------------------------------------------------------------------------------------- fill


def test_fill_is_a_number_or_the_rank() -> None:
    assert spec("all_reduce", fill="1.5").fill == 1.5
    assert spec("all_reduce", fill="rank").fill == "rank"
    assert spec("p2p", fill="true", dtype="bool").fill is True
    number = spec("all_reduce", fill="nan").fill
    assert isinstance(number, float)
    assert math.isnan(number)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"fill": "much"}, "no number"),
        ({"fill": ""}, "no number"),
        ({"fill": "1.5", "dtype": "int32"}, "no int32"),
        ({"fill": "-1", "dtype": "uint8"}, "no uint8"),
        ({"fill": "rank", "dtype": "int8", "world_size": "200"}, "199 is no int8"),
        ({"fill": "1", "values": ["1", "2"]}, "don't go together"),
        ({"fill": "1e300+0j", "dtype": "complex64"}, "no complex64"),
    ],
)
def test_a_fill_that_does_not_fit_is_refused(flags: Any, named: str) -> None:
    assert named in refused("all_reduce", **flags).what


# ------------------------------------------------------------------------------- point to point


@pytest.mark.parametrize(
    ("src", "dst", "pair"),
    [
        (None, None, (0, 1)),
        ("0", None, (0, 1)),
        ("1", None, (1, 0)),
        ("2", None, (2, 1)),
        (None, "0", (1, 0)),
        (None, "1", (0, 1)),
        (None, "2", (0, 2)),
        ("2", "0", (2, 0)),
    ],
)
def test_who_is_not_named_is_the_other_one_of_0_and_1(
    src: str | None, dst: str | None, pair: tuple[int, int]
) -> None:
    asked = spec("p2p", src=src, dst=dst, world_size="3")
    assert (asked.src, asked.dst) == pair


def test_a_ring_has_no_pair() -> None:
    asked = spec("p2p", pattern="RING", world_size="3")
    assert (asked.pattern, asked.src, asked.dst) == ("ring", None, None)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"pattern": "ring", "src": "0"}, "--src and --pattern ring"),
        ({"pattern": "ring", "dst": "0"}, "--dst and --pattern ring"),
        ({"pattern": "star"}, "no pattern 'star'"),
        ({"src": "1", "dst": "1"}, "both 1"),
        ({"src": "2"}, "--src 2"),
        ({"dst": "9"}, "--dst 9"),
        ({"world_size": "1"}, "--world-size 1"),
    ],
)
def test_a_pair_that_is_none_is_refused(flags: Any, named: str) -> None:
    assert named in refused("p2p", **flags).what
