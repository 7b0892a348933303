"""Specs, worlds and errors from an op's options; nothing runs here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from distdemo import ops
from distdemo.backends import contract
from distdemo.cli.session import Session
from distdemo.cli.types import RankList, Shape, parse_split
from distdemo.demo.options import Straggler, options_of
from distdemo.demo.request import make_request
from distdemo.errors import UsageError
from distdemo.ops.spec import OpSpec


@pytest.fixture(autouse=True)
def _capabilities_of_a_recent_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the installed release."""
    monkeypatch.setattr(contract, "torch_version", lambda: "2.13.0")


def specs(name: str, **given: Any) -> tuple[OpSpec, ...]:
    """Return the specs of an op's command with these options."""
    op = ops.REGISTRY[name]
    return make_request(op, options_of(op)(**given), Session(name))[0]


def spec(name: str, **given: Any) -> OpSpec:
    (only,) = specs(name, **given)
    return only


FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("broadcast", {}, {"group_size": 4, "shape": (4,), "root": 0}),
    ("all_to_all", {}, {"shape": (2,), "variant": "list"}),
    ("barrier", {}, {"shape": (), "dtype": "float32"}),
    ("p2p", {}, {"group_size": 2, "src": 0, "dst": 1, "pattern": "pair"}),
    ("p2p", {"pattern": "exchange"}, {"group_size": 4, "src": None}),
    ("all_reduce", {"values": ["1,2,3,4", "5,6,7,8"], "shape": Shape((2, 2))}, {"shape": (2, 2)}),
    ("broadcast", {"values": ["7"], "root": 2}, {"values": (None, None, (7,), None)}),
    ("scatter", {"values": ["1", "2", "3"], "root": 1}, {"group_size": 3, "root": 1}),
    ("all_to_all", {"values": ["1,2,3,4", "5,6,7,8"]}, {"shape": (2,), "group_size": 2}),
    ("all_gather", {"uneven": True}, {"variant": "uneven", "sizes": (1, 2, 3, 4)}),
    ("all_gather", {"uneven": True, "values": ["1,2", "", "3"]}, {"sizes": (2, 0, 1)}),
    ("all_to_all", {"splits": [(1, 0, 2)]}, {"splits": ((1, 0, 2),) * 3, "shape": (3,)}),
    ("p2p", {"objects": True, "values": ["[1]"]}, {"objects_json": ("[1]", None)}),
    ("p2p", {"src": 1}, {"src": 1, "dst": 0}),
    ("p2p", {"pattern": "ring", "nonblocking": True}, {"pattern": "ring", "async_op": True}),
    ("barrier", {"monitored": True, "timeout": 2.0}, {"monitor_timeout_s": 1.5}),
    ("barrier", {"monitored": True, "timeout": 30.0}, {"monitor_timeout_s": 28.0}),
]


def test_options_choose_the_form() -> None:
    for name, given, expected in FORMS:
        made = spec(name, **given)
        assert {field: getattr(made, field) for field in expected} == expected, (name, given)


def test_groups_have_their_own_ranks_and_shares() -> None:
    only = spec("broadcast", group=RankList((3, 1)), root=1, values=["5"])
    assert (only.members, only.group_size, only.values) == ((1, 3), 2, (None, (5,)))
    both = specs("gather", split=parse_split("%2"), values=["0", "1", "2", "3"])
    assert [half.members for half in both] == [(0, 2), (1, 3)]
    assert [half.values for half in both] == [((0,), (2,)), ((1,), (3,))]
    late = spec("barrier", group=RankList((2, 5)), straggler=Straggler(1, 1))
    assert (late.members, late.straggler) == ((2, 5), 1)


def test_a_world_is_lazy_where_no_rank_may_wait_for_a_connection() -> None:
    def lazy(name: str, **given: Any) -> bool | None:
        op = ops.REGISTRY[name]
        return make_request(op, options_of(op)(**given), Session(name))[1].lazy

    assert lazy("all_reduce") is True
    assert lazy("p2p") is False
    assert lazy("barrier", monitored=True) is False


