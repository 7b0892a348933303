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
    ("trace -a ringg", "all-reduce has no algorithm 'ringg'."),
    ("trace -a ring,naive", "all-reduce has no algorithm 'ring,naive'."),
    ("trace --sizes 1K,2K", "--sizes: one at a time."),
    ("trace --sizes 10", "--sizes 10: this is not a whole number of float32 elements."),
    ("trace all-gather --sizes 4", "--sizes 4: this is not a whole number of float32 elements."),
    ("trace --sizes 1K --shape 3", "--sizes and --shape can't be combined."),
    ("trace --sizes 1K --values 1", "--sizes and --values can't be combined."),
    ("trace --values 1 --values 2 --seed 0 -n 2", "--values and --seed can't be combined."),
    ("trace --values 1 --values 2 -n 3", "--values has 2 rows of 1 numbers for 3 ranks."),
    ("trace --chunks 4", "all-reduce's ring doesn't take --chunks."),
    ("trace broadcast --chunks 0", "--chunks 0: the minimum is 1."),
    ("trace broadcast --reduce-op max", "broadcast doesn't take --reduce-op."),
    ("trace --root 1", "all-reduce doesn't take --root."),
    ("trace reduce --root 9", "--root 9: there is no such rank."),
    ("trace --factor 3", "--factor requires --reduce-op premul_sum."),
    ("trace --dtype uint16", "A schedule can't reduce uint16 by sum."),
    ("trace --output x.xml", "--output x.xml: unknown suffix."),
    ("trace all-to-all -n 200", "199 rounds with 40,000 chunks are too many to show."),
    ("trace list -n 1", "--world-size 1: the minimum is 2."),
    ("trace list --sizes 1K", "--sizes requires --world-size."),
    ("trace list -n 8 --fit no.json", "no.json can't be read."),
    ("trace list all-redouce", "There is no operation 'all-redouce'."),
]


@pytest.mark.usefixtures("no_rank_starts")
def test_bad_command_lines_are_rejected(command: Any) -> None:
    for line, says in REFUSED:
        code, out, err = command(*shlex.split(line))
        assert (code, out) == (2, ""), line
        assert " ".join(err.split()).startswith(says), line
        assert len(err.strip().split("\n")) >= 2, line


def test_a_run_is_a_json_document(command: Any) -> None:
    code, out, _ = command("trace", "-n", "3", "--format", "json")
    found = json.loads(out)
    assert (code, found["schema_version"], found["command"], found["ok"]) == (0, 3, "trace", True)
    assert found["counts"]["total_bytes"] == sum(found["handed_bytes"]) == 48
    first = found["rounds"][0]
    assert set(first["moments"][0]) == {"began_s", "posted_s", "arrived_s", "ended_s"}
    message = {"src": 0, "dst": 1, "chunks": [0], "elements": 1}
    assert first["transfers"][0] == message | {"reduce": True}
    assert found["errors"] == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("all-to-all -n 3 -q", "Verified: 9 elements on 3 ranks right"),
        ("reduce -n 2 --reduce-op max --values 1,2 --values 3,4 -q", "Verified: 2 elements"),
        ("broadcast -a chain --chunks 3 --root 2 -q", "Verified: 12 elements"),
        ("--animate -n 2", "Round 1 of 2"),  # no terminal: all rounds are printed
        ("list reduce", "Pješivac-Grbović"),
        ("list broadcast -n 1000000000", "broadcast · 1,000,000,000 ranks"),
    ],
)
def test_the_output_states_the_result(command: Any, line: str, says: str) -> None:
    code, out, err = command("trace", *shlex.split(line))
    assert (code, err) == (0, "")
    assert says in " ".join(out.split())
