"""Check how a user's function gets its rank, its world size and its arguments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.arguments import bind, bind_texts

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


def given(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call that was bound."""
    return call.args, call.keywords


def work(rank: int, size: int, lr: float, steps: int = 3, *rest: bool) -> None: ...


def texts(name: str, maybe: int | None = None, half=0.5, none=None) -> None: ...


def positional(rank: int, /, size: int, batch: int) -> None: ...


def named(*, rank: int = 0) -> None: ...


def reordered(*, world_size: int = 1, rank: int = 0) -> None: ...


def half_named(rank: int, *, world_size: int) -> None: ...


def named_late(batch: int, *, rank: int = 8) -> None: ...


def collected(*values: int, **more: int) -> None: ...


def typed(
    a: Optional[int],  # noqa: UP045 - as older programs write it
    b: Union[int, str],  # noqa: UP007 - as older programs write it
    c: Annotated[float, "unit"],
    d: Literal["adam", 2],
    e: Path,
    f: list[int],
    g: tuple[int, str],
    h: Sequence[float],
    i: int | None,
    j: bool,
) -> None: ...


def unknown(a: Unknown, b: int) -> None: ...


class Work:
    def __call__(self, rank: int, size: int, lr: float) -> None: ...

    def method(self, rank: int, lr: float) -> None: ...


class Built:
    def __init__(self, rank: int, lr: float) -> None: ...


def test_texts_become_the_types_of_the_parameters() -> None:
    for function, arguments, values in (
        (work, ["0.5"], (1, 4, 0.5)),
        (work, ["1", "7", "yes", "0"], (1, 4, 1.0, 7, True, False)),
        (texts, ["3", "4", "5", "6"], ("3", 4, 5.0, "6")),
        (lambda: None, [], ()),
        (lambda rank, n: None, ["x"], (1, "x")),
        (lambda size, rank: None, ["x", "y"], ("x", "y")),
        (positional, ["3"], (1, 4, 3)),
        (named_late, ["3"], (3,)),
        (collected, ["1", "2"], (1, 2)),
        (unknown, ["x", "2"], ("x", 2)),
        (Work(), ["0.5"], (1, 4, 0.5)),
        (Work().method, ["0.5"], (1, 0.5)),
        (Built, ["0.5"], (1, 0.5)),
        (max, ["3", "4"], ("3", "4")),  # a builtin without a signature
    ):
        assert given(bind_texts(function, 1, 4, arguments)) == (values, {}), function
    words = ["7", "many", "0.5", "2", "a/b", "1, 2,3", "1,x", "0.5,1", "None", "off"]
    typed_values = (7, "many", 0.5, 2, Path("a/b"), [1, 2, 3], (1, "x"), [0.5, 1.0], None, False)
    assert given(bind_texts(typed, 1, 4, words)) == (typed_values, {})


def test_a_rank_that_is_named_only_is_given_by_name() -> None:
    assert given(bind_texts(named, 1, 4, [])) == ((), {"rank": 1})
    assert given(bind(named, 1, 4, ())) == ((), {"rank": 1})
    assert given(bind(reordered, 1, 4, ())) == ((), {"rank": 1, "world_size": 4})
    assert given(bind(half_named, 1, 4, ())) == ((1,), {"world_size": 4})
    assert given(bind(named_late, 1, 4, (3,))) == ((3,), {})


def test_what_a_partial_sets_stays() -> None:
    call = bind_texts(functools.partial(work, rank=7, size=8, lr=0.1), 1, 4, [])
    assert given(call) == ((), {"rank": 7, "size": 8, "lr": 0.1})
    call = bind_texts(functools.partial(work, steps=5), 1, 4, ["0.5"])
    assert given(call) == ((1, 4, 0.5), {"steps": 5})
    call = bind_texts(functools.partial(work, 7, 8), 1, 4, ["0.5"])
    assert given(call) == ((7, 8, 0.5), {})


def test_arguments_that_do_not_fit_are_refused() -> None:
    for function, arguments, expected in (
        (work, [], "issing a required argument: 'lr'"),
        (work, ["fast"], "lr can't be 'fast'"),
        (work, ["1", "1.5"], "steps can't be '1.5'"),
        (work, ["1", "2", "maybe"], "rest can't be 'maybe'"),
        (named, ["1"], "oo many positional"),
        (collected, ["x" * 5000], "values can't be 'xxx"),
        (lambda x: None, [], "issing a required argument: 'x'"),
        (typed, ["x", *"abcdefghi"], "a can't be 'x'"),
        (typed, ["1", "2", "3", "sgd", *"abcdef"], "d can't be 'sgd'"),
    ):
        with pytest.raises(UsageError, match=expected) as caught:
            bind_texts(function, 0, 1, arguments)
        assert len(str(caught.value)) < 3000
