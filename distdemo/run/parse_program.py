"""Which program ``run`` is to run: a function that every rank calls, or a file or module whole.

All of it is found by reading, before anything runs. See ``programs.user.source``.
"""

from __future__ import annotations

import ast
import difflib
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from distdemo.cli.parse import Flags
from distdemo.cli.words import END
from distdemo.errors import UsageError
from distdemo.run.find_module import find_module
from distdemo.run.records import Program
from distdemo.run.signature import converted, of_source
from distdemo.run.source import Source, is_generator, read_source

DEFAULTS = ("run", "main")
"""The functions that are called if none is named: the first of them that the file has."""
TRY = "Try distdemo run train.py, or distdemo run -m package.module."


def parse_program(flags: Flags) -> tuple[Program, bool]:
    """The program, and whether its ranks need a group made for them.

    Raises:
        UsageError: there is no such program, or it can't be run so.
    """
    given, arguments = _apart(flags["words"] or [])
    if flags["module"] is not None:
        _refuse_file_too(given, flags)
        return _of_module(flags["module"], tuple(arguments))
    if not given:
        raise UsageError("No program is given.", "run takes a file or, with -m, a module.", TRY)
    if len(given) > 1:
        raise _stray(given)
    return _of_file(given[0], tuple(arguments), whole=flags["script"])


def _apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is before the first ``--`` and what is after it."""
    given = list(words)
    if END not in given:
        return given, []
    place = given.index(END)
    return given[:place], given[place + 1 :]


def _stray(given: Sequence[str]) -> UsageError:
    return UsageError(
        f"{given[1]!r} is nothing that run knows.",
        "What is the program's own comes after --, so that nobody has to guess whose it is.",
        f"Try distdemo run {given[0]} -- {' '.join(given[1:])}",
    )


def _refuse_file_too(given: Sequence[str], flags: Flags) -> None:
    module = flags["module"]
    if given:
        raise UsageError(
            f"-m {module} and {given[0]!r}: which of them is the program?",
            "With -m it is the module; its own arguments come after --.",
            f"Try distdemo run -m {module} -- {' '.join(given)}",
        )
    if flags["script"]:
        raise UsageError(
            "--script means nothing with -m.",
            "A module runs whole unless a function of it is named.",
            "Leave out --script.",
        )


# --------------------------------------------------------------------------------------- a file


def _of_file(text: str, arguments: tuple[str, ...], *, whole: bool) -> tuple[Program, bool]:
    file, function = _file_and_function(text)
    program = Program(file, "", function, arguments)
    source = _source_of(file)
    if whole and function:
        raise UsageError(
            f"--script and {function!r} don't go together.",
            "--script runs the file whole.",
            "Leave out one of them.",
        )
    if source is None:  # an archive: Python runs its __main__
        return _without_source(program)
    if not (whole or function):
        program = replace(program, function=_default(source, file))
    if not (whole or program.function):
        _refuse_own_ranks(source, "", file)
        _refuse_idle(source, file)
    return _checked(program, source, file)


def _file_and_function(text: str) -> tuple[str, str]:
    file, colon, function = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, ""
    if not function.isidentifier():
        raise UsageError(
            f"{text}: after the colon comes the name of a function.",
            f"{function!r} is no name." if function else "There is none.",
            f"Try {file}:run, or {file} alone.",
        )
    return file, function


def _source_of(file: str) -> Source | None:
    """What the file has; None for an archive.

    Raises:
        UsageError: it is missing, can't be read, or is no Python.
    """
    path = Path(file)
    if path.is_dir():
        path = _main_of(path)
    elif not path.exists():
        raise _no_file(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return None
    if not path.is_file() or path.suffix not in (".py", ".pyw", ""):
        raise UsageError(f"{file} is no Python file.", "run takes a .py file.", TRY)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} can't be read.", f"{error.strerror}.", TRY) from None
    return read_source(text, str(path))


def _main_of(folder: Path) -> Path:
    main = folder / "__main__.py"
    if not main.is_file():
        raise UsageError(
            f"{folder} is a folder without a __main__.py.",
            "Python runs a folder by that file.",
            f"Name a file in it: {folder / 'FILE.py'}.",
        )
    return main


def _no_file(path: Path) -> UsageError:
    try:
        beside = [each.name for each in path.parent.iterdir() if each.suffix == ".py"]
    except OSError:
        return UsageError(f"There is no file {path}.", "Its folder is missing, too.", TRY)
    near = difflib.get_close_matches(path.name, beside, n=2, cutoff=0.5)
    hint = f"Did you mean {' or '.join(str(path.parent / name) for name in near)}?"
    as_module = "" if path.suffix or "." in path.name else f"Try -m {path.name} for a module."
    where = "the current folder" if str(path.parent) == "." else str(path.parent)
    return UsageError(
        f"There is no file {path}.",
        f"Python files in {where}: {', '.join(sorted(beside)[:8]) or 'none'}.",
        hint if near else as_module or TRY,
    )


# ------------------------------------------------------------------------------------- a module


def _of_module(text: str, arguments: tuple[str, ...]) -> tuple[Program, bool]:
    module, colon, function = text.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), function or "none"]) or (
        colon and not function
    ):
        raise UsageError(
            f"-m {text}: that is no module.",
            "It is a dotted name, and may have a colon and a function after it.",
            "Try -m package.module, or -m package.module:run.",
        )
    program = Program("", module, function, arguments)
    spec = find_module(module)
    if not function and spec.submodule_search_locations is not None:
        spec = find_module(f"{module}.__main__", f"{module} is a package without a __main__.")
    file = spec.origin or ""
    if not function or not file.endswith(".py") or not Path(file).is_file():
        return _without_source(program)
    return _checked(program, read_source(Path(file).read_bytes(), file), module)


# ----------------------------------------------------------------------------------- a function


def _default(source: Source, file: str) -> str:
    """The function to call if none was named; empty: the program is to run whole."""
    if source.reaches_group():
        return ""
    for name in DEFAULTS:
        node = source.functions.get(name)
        if node is None or isinstance(node, ast.AsyncFunctionDef):
            continue
        if source.calls_at_import(name):
            return ""  # else it would be called twice
        if source.reaches_group(name) and not source.takes_rank(name):
            return ""  # as torchrun starts it, by a helper that calls it
        _refuse_own_ranks(source, name, file)
        return name
    return ""


def _refuse_own_ranks(source: Source, name: str, file: str) -> None:
    line = source.starts_ranks(name)
    if not line:
        return
    candidates = source.rank_functions()
    hint = " or ".join(f"{file}:{each}" for each in candidates[:3])
    raise UsageError(
        f"{file} starts ranks of its own, in line {line}.",
        "Run whole, it would do so again on every rank.",
        f"Name the function that is for every rank: {hint or f'{file}:FUNCTION'}; or start it with "
        "python.",
    )


def _refuse_idle(source: Source, file: str) -> None:
    if source.idle:
        names = list(source.functions)
        more = ", ..." if len(names) > 8 else ""
        raise UsageError(
            f"{file} only defines functions: there is nothing to run.",
            f"It has {', '.join(names[:8])}{more}, and neither run nor main.",
            f"Name one of them: {file}:{names[0]}.",
        )


def _without_source(program: Program) -> tuple[Program, bool]:
    """A program that can't be looked into: a function of it needs a group, for all we know."""
    if program.function and program.file:
        raise UsageError(
            f"{program.file} is an archive: no function of it can be called.",
            "Python runs it whole.",
            f"Leave out :{program.function}.",
        )
    return program, bool(program.function)


