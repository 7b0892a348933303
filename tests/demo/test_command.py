"""The op commands, ``hello``, ``ops`` and ``explain`` on the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields

import pytest

from distdemo import ops
from distdemo.cli.options import WorldOptions
from distdemo.demo.command import DrawingOptions
from distdemo.demo.options import compose, options_of

pytestmark = pytest.mark.processes


def document(command, *words):
    code, out, err = command(*words, "--format", "json")
    return code, json.loads(out), err


def after(report):
    """Return the result of every rank: the numbers of its pieces."""
    return [rank.get("after", []) for rank in report["ranks"]]


RUNS = [
    ("allreduce -n 2 --reduce-op prod --values 1,2 --values 3,4", [[[3, 8]]] * 2),
    ("broadcast -n 2 --src 1 --shape 1", [[[10]]] * 2),
    ("all-to-all -n 2 --splits 1,0 --splits 0,2", [[[0], []], [[], [10, 11]]]),
    ("isend --shape 1", [[[0]], [[0]]]),
    ("barrier -n 2 --straggler 1:0.05 --monitored", [[], []]),
    ("gather -n 2 --objects --values '{\"a\": [1]}' --values '\"ü\"'", [[{"a": [1]}, "ü"], []]),
    ("all-reduce -n 4 --group 1,2 --shape 1", [[[0]], [[30]], [[30]], [[30]]]),
]


@pytest.mark.parametrize(("line", "expected"), RUNS)
def test_an_operation_runs_and_is_verified(command, line, expected):
    code, report, err = document(command, *shlex.split(line), "--timeout", "300")
    assert (code, report["ok"]) == (0, True), (report["errors"], err)
    assert after(report) == expected


def test_quiet_prints_only_the_verdict_and_a_file_gets_the_rest(command, tmp_path):
    file = tmp_path / "out.json"
    code, out, err = command("scatter", "-n", "2", "-q", "-o", str(file))
    assert (code, err) == (0, "")
    assert out == "✓ Verified: 8 elements match plain arithmetic exactly.\n"
    assert json.loads(file.read_text())["command"] == "scatter"


def test_explain_draws_first(command):
    code, out, _ = command("broadcast", "-n", "2", "--explain")
    assert code == 0
    assert out.index("Mistake") < out.index("Verified:")
    assert "dist.init_process_group" in command("explain", "broadcast", "--code")[1]


def test_every_operation_is_explained_and_listed(command):
    _, listed, err = document(command, "ops")
    assert listed["command"] == "explain"
    assert err == ""
    assert {entry["command"] for entry in listed["ops"]} == {
        op.command for op in ops.REGISTRY.values()
    }
    for name in ops.REGISTRY:
        code, explanation, _ = document(command, "explain", name)
        assert (code, explanation["op"]["name"]) == (0, name)


DRAWN = [
    ("isend", "p2p --nonblocking", "p2p --nonblocking · 0 to 1 · 2 ranks"),
    ("ring", "p2p --pattern ring", "p2p --pattern ring · 4 ranks"),
    ("all_gather_into_tensor", "all-gather --variant single", "all_gather --variant single ·"),
    ("allgatherv", "all-gather --uneven", "all_gather --uneven ·"),
    ("Gather_Object", "gather --objects", "gather --objects ·"),
    ("all_reduce", "", "all_reduce · sum"),
]


def test_the_form_that_a_name_means_is_drawn_and_said(command):
    for typed, meaning, title in DRAWN:
        code, out, err = command("explain", typed)
        assert (code, err) == (0, f"{typed}: {meaning}\n" if meaning else ""), typed
        assert out.startswith(title)
        assert command("explain", typed, "--quiet")[2] == ""


OPTIONS = [
    ("p2p --nonblocking", "p2p --nonblocking · 0 to 1 · 2 ranks", "dist.isend/irecv"),
    ("isend --pattern ring -n 3", "p2p --pattern ring --nonblocking · 3 ranks", "dist.isend/irecv"),
    ("--pattern ring p2p", "p2p --pattern ring · 4 ranks", "dist.send/recv"),
    ("all-gather --sizes 2,0", "all_gather --uneven · 2 ranks · float32\n", "Padding: "),
    ("barrier --monitored", "barrier --monitored · 4 ranks", "dist.monitored_barrier"),
    ("barrier --async", "barrier · async · 4 ranks", "dist.barrier(async_op=True)"),
    ("-n 3 scatter --root 2", "scatter · root 2 · 3 ranks", "──┴──▶"),
    ("reduce --group 1,3 --op max", "reduce · max · root 0 of its group · group 1, 3", "[30 31"),
    ("all-reduce --values 5 --values 6", "all_reduce · sum · 2 ranks · float32[1]", "[11]"),
    ("reduce-scatter --variant single --async --dtype f16 --shape 1", "reduce_scatter", "(..., as"),
]


def test_an_operation_is_drawn_with_its_options(command):
    for line, title, text in OPTIONS:
        code, out, _ = command("explain", *line.split())
        assert code == 0, line
        assert out.startswith(title)
        assert text in out


def test_a_drawing_takes_the_options_that_change_the_call():
    runs = {field.name for field in fields(WorldOptions)} - {"world_size"}
    for op in ops.REGISTRY.values():
        names = {option.name for option in fields(options_of(op))}
        drawn = {option.name for option in fields(compose(op, DrawingOptions))}
        assert drawn == names - runs - {"explain", "straggler"} | {"code"}


def test_details_are_printed_with_verbose(command):
    shown = command("hello", "-n", "2")[1] + command("scatter", "-n", "2")[1]
    more = command("hello", "-n", "2", "-v")[1] + command("scatter", "-n", "2", "--verbose")[1]
    for detail in ("Started by", "Last to start", " Time │"):
        assert detail not in shown
        assert detail in more


REFUSED = [
    ("all-reduce --root 1", "distdemo all-reduce has no option --root."),
    ("all-reduce -n 0", "--world-size 0: not a whole number of at least 1."),
    ("all-reduce -n 4 --group 0,9", "--group 9: there is no such rank."),
    ("all-gather --sizes 1,x", "--sizes 1,x: these are not lengths of at least 0."),
    ("barrier --straggler 1", "--straggler 1: that is not RANK:SECONDS."),
    ("explain all-reduse", "There is no operation 'all-reduse'."),
    ("explain scatter --root 4", "--root 4: there is no such rank."),
    ("explain p2p -n 1", "--world-size 1 is too small: at least 2."),
    ("explain p2p --nonblocking --code", "--code can't be combined with --nonblocking."),
    ("explain all-reduce --op avg --dtype i8", "No backend can do all-reduce of int8 by avg."),
    ("explain scatter --backend mpi", "distdemo explain scatter has no option --backend."),
]


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_command_lines_are_rejected(command):
    for line, first in REFUSED:
        code, out, err = command(*line.split())
        assert (code, out, err.splitlines()[0]) == (2, "", first)


def test_a_failed_world_is_reported(command):
    line = ("barrier", "-n", "2", "--straggler", "1:60", "--timeout", "1")
    code, report, _ = document(command, *line)
    assert code == 1
    assert "ranks" not in report
    assert report["errors"][0]["what"]


def test_an_operation_has_exactly_its_declared_options():
    for op in ops.REGISTRY.values():
        names = {option.name for option in fields(options_of(op))}
        assert op.takes <= names
        assert ("dtype" in names) == (not op.is_barrier)
        assert ("root" in names) == ("root" in op.takes)