REFUSED: Sequence[tuple[str, dict[str, Any], str]] = [
    ("broadcast", {"root": 2, "group": RankList((1, 3))}, "--root 2: there is no such rank."),
    ("all_reduce", {"values": ["1", "2,3"]}, "--values has rows of 1 and of 2 numbers."),
    ("all_reduce", {"values": ["1", "2"], "world_size": 3}, "--values has 2 rows for 3 ranks."),
    (
        "all_reduce",
        {"values": ["1", "2"], "shape": Shape((3,))},
        "--values has 1 number for rank 0",
    ),
    ("all_reduce", {"values": ["1", "2"], "seed": 1}, "--values and --seed can't be combined."),
    ("all_reduce", {"reduce_op": "premul_sum", "factor": 3.0}, "gloo can't do all-reduce"),
    ("all_reduce", {"factor": 3.0}, "--factor requires --reduce-op premul_sum."),
    ("all_reduce", {"dtype": "int32", "reduce_op": "avg"}, "gloo can't do all-reduce --reduce-op"),
    ("all_reduce", {"group": RankList((0, 0))}, "--group 0,0: not a group."),
    ("all_reduce", {"split": parse_split("3")}, "--split 3: 4 ranks can't be split like that."),
    (
        "reduce_scatter",
        {"values": ["1,2,3", "4,5,6"]},
        "--values has 3 numbers for rank 0",
    ),
    ("scatter", {"objects": True, "async_op": True}, "--async and --objects can't be combined."),
    ("gather", {"objects": True, "values": ["{", "1"]}, "--values {: not JSON."),
    ("all_gather", {"uneven": True, "shape": Shape((2,))}, "--shape and --uneven can't be"),
    ("all_gather", {"uneven": True, "variant": "single"}, "--uneven and --variant single can't"),
    ("all_gather", {"sizes": (1, 2), "world_size": 3}, "--sizes 1,2 has 2 lengths for 3 ranks."),
    ("all_gather", {"sizes": (0, 0)}, "--sizes: all lengths are 0."),
    ("all_to_all", {"splits": [(1, 2)], "world_size": 3}, "--splits 1,2 has 2 lengths for 3"),
    ("all_to_all", {"splits": [(1, 2)] * 3, "world_size": 2}, "--splits was given 3 times for 2"),
    (
        "all_to_all",
        {"splits": [(1, 2)], "shape": Shape((4,))},
        "--shape and --splits can't be combined.",
    ),
    ("p2p", {"world_size": 1}, "--world-size 1 is too small: at least 2."),
    ("p2p", {"src": 1, "dst": 1}, "--src and --dst are both 1."),
    ("p2p", {"src": 1, "pattern": "ring"}, "--src and --dst can't be combined with"),
    ("barrier", {"monitored": True, "async_op": True}, "--async and --monitored can't be"),
    ("barrier", {"straggler": Straggler(4, 1)}, "--straggler 4: there is no such rank."),
]


def test_invalid_options_are_rejected() -> None:
    for name, given, first in REFUSED:
        with pytest.raises(UsageError) as caught:
            specs(name, **given)
        assert caught.value.what.startswith(first)
        assert caught.value.hint


def test_numbers_are_parsed() -> None:
    for text, dtype, number in (
        ("true", "bool", True),
        ("1+2j", "complex64", 1 + 2j),
        ("inf", "float32", float("inf")),
    ):
        assert spec("broadcast", values=[text], dtype=dtype).values == ((number,), None, None, None)
    for text, dtype, reason in (
        ("16777217", "float32", "represents integers exactly up to 16777216"),
        ("2", "bool", "A bool is true or false"),
        ("1j", "float64", "It is a complex number"),
        ("-1", "uint8", "range of uint8 is 0 to 255"),
    ):
        with pytest.raises(UsageError) as caught:
            spec("broadcast", values=[text], dtype=dtype)
        assert reason in caught.value.why
        assert "Try --dtype" in caught.value.hint
