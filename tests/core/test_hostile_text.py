"""Check that text from outside takes linear time, up to the bound of `distdemo.text`."""

from __future__ import annotations

import ast
import importlib
import multiprocessing
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import distdemo
from distdemo.encoding import decode
from distdemo.launcher.records import Raised
from distdemo.text import MAX_CHARS, cut
from distdemo.view.blocks import Block, Facts, Paragraph, show_blocks, to_markdown
from distdemo.view.console import Signs, in_memory
from distdemo.view.foreign import line_of, lines_of, one_line
from distdemo.view.tables import Column, Grid

if sys.version_info >= (3, 11):
    from re import _parser as sre_parse  # type: ignore[attr-defined]  # it has no public name
else:
    import sre_parse

PACKAGE = Path(distdemo.__file__).parent
CPU_S = 60
"""Processor time within which a pattern is done with all texts. A quadratic one takes minutes."""
ANCHORED = ("match", "fullmatch")
METHODS = (*ANCHORED, "search", "sub", "subn", "split", "findall", "finditer")
REPEATED = ("x", "1", " ", "\n", "_", "/", "[", '"', "\x1b", "é", "─", "a b ", " \n")
SHOWN = ("x", "\n", "\x1b[", "－", "a = b ")
"""Texts whose repetition is hostile to patterns of some kind: one of each class of characters."""
MAX_LINES = MAX_CHARS // 2  # of a view: each line is padded to 80 columns


# ------------------------------------------------------------------------------------ the patterns


@cache
def modules() -> dict[str, ast.Module]:
    """Return the package's modules that use patterns, with their syntax trees."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text("utf-8")
        if re.search(r"^\s*import re$", text, re.MULTILINE):
            name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = ast.parse(text)
    return found


def members(value: Any) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a module's constant."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from members([*value, *value.values()])
    elif isinstance(value, tuple | list):
        for member in value:
            yield from members(member)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of functions of ``re``, and of methods with their names."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield node


def written_in(name: str) -> dict[str, tuple[re.Pattern[str], str]]:
    """Return the patterns that calls in a module contain, each with the method that it is for."""
    module = importlib.import_module(name)
    found = {}
    for call in calls(modules()[name]):
        assert isinstance(call.func, ast.Attribute)
        if not (isinstance(call.func.value, ast.Name) and call.func.value.id == "re"):
            continue
        flags = [word.value for word in call.keywords if word.arg == "flags"]
        if call.func.attr not in ("sub", "subn", "split"):
            flags += call.args[2:]
        nodes = [call.args[0], *flags]
        codes = [compile(ast.Expression(node), name, "eval") for node in nodes]
        try:
            pattern, *values = (eval(code, vars(module)) for code in codes)  # noqa: S307 - ours
        except NameError:
            sys.exit(f"{name}, line {call.lineno}: compile the pattern in the module")
        found[f"{name}:{call.lineno}"] = re.compile(pattern, *values), call.func.attr
    return found


def patterns() -> dict[str, tuple[re.Pattern[str], set[str]]]:
    """Return every pattern of the package by its place, with the methods it is used with."""
    methods: dict[str, set[str]] = {}
    for tree in modules().values():
        for call in calls(tree):
            assert isinstance(call.func, ast.Attribute)
            methods.setdefault(ast.unparse(call.func.value), set()).add(call.func.attr)
    found = {}
    for name in modules():
        for constant, value in vars(importlib.import_module(name)).items():
            used = methods.get(constant) or set(METHODS)
            for pattern in members(value):
                found[f"{name}.{constant} {pattern.pattern}"] = pattern, used
        for place, (pattern, method) in written_in(name).items():
            found[place] = pattern, {method}
    return found


# --------------------------------------------------------------------------------------- the texts


def sample(parts: Any) -> str:
    """Return a text that a part of a parsed pattern matches, more or less."""
    text = ""
    for kind, value in parts:
        name = str(kind)
        if name == "LITERAL":
            text += chr(value)
        elif name in ("ANY", "NOT_LITERAL"):
            text += "x"
        elif name == "IN":
            text += one_of(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            text += sample(value[2]) * max(1, min(value[0], 3))
        elif name == "SUBPATTERN":
            text += sample(value[-1])
        elif name == "ATOMIC_GROUP":
            text += sample(value)
        elif name == "BRANCH":
            text += sample(value[1][0])
    return text


def one_of(choices: Any) -> str:
    """Return a character of a set."""
    kind, value = choices[0]
    name = str(kind)
    if name == "NEGATE":
        return "x"
    if name == "RANGE":
        return chr(value[0])
    if name == "CATEGORY":
        return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(value), "x")
    return chr(value)


def beginnings(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what a pattern matches before each of its repetitions, and one that is repeated."""
    for index, (kind, value) in enumerate(parts):
        begun = before + sample(parts[:index])
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield begun, sample(value[2])
            yield from beginnings(value[2], begun)
        elif name == "SUBPATTERN":
            yield from beginnings(value[-1], begun)
        elif name == "BRANCH":
            for branch in value[1]:
                yield begun + sample(branch), ""
                yield from beginnings(branch, begun)


