"""Errors found in the source, and names that are left to the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdemo.errors import UsageError
from distdemo.run.source import check_source, parse_program

SOURCE = """
import functools
import json
from os.path import join, sep as here

raise SystemExit("a check of the source must not run it")

limit: int = 3
names = ["a", "b"]
title = f"{limit}"
made = functools.partial(print)

if here:
    def maybe(): ...
else:
    def maybe(a): ...

try:
    import torch as other
except ImportError:
    other = 3

class Model: ...

@functools.cache
def decorated(a): ...

def outer():
    global late
    late = 3
    def inner(): ...

def twice(a): ...
def twice(): ...

def gone(): ...
del gone

def plain(rank, size, /, steps: "int | None" = 1, lr=0.1, *rest: float, key=2, **more): ...
def needs(rank, steps): ...
def only(*, key): ...
"""
DEFINED = "prog.py defines: decorated, outer, twice, gone, plain, needs, only."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prog.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


REFUSED = {
    "plaim": f"prog.py:plaim: there is no such function.\n{DEFINED}\nTry prog.py:plain.",
    "limit": f"prog.py:limit: there is no such function.\n{DEFINED}\nTry prog.py:",
    "needs": "needs(rank, steps) can't be called with [].\nMissing a required argument: 'steps'.",
    "needs 1 2": "needs(rank, steps) can't be called with ['1', '2'].\nToo many positional",
    "only": "only(*, key) can't be called with [].",
    "plain x": "steps can't be 'x'.\nThe function declares it as int.",
    "plain 1 y": "lr can't be 'y'.\nThe function declares it as float.",
    "plain 1 2 z": "rest can't be 'z'.",
}
LEFT = [
    *("made", "json", "join", "here", "maybe", "other", "Model", "decorated x", "late", "inner"),
    *("twice", "gone", "plain", "plain 1 2 3 4", "needs 1", "outer"),
]


def check(line: str) -> None:
    name, *arguments = line.split()
    for words, module in (([f"prog.py:{name}"], None), ([], f"prog:{name}")):
        check_source(parse_program([*words, "--", *arguments], module))


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_certain_is_refused(folder: Path, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(line)
    assert str(caught.value).startswith(REFUSED[line])
    assert str(caught.value).count("\n") == 2


@pytest.mark.parametrize("line", LEFT)
def test_what_the_source_does_not_decide_is_left_to_the_ranks(folder: Path, line: str) -> None:
    check(line)


@pytest.mark.parametrize(
    "more",
    [
        "from json import *",
        "globals()['missing'] = print",
        "def __getattr__(name): return print",
        "exec('missing = print')",
        "import sys; sys.modules[__name__].missing = print",
        "def set(): globals().update(missing=print, limit=print)",
    ],
)
def test_in_a_file_that_may_bind_any_name_nothing_is_certain(folder: Path, more: str) -> None:
    (folder / "prog.py").write_text(f"{SOURCE}\n{more}\n")
    for line in ("missing", "limit", "needs"):
        check(line)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"x = 1\ndef work(:\n    pass\n", "a syntax error: invalid syntax.\nLine 2: def work(:"),
        (b"def work():\n  return 1\nreturn 2\n", "'return' outside function.\nLine 3: return 2"),
        (b"work = 1\0\n", "null bytes"),
        (b"# coding: nothing\n", "unknown encoding: nothing"),
        (b"x = '\xff'\n", "codec can't decode byte 0xff"),
    ],
)
def test_a_file_that_is_no_python_is_refused(folder: Path, source: bytes, error: str) -> None:
    (folder / "prog.py").write_bytes(source)
    for words, module in (["prog.py"], None), (["prog.py:work"], None), ([], "prog"):
        with pytest.raises(UsageError) as caught:
            check_source(parse_program(words, module))
        assert error in str(caught.value)
        assert str(caught.value).count("\n") == 2


def test_another_module_of_that_name_may_be_meant(folder: Path) -> None:
    (folder / "json.py").write_text("def work(:")
    check_source(parse_program([], "json:work"))
