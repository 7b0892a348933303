"""The op commands, ``hello``, ``ops`` and ``explain`` on the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields, replace
from typing import Any, cast

import pytest
import typer
from strategies import right_over_gloo

from distdemo import ops
from distdemo.check import matrix
from distdemo.cli.app import typer_command
from distdemo.cli.arguments import normalize_argv
from distdemo.cli.contract import Result
from distdemo.cli.runner import runnable
from distdemo.cli.session import Session
from distdemo.demo.command import command_of
from distdemo.demo.options import OpOptions, options_of
from distdemo.demo.request import make_request
from distdemo.ops.contract import Op


def document(command, *words):
    code, out, err = command(*words, "--format", "json")
    return code, json.loads(out), err


def after(found):
    """Return each rank's result: the numbers of each piece."""
    return [rank.get("after", []) for rank in found["ranks"]]


RUNS = [
    ("allreduce -n 2 --reduce-op prod --values 1,2 --values 3,4", [[[3, 8]]] * 2),
    ("broadcast -n 2 --src 1 --shape 1", [[[10]]] * 2),
    ("reduce -n 2 --dst 1 --shape 1", [[], [[10]]]),
    ("scatter -n 2 --shape 2", [[[0, 1]], [[10, 11]]]),
    ("gather -n 2 --shape 1 --root 1", [[], [[0], [10]]]),
    ("all-gather -n 2 --sizes 2,0", [[[0, 1], []]] * 2),
    ("reduce-scatter -n 2 --shape 1 --variant single --async", [[[10]], [[12]]]),
    ("all-to-all -n 2 --splits 1,0 --splits 0,2", [[[0], []], [[], [10, 11]]]),
    ("isend --shape 1", [[[0]], [[0]]]),
    ("barrier -n 2 --straggler 1:0.05 --monitored", [[], []]),
    ("gather -n 2 --objects --values '{\"a\": [1]}' --values '\"ü\"'", [[{"a": [1]}, "ü"], []]),
    ("all-reduce -n 4 --split 2 --shape 1", [[[10]], [[10]], [[50]], [[50]]]),
]


@pytest.mark.parametrize(("line", "expected"), RUNS)
def test_an_operation_runs_and_is_verified(command, line, expected):
    code, found, err = document(command, *shlex.split(line))
    assert code == 0, (found["errors"], err)
    assert found["ok"]
    assert found["schema_version"] == 3
    assert after(found) == expected


def test_a_rank_outside_the_group_has_no_group(command):
    _, found, _ = document(command, "broadcast", "-n", "3", "--group", "1,2")
    places = [(each.get("group", 0), each.get("group_rank")) for each in found["ranks"]]
    assert places == [(None, None), (0, 0), (0, 1)]


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


def test_every_rank_of_hello_introduces_itself(command):
    code, found, _ = document(command, "hello", "-n", "3")
    assert code == 0
    assert [each["rank"] for each in found["ranks"]] == [0, 1, 2]
    assert {each["heard_from"] for each in found["ranks"]} == {3}
    assert len({each["pid"] for each in found["ranks"]}) == 3


def test_every_operation_is_explained_and_listed(command):
    _, listed, _ = document(command, "ops")
    for name, op in ops.REGISTRY.items():
        code, found, _ = document(command, "explain", name)
        assert code == 0
        assert found["op"]["name"] == name
        assert op.command in {each["command"] for each in listed["ops"]}


REFUSED = [
    ("all-reduce --root 1", "all-reduce has no option --root."),
    ("scatter --reduce-op max", "scatter has no option --reduce-op."),
    ("all-reduce --reduce-op maxx", "--reduce-op maxx: there is no such choice."),
    ("all-reduce --dtype float31", "--dtype float31: there is no such choice."),
    ("all-reduce --shape 0", "--shape 0: not a shape."),
    ("all-reduce -n 0", "--world-size 0: the minimum is 1."),
    ("all-reduce -n 4 --group 0,9", "--group 9: there is no such rank."),
    ("all-reduce --split x", "--split x: not a way to split a world."),
    ("all-reduce --ranks 0,7", "--ranks 7: there is no such rank."),
    ("all-gather --sizes 1,x", "--sizes 1,x: these are not lengths."),
    ("all-gather --splits 1", "all-gather has no option --splits."),
    ("barrier --straggler 1", "--straggler 1: that is not RANK:SECONDS."),
    ("all-reduce --reduce-op premul_sum --factor nan", "--factor nan: out of range."),
    ("explain all-reduse", "There is no operation 'all-reduse'."),
    ("explain all-reduce --root 1", "all-reduce has no option --root."),
    ("explain scatter --code -n 3", "--code and --world-size can't be combined."),
    ("explain barrier --dtype int8", "barrier has no option --dtype."),
]


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_command_lines_are_rejected(command):
    for line, first in REFUSED:
        code, out, err = command(*line.split())
        assert (code, out, err.splitlines()[0]) == (2, "", first)


def test_a_failed_world_is_reported(command):
    line = ("barrier", "-n", "2", "--straggler", "1:60", "--timeout", "1")
    code, found, _ = document(command, *line)
    assert code == 1
    assert "ranks" not in found
    assert found["errors"][0]["what"]


def test_each_operation_has_exactly_its_declared_options():
    for op in ops.REGISTRY.values():
        names = {option.name for option in fields(options_of(op))}
        assert op.takes <= names
        assert ("dtype" in names) == (not op.is_barrier)
        assert ("root" in names) == ("root" in op.takes)


# ------------------------------------------------------------------------- cases of check


@pytest.fixture(scope="module")
def specs_of() -> Any:
    """Return a function from a command line to its specs."""
    seen = []
    app = typer.Typer()

    def add(op: Op) -> None:
        def run(session: Session, options: OpOptions) -> Result:
            seen.append(make_request(op, options, session)[0])
            raise typer.Exit

        asked = cast("Any", run)
        asked.info = cast("Any", command_of(op)).info
        asked.__annotations__["options"] = options_of(op)
        app.command(op.command)(runnable(op.command, asked))

    for op in ops.REGISTRY.values():
        add(op)
    names = [op.command for op in ops.REGISTRY.values()]
    group = typer.main.get_command(app)

    def make(line: str) -> Any:
        argv = normalize_argv(shlex.split(line)[1:], names, typer_command)
        group.main(args=argv, prog_name="distdemo", standalone_mode=False)
        return seen[-1]

    return make


def normalized(spec):
    """Return the spec without fields that don't change what runs."""
    given = spec.objects_json
    return replace(
        spec,
        objects_json=given and tuple(json.dumps(json.loads(each or "null")) for each in given),
        monitor_timeout_s=0,
        variant=None if spec.objects else spec.variant,
        shape=() if spec.sizes is not None else spec.shape,
    )


def test_a_case_of_check_equals_the_specs_of_its_command_line(specs_of):
    cases = [*matrix.quick(seed=5), *matrix.full(seed=5, names=("reduce_scatter", "p2p"))[:40]]
    lines = {case.command("gloo"): case for case in cases[:200] + cases[-40:]}
    checked = set()
    for line, case in lines.items():
        if "check --case" not in line and right_over_gloo(case.op, case.spec):
            assert [*map(normalized, specs_of(line))] == [*map(normalized, case.specs)], line
            checked.add(case.op.name)
    assert checked == set(ops.REGISTRY)
