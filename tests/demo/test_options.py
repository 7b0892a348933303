"""Specs, worlds and errors from an op's options; nothing runs here."""

from __future__ import annotations

from typing import Any

import pytest

from distdemo import ops
from distdemo.backends import contract
from distdemo.cli.session import Session
from distdemo.cli.types import Numbers
from distdemo.demo.options import Straggler, make_request, options_of
from distdemo.errors import UsageError
from distdemo.ops.spec import OpSpec


@pytest.fixture(autouse=True)
def _capabilities_of_a_recent_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the installed release."""
    monkeypatch.setattr(contract, "torch_version", lambda: "2.13.0")


def spec(name: str, **given: Any) -> OpSpec:
    """Return the spec of an op's command with these options."""
    op = ops.REGISTRY[name]
    return make_request(op, options_of(op)(**given), Session(name))[0]


FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("all_to_all", {}, {"shape": (2,), "variant": "list"}),
    ("p2p", {}, {"group_size": 2, "src": 0, "dst": 1, "pattern": "pair"}),
    ("p2p", {"pattern": "exchange"}, {"group_size": 4, "src": None}),
    ("all_reduce", {"values": ["1,2,3,4", "5,6,7,8"], "shape": Numbers((2, 2))}, {"shape": (2, 2)}),
    ("broadcast", {"values": ["7"], "root": 2}, {"values": (None, None, (7,), None)}),
    ("scatter", {"values": ["1", "2", "3"], "root": 1}, {"group_size": 3, "root": 1}),
    ("all_gather", {"uneven": True}, {"variant": "uneven", "sizes": (1, 2, 3, 4)}),
    ("all_gather", {"sizes": (2, 0), "values": ["1,2", ""]}, {"values": ((1, 2), ())}),
    ("all_to_all", {"splits": [(1, 0, 2)], "world_size": 3}, {"splits": ((1, 0, 2),) * 3}),
    ("p2p", {"objects": True, "values": ["[1]"]}, {"objects_json": ("[1]", None)}),
    ("p2p", {"pattern": "ring", "nonblocking": True}, {"pattern": "ring", "async_op": True}),
    ("barrier", {"monitored": True, "timeout": 2.0}, {"monitor_timeout_s": 1.5}),
    ("broadcast", {"group": Numbers((3, 1)), "root": 1}, {"members": (1, 3), "group_size": 2}),
    ("barrier", {"group": Numbers((2, 3)), "straggler": Straggler(1, 1)}, {"straggler": 1}),
    (
        "broadcast",
        {"values": ["1+2j"], "dtype": "complex64", "world_size": 1},
        {"values": ((1 + 2j,),)},
    ),
]


def test_options_choose_the_form() -> None:
    for name, given, expected in FORMS:
        made = spec(name, **given)
        assert {field: getattr(made, field) for field in expected} == expected, (name, given)


def test_a_world_is_lazy_where_no_rank_may_wait_for_a_connection() -> None:
    def lazy(name: str, **given: Any) -> bool | None:
        op = ops.REGISTRY[name]
        return make_request(op, options_of(op)(**given), Session(name))[1].lazy

    assert lazy("all_reduce") is True
    assert lazy("p2p") is False
    assert lazy("barrier", monitored=True) is False


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("broadcast", {"root": 2, "group": Numbers((1, 3))}, "--root 2: there is no such rank."),
    ("all_reduce", {"values": ["1", "2,3"]}, "--values has 1 number for rank 0, which needs 2."),
    ("all_reduce", {"values": ["1", "2"], "world_size": 3}, "--values has 2 items for 3 ranks."),
    (
        "all_reduce",
        {"values": ["1", "2"], "shape": Numbers((3,))},
        "--values has 1 number for rank",
    ),
    ("all_reduce", {"dtype": "int32", "reduce_op": "avg"}, "gloo can't do all-reduce --reduce-op"),
    ("all_reduce", {"group": Numbers((0, 0))}, "--group 0,0: not a group."),
    ("reduce_scatter", {"values": ["1,2,3", "4,5,6"]}, "--values has 3 numbers for rank 0"),
    ("scatter", {"objects": True, "async_op": True}, "--async and --objects can't be combined."),
    ("gather", {"objects": True, "values": ["{", "1"]}, "--values {: not JSON."),
    ("all_gather", {"uneven": True, "shape": Numbers((2,))}, "--shape and --uneven can't be"),
    ("all_gather", {"sizes": (1, 2), "world_size": 3}, "--sizes has 2 items for 3 ranks."),
    ("all_to_all", {"splits": [(1, 2)] * 3, "world_size": 2}, "--splits has 3 items for 2 ranks."),
    ("p2p", {"world_size": 1}, "--world-size 1 is too small: at least 2."),
    ("p2p", {"src": 1, "dst": 1}, "--src and --dst are both 1."),
    ("barrier", {"straggler": Straggler(4, 1)}, "--straggler 4: there is no such rank."),
    ("broadcast", {"values": ["2"], "dtype": "bool"}, "--values 2: '2' is not a number of bool."),
]


def test_invalid_options_are_rejected() -> None:
    for name, given, first in REFUSED:
        with pytest.raises(UsageError) as caught:
            spec(name, **given)
        assert caught.value.what.startswith(first)
        assert caught.value.hint
