"""Check that one option has one value, and that every format shows a failure."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from processes import Command


@pytest.mark.parametrize("form", ["--format=JSON", "--format JSON", "--FORMAT json", "--json"])
@pytest.mark.parametrize("line", ["hello -n 0", "hello --bad", "nothing", "all-reduce --root"])
def test_every_spelling_of_the_format_gives_a_document(
    line: str, form: str, command: Command
) -> None:
    words = [*shlex.split(line)[:1], *shlex.split(form), *shlex.split(line)[1:]]
    code, out, err = command(*words)
    assert (code, err) == (2, "")
    assert json.loads(out)["command"] == shlex.split(line)[0]


def test_an_option_has_one_value_whatever_its_names(command: Command) -> None:
    for line, what in (
        ("run x.py -n 2 --nproc-per-node 3", "--world-size has different values: 2 and 3."),
        ("all-reduce -np 2 -n 3", "--world-size has different values: 2 and 3."),
        ("run x.py --no-sanitize --sanitize", "--sanitize has different values: off and calls."),
        ("ring --pattern exchange", "--pattern has different values: ring and exchange."),
        ("hello -n 2 -n x", "--world-size has different values: 2 and x."),
        ("run x.py -n 2 --nproc-per-node 2", "There is no file x.py."),
        ("all-reduce --op SUM --reduce-op sum --root", "all-reduce has no option --root"),
    ):
        code, _, err = command(*shlex.split(line))
        assert code == 2, line
        assert what in err, line


@pytest.mark.processes
@pytest.mark.parametrize("name", ["csv", "markdown", "json", "table"])
def test_every_format_shows_a_failure(name: str, command: Command) -> None:
    code, out, err = command("bench", "-n", "2", "--timeout", "0.001", "--format", name)
    assert code == 1
    assert re.search("Timed out|waiting|time limit", out + err)  # whatever the ranks were doing
    assert (out == "") == (name == "csv")
