"""``distdemo trace`` on the command line: errors, output, files and exit codes."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

pytestmark = pytest.mark.processes
REFUSED = [
    ("trace barrier", "barrier has no algorithms."),
    ("trace all-redouce", "There is no operation 'all-redouce'."),
    ("trace -a ring,naive", "all-reduce has no algorithm 'ring,naive'."),
    ("trace --root 1", "all-reduce doesn't take --root."),
    ("trace reduce --root 9", "--root 9: there is no such rank."),
    ("trace --dtype uint16", "A schedule can't reduce uint16 by sum."),
    ("trace -n 200", "200 ranks are too many to show."),
    ("trace list -n 1", "--world-size 1: not a whole number of at least 2."),
    ("trace list --sizes 1K", "--sizes requires --world-size."),
]


@pytest.mark.usefixtures("no_rank_starts")
def test_bad_command_lines_are_rejected(command: Any) -> None:
    for line, says in REFUSED:
        code, out, err = command(*shlex.split(line))
        assert (code, out) == (2, ""), line
        assert " ".join(err.split()).startswith(says), line


NAMED = {
    "tree": "all_reduce · binary-tree",
    "bruck": "all_gather · bruck",
    "broadcast -a binomial": "broadcast · tree",
    "-a Recursive_Doubling": "all_reduce · doubling",
    "-a rabenseifner": "all_reduce · halving-doubling",
    "broadcast -a van-de-geijn": "broadcast · scatter-all-gather",
    "all-reduce -a double-binary-tree": "all_reduce · double-tree",
}
"""Other names of algorithms, and an algorithm's name in place of the operation's."""


def test_other_names_of_algorithms_are_understood(command: Any) -> None:
    for line, title in NAMED.items():
        code, out, err = command("trace", *line.split(), "-n", "2")
        assert (code, out.startswith(title), len(err.splitlines())) == (0, True, 1), line
    code, out, err = command("trace", "reduce", "-a", "rabenseifner", "-n", "2")
    assert (code, out.startswith("reduce · rabenseifner"), err) == (0, True, "")


def test_a_run_is_a_json_document(command: Any) -> None:
    code, out, _ = command("trace", "-n", "3", "--format", "json")
    document = json.loads(out)
    assert (code, document["command"], document["ok"]) == (0, "trace", True)
    assert document["counts"] == document["by_formula"]
    assert document["counts"]["total_bytes"] == 48
    message = {"src": 0, "dst": 1, "chunks": [0], "elements": 1}
    assert document["rounds"][0]["transfers"][0] == message | {"reduce": True}
    assert document["errors"] == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("all-to-all -n 3 -q", "Verified: 9 elements on 3 ranks right"),
        ("reduce -n 2 --reduce-op max --shape 3,2 -q", "Verified: 6 elements"),
        ("--animate -n 2", "Round 1 of 2"),  # no terminal: all rounds are printed
        ("list broadcast -n 1000000", "broadcast · 1,000,000 ranks"),
    ],
)
def test_the_output_states_the_result(command: Any, line: str, says: str) -> None:
    code, out, err = command("trace", *shlex.split(line))
    assert (code, err) == (0, "")
    assert says in " ".join(out.split())
