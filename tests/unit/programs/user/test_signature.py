"""What a function takes is found alike by reading it and by asking it."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.run.signature import bound, converted, of_function, of_source

HEADS = {
    "def f(): ...": (0, [], None, ()),
    "def f(rank): ...": (1, [], None, ()),
    "def f(rank, size): ...": (2, [], None, ()),
    "def f(rank, world_size, /): ...": (2, [], None, ()),
    "def f(size, rank): ...": (0, [("size", "", True), ("rank", "", True)], None, ()),
    "def f(rank, n): ...": (1, [("n", "", True)], None, ()),
    "def f(rank, size, lr: float, on: bool = True): ...": (
        2,
        [("lr", "float", True), ("on", "bool", False)],
        None,
        (),
    ),
    "def f(a: 'int', b: int | None = None, c: str = '3'): ...": (
        0,
        [("a", "int", True), ("b", "int", False), ("c", "", False)],
        None,
        (),
    ),
    "def f(a: Optional[float] = None, b: int | float = 1): ...": (
        0,
        [("a", "float", False), ("b", "", False)],
        None,
        (),
    ),
    "def f(a=3, b=-0.5, c=True, d='x', e=None): ...": (
        0,
        [
            ("a", "int", False),
            ("b", "float", False),
            ("c", "bool", False),
            ("d", "", False),
            ("e", "", False),
        ],
        None,
        (),
    ),
    "def f(rank, size, *more: int, **named): ...": (2, [], ("more", "int"), ()),
    "def f(rank, *, lr, mu=3): ...": (1, [], None, ("lr",)),
}


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_reading_and_asking_find_the_same(head: str, lazily: bool) -> None:
    node = ast.parse(head).body[0]
    assert isinstance(node, ast.FunctionDef)
    names: dict[str, Any] = {}
    text = "from __future__ import annotations\n" * lazily + f"from typing import Optional\n{head}"
    exec(compile(text, "heads", "exec", dont_inherit=True), names)  # noqa: S102 - a line above
    for found in (of_source(node), of_function(names["f"])):
        assert found is not None
        taken = [(each.name, each.kind, each.required) for each in found.taken]
        rest = None if found.rest is None else (found.rest.name, found.rest.kind)
        assert (found.leading, taken, rest, found.by_name) == HEADS[head]


def test_bound() -> None:
    def work(rank: int, size: int, lr: float, steps: int = 3, *rest: bool) -> None: ...

    assert bound(work, 1, 4, ["0.5"]) == (1, 4, 0.5)
    assert bound(work, 1, 4, ["1", "7", "yes", "0"]) == (1, 4, 1.0, 7, True, False)
    assert bound(lambda: None, 1, 4, []) == ()
    assert bound(lambda name: name, 1, 4, ["x"]) == ("x",)
    assert bound(print, 1, 4, ["x", "y"])[-2:] == ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "f needs 1 argument, and none was given."),
        (["1", "2", "3"], "f takes 2 arguments, and 3 were given."),
        (["fast"], "f can't take 'fast' as lr."),
        (["1", "1.5"], "f can't take '1.5' as steps."),
        (["1", "1e3"], "f can't take '1e3' as steps."),
    ],
)
def test_what_does_not_fit(arguments: list[str], expected: str) -> None:
    def f(rank: int, size: int, lr: float, steps: int = 3) -> None: ...

    signature = of_function(f)
    assert signature is not None
    with pytest.raises(UsageError) as caught:
        converted(signature, "f", arguments)
    assert caught.value.what == expected
    assert caught.value.why
    assert caught.value.hint


def test_what_no_command_line_can_give() -> None:
    def f(rank: int, *, lr: float) -> None: ...

    with pytest.raises(UsageError, match="lr by name alone"):
        bound(f, 0, 1, [])