def hostile(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield texts of the largest size that nearly match again and again."""
    tree: Any = sre_parse.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    whole = sample(tree)
    pieces = {*REPEATED, whole, whole[:-1], whole + "x", whole + "\n"}
    for begun, unit in beginnings(list(tree)):
        pieces |= {begun, begun + unit}
        yield begun + long(unit) + "\0"
    yield from (long(piece) for piece in sorted(pieces))


def long(piece: str) -> str:
    """Return the largest text that repeats a piece."""
    return (piece * (MAX_CHARS // len(piece)))[:MAX_CHARS] if piece else ""


# ----------------------------------------------------------------------------------------- the test


def within_processor_time(work: Callable[[Connection], None]) -> None:
    """Run a function in a child process, which names what it does; fail if one takes too long."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=work, args=(sending,))
    child.start()
    sending.close()
    doing = "start"
    try:
        while True:
            doing = receiving.recv()
    except EOFError:
        child.join()
    assert child.exitcode != -signal.SIGXCPU, f"{doing} took over {CPU_S} s of processor time"
    assert child.exitcode == 0, doing


def begin(name: str, progress: Connection) -> None:
    """Name what comes next, and give it its processor time."""
    progress.send(name)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def search_all(progress: Connection) -> None:
    """Search every pattern in every hostile text."""
    warnings.simplefilter("ignore")  # of imports
    every = patterns()
    assert len(every) > 60
    pattern: Any
    for place, (pattern, used) in every.items():
        begin(place, progress)
        is_text = isinstance(pattern.pattern, str)
        for hostile_text in hostile(pattern):
            text = hostile_text if is_text else hostile_text.encode("latin-1", "replace")
            for method in used & set(ANCHORED):
                getattr(pattern, method)(text)
            if not used <= set(ANCHORED):
                pattern.sub("" if is_text else b"", text)


def show_all(progress: Connection) -> None:
    """Show hostile texts in each kind of block, on a console and as Markdown."""
    for piece in SHOWN:
        text = long(piece)[: MAX_LINES if piece == "\n" else MAX_CHARS]
        styled = Text(text, style="bold")
        styled.stylize("red", 3, MAX_CHARS // 2)
        grid = Grid([Column("a", folds=True), Column("b", folds=True)])
        grid.rows.append([text, styled])
        blocks: list[Block] = [Paragraph(text), Paragraph(styled, verbatim=True)]
        blocks += [Facts((("a", text),)), grid]
        for block in blocks:
            begin(f"{type(block).__name__} of {piece!r}", progress)
            show_blocks(in_memory(80), [block])
            to_markdown([block], Signs())
    for piece in REPEATED:
        text = long(piece)
        begin(f"a line of {piece!r}", progress)
        one_line(text)
        line_of(text)
        lines_of(text)


@pytest.mark.timeout(1200)  # a busy machine
@pytest.mark.processes
def test_every_pattern_is_linear() -> None:
    within_processor_time(search_all)


@pytest.mark.timeout(1200)  # a busy machine
@pytest.mark.processes
def test_every_view_is_linear() -> None:
    within_processor_time(show_all)


def test_text_from_outside_is_cut_or_refused() -> None:
    for length in (0, 1, MAX_CHARS, MAX_CHARS + 1, 5 * MAX_CHARS):
        text = cut("x" * length)
        assert len(text) == length if length <= MAX_CHARS else len(text) <= MAX_CHARS
        assert ("left out" in text) == (length > MAX_CHARS)
    message = {"kind": "raised", "rank": 0, "at": 1.0, "type": "Error", "traceback": ""}
    assert decode(Raised, {**message, "message": "x" * MAX_CHARS}).rank == 0
    with pytest.raises(ValueError, match="the limit is 200,000"):
        decode(Raised, {**message, "message": "x" * (MAX_CHARS + 1)})
