"""Check that every number and list on a command line has a bound, for every option."""

from __future__ import annotations

import json
import resource
import shlex
import time
from contextlib import suppress

import pytest
import typer
from processes import Command

from distdemo.cli.app import typer_command
from distdemo.cli.commands import COMMANDS
from distdemo.demo.options import read_numbers
from distdemo.errors import MAX_LINE, UsageError

PARSER_ERROR = typer.BadParameter.__mro__[2]  # base class of the parser's errors
HUGE = "9" * 400
HOSTILE = (
    HUGE,
    "9" * 5000,
    "-" + HUGE,
    "3000000000",
    "0-3000000000",
    ",".join(["0-999999"] * 1000),
    ",".join([HUGE] * 50),
    f"0:{HUGE}",
    f"{HUGE}:1",
    f"{HUGE}G",
    "nan",
    "inf",
    "-0",
    "1e309",
    "1,nan",
    "",
    "x" * 60_000,
    "x" * 200 + "," * 20_000,
    "\u0663",
)
MAX_KIB = 200_000
"""Growth of this process by all values of an option; a single huge range would take more."""


def options() -> dict[tuple[str, str], str]:
    """Return the options that take a value, by flag and help, and a command that has each.

    An option of several commands is declared once, so it is tested once.
    """
    return {
        (param.opts[0], param.help): name
        for name in COMMANDS
        for param in typer_command(name).params
        if param.param_type_name == "option" and not getattr(param, "is_flag", False)
    }


def test_each_option_bounds_its_value() -> None:
    for (flag, _), name in options().items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        for text in HOSTILE:
            # anything else than the parser's own errors fails the test
            with suppress(UsageError, PARSER_ERROR):
                typer_command(name).make_context(name, [f"{flag}={text}"])
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_KIB, (name, flag)
        assert time.process_time() - began < 60, (name, flag)


@pytest.mark.parametrize(
    "line",
    [
        "all-reduce --group 0-3000000000",
        f"all-reduce -n {HUGE}",
        f"all-reduce --values {HUGE}",
        f"all-reduce --values {HUGE} --dtype complex64",
        f"all-reduce --values {HUGE} --dtype int64",
        f"broadcast --root {HUGE}",
        f"barrier --straggler {HUGE}:1",
        f"all-reduce --shape {HUGE}",
        f"all-reduce --shape {'9' * 15},{'9' * 15}",
        f"all-gather --sizes {'9' * 18}",
        f"bench --sizes {HUGE}",
        f"bench -e {HUGE}G",
        f"bench fit x.json --predict {HUGE}",
        f"trace -n {HUGE}",
        f"trace -n {'9' * 5}",
        f"check -n {HUGE}",
        f"hello --timeout {HUGE}",
        f"hello {'x' * 60_000}",
        f"hello --{'x' * 60_000}",
        f"{'x' * 60_000}",
        f"explain {'x' * 60_000}",
        f"run {'x' * 60_000}",
        f"bench {'x' * 60_000}",
        f"trace --algorithm {'x' * 60_000}",
    ],
    ids=lambda line: line[:40],
)
def test_a_huge_value_is_refused_in_three_lines(line: str, command: Command) -> None:
    began = time.process_time()
    code, out, err = command(*shlex.split(line), "--json")
    assert (code, err) == (2, "")
    (error,) = json.loads(out)["errors"]
    assert error["what"]
    assert error["why"] or error["hint"]
    assert all(len(text) <= MAX_LINE for text in error.values())
    assert time.process_time() - began < 60


def test_numbers_that_no_tensor_holds_are_refused() -> None:
    for dtype in ("float32", "float64", "complex64", "int64", "uint8", "bool"):
        with pytest.raises(UsageError, match="is not a number of"):
            read_numbers([HUGE], dtype)
    assert read_numbers(["1" + "0" * 30], "float32") == [(1e30,)]
    assert read_numbers(["3,1e400"], "float64") == [(3, float("inf"))]
