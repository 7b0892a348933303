"""Errors found in the source before a rank starts, and names that are left to the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdemo.cli.program import check_source, parse_program, uncalled_functions
from distdemo.errors import UsageError

SOURCE = """
raise SystemExit("a check of the source must not run it")

def plain(rank, size): ...
async def waits(rank): ...
made = print
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prog.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(words: list[str], module: str | None = None) -> None:
    check_source(parse_program(words, module))


def test_a_missing_function_is_refused_with_those_that_exist(folder: Path) -> None:
    for words, module in (["prog.py:plaim"], None), ([], "prog:plaim"):
        with pytest.raises(UsageError) as caught:
            check(words, module)
        first, defined, hint = str(caught.value).splitlines()
        assert first.endswith(":plaim: there is no such function.")
        assert defined.endswith(" defines: plain, waits.")
        assert hint.endswith(":plain.")
    for name in ("plain", "waits", "made"):
        check([f"prog.py:{name}"])


UNCALLED = {
    "@mark(1)\ndef a(x=len('')): ...\nclass B:\n    c = len('')\nasync def d(): a()\nE = 1": [
        "a",
        "d",
    ],
    "def a(): ...\na()\n": [],
    "def a(): ...\nif __name__ == '__main__':\n    a()\n": [],
    "x = 1": [],
    "def a(:": [],
}


def test_a_file_that_calls_none_of_its_functions(folder: Path) -> None:
    for source, functions in UNCALLED.items():
        (folder / "prog.py").write_text(source)
        assert uncalled_functions(parse_program(["prog.py"], None)) == functions, source
    assert uncalled_functions(parse_program([], "json")) == []


def test_a_source_that_may_bind_any_name_is_left_to_the_ranks(folder: Path) -> None:
    (folder / "prog.py").write_text(f"{SOURCE}\nfrom json import *\n")
    check(["prog.py:missing"])


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
            check(words, module)
        assert error in str(caught.value)
        assert str(caught.value).count("\n") == 2