def _checked(program: Program, source: Source, home: str) -> tuple[Program, bool]:
    """The program, if its function is there and can be called with its arguments."""
    name = program.function
    if not name:
        return program, False
    node = source.functions.get(name)
    if node is None and name not in source.others:
        raise _no_function(source, name, home)
    if isinstance(node, ast.AsyncFunctionDef):
        raise UsageError(
            f"{name} is async: to call it only makes a coroutine.",
            "Nobody on the rank would await it.",
            f"Write def run(): asyncio.run({name}()), and name that.",
        )
    if node is not None and is_generator(node):
        raise UsageError(
            f"{name} is a generator function: to call it runs nothing of it.",
            "It has a yield, and nobody on the rank would take what it yields.",
            f"Write def run(): return list({name}()), and name that.",
        )
    if node is not None and not getattr(node, "decorator_list", ()):
        converted(of_source(node), program.name, program.arguments)
    return program, not source.reaches_group(name)


def _no_function(source: Source, name: str, home: str) -> UsageError:
    if name in source.classes:
        return UsageError(
            f"{name} is a class.",
            "run calls a function on every rank.",
            f"Name a function of {home} that uses it.",
        )
    if not source.functions:
        return UsageError(
            f"{home} has no function {name!r}.",
            "It has no function at its top level at all.",
            f"Try distdemo run {home}",
        )
    names = list(source.functions)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or names[:1]
    return UsageError(
        f"{home} has no function {name!r}.",
        f"It has: {', '.join(names)}.",
        f"Did you mean {' or '.join(f'{home}:{each}' for each in near)}?",
    )
