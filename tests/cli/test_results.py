"""What the commands must show, run as a user does: whole processes, documents and tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from helpers import commanded, document, running

from distdemo import ops

ROWS = {
    "reduce of ones": (
        ["reduce", "--fill", "1", "--shape", "1"],
        [[4], "undefined", "undefined", "undefined"],
    ),
    "all_reduce of ones": (["all-reduce", "--fill", "1", "--shape", "1"], [[4]] * 4),
    "scatter": (
        ["scatter", *["--values", "1", "--values", "2", "--values", "3", "--values", "4"]],
        [[1], [2], [3], [4]],
    ),
    "gather": (
        ["gather", "--fill", "rank", "--shape", "1"],
        [[[0], [1], [2], [3]], None, None, None],
    ),
    "all_gather": (["all-gather", "--fill", "rank", "--shape", "1"], [[[0], [1], [2], [3]]] * 4),
    "broadcast": (["broadcast", "--values", "42"], [[42]] * 4),
    "all_reduce of two": (
        ["all-reduce", "-n", "2", "--values", "1,2,3", "--values", "4,5,6"],
        [[5, 7, 9]] * 2,
    ),
    "p2p": (["p2p", "--values", "1"], [[1], [1]]),
    "p2p, not blocking": (["p2p", "--nonblocking", "--values", "1"], [[1], [1]]),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_table_of_results(name, command):
    arguments, after = ROWS[name]
    code, out, err = command(*arguments, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["ok"] is True
    assert [rank["after"] for rank in found["ranks"]] == after
    for rank in found["ranks"]:
        assert {"rank", "before", "after", "expected", "verified", "seconds"} <= rank.keys()
        assert rank["verified"] in ((True,) if rank["checked"] else (None,))


def test_the_command_as_a_process_says_nothing_else():
    found = document("all-reduce", "-n", "2")
    assert found["ok"] is True
    assert found["world"]["start_method"] == "fork"


def test_the_module_and_the_script_are_the_same_command():
    script = [sys.executable, "-m", "distdemo", "ops"]
    assert subprocess.run(script, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "op",
    [
        "broadcast",
        "reduce",
        "all-reduce",
        "scatter",
        "gather",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
    ],
)
def test_one_rank_is_the_identity(op, command):
    code, out, _ = command(op, "-n", "1", "--shape", "4", "--format", "json")
    (rank,) = json.loads(out)["ranks"]
    assert code == 0
    lists = ("scatter", "reduce-scatter", "all-to-all")
    before = rank["before"][0] if op in lists else rank["before"]
    after = rank["after"][0] if op in ("gather", "all-gather", "all-to-all") else rank["after"]
    assert before == after == [0, 1, 2, 3]


@pytest.mark.parametrize("nonblocking", [[], ["--nonblocking"]], ids=["blocking", "nonblocking"])
def test_a_large_ring_of_five(nonblocking, command):
    code, out, _ = command("p2p", "--pattern", "ring", "-n", "5", "--shape", "500000", *nonblocking)
    assert code == 0
    assert "Verified: 2,500,000 elements" in out
    assert "irecv, then isend" in " ".join(out.split()) if nonblocking else "Even ranks send" in out


def test_a_table_is_readable_at_80_columns_on_a_pipe(tmp_path):
    with commanded(["all-gather"], tmp_path) as run:
        code, out, _ = run.finish()
    assert code == 0
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    for row in ("[0 1 2 3]", "[30 31 32 33]", "rank 3", "exact", "Verified"):
        assert row in out.replace("\u00a0", " ")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_without_unicode_gets_a_plain_table(encoding, tmp_path):
    settings = {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    lines = ("scatter --shape 100", "explain all-reduce", "ops", "--help", "all-reduce -n x")
    for number, line in enumerate(lines):
        arguments = line.split()
        started = commanded(arguments, tmp_path, env=settings, encoding=encoding)
        if number == 1:  # a Python of its own, which takes the settings as it starts
            whole = ["-m", "distdemo", *arguments]
            started = running(whole, tmp_path, env=settings, encoding=encoding)
        with started as run:
            code, out, err = run.finish()
        assert code == (2 if line.endswith("x") else 0), err
        assert out + err
        assert "Traceback" not in err


def test_64_ranks_are_summed_up(command):
    code, out, _ = command("all-reduce", "-n", "64")
    assert code == 0
    assert "56 ranks more" in " ".join(out.split())
    assert len(out.splitlines()) < 60


def test_chosen_ranks_are_shown(command):
    _, out, _ = command("all-reduce", "-n", "20", "--ranks", "5,7-8")
    shown = re.findall(r"^│ +(\d+) │", out, flags=re.MULTILINE)
    assert shown == ["5", "7", "8"]


def test_a_million_elements_show_their_ends(command):
    code, out, _ = command("broadcast", "-n", "2", "--shape", "1000000")
    assert code == 0
    assert "999999" in out
    assert len(out) < 3000


def test_quiet_prints_the_verdict_alone(command):
    code, out, err = command("all-reduce", "-n", "2", "--quiet")
    assert code == 0
    assert out.splitlines() == ["✓ Verified: 8 elements match plain arithmetic exactly."]
    assert err == ""


def test_explain_comes_before_the_run(command):
    code, out, _ = command("reduce", "-n", "2", "--explain")
    assert code == 0
    assert out.index("Mistake") < out.index("Verified:")
    _, out, _ = command("reduce", "-n", "2", "--explain", "--format", "json")
    assert json.loads(out)["explanation"]["mistake"]


def test_values_come_from_a_file_and_set_the_world_size(command, tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("# three ranks\n1, 2\n3, 4\n\n5, 6\n")
    code, out, _ = command("all-reduce", "--values", str(file), "--format", "json")
    assert code == 0
    assert [rank["after"] for rank in json.loads(out)["ranks"]] == [[9, 12]] * 3


def test_values_come_from_standard_input(tmp_path):
    values = tmp_path / "values"
    values.write_text("7\n8\n")
    with (
        values.open() as stdin,
        commanded(["scatter", "--values", "-", "--format", "json"], tmp_path, stdin=stdin) as run,
    ):
        code, out, err = run.finish()
    assert (code, err) == (0, "")
    assert [rank["after"] for rank in json.loads(out)["ranks"]] == [[7], [8]]


@pytest.mark.parametrize(
    ("dtype", "reduce_op", "values", "after"),
    [
        ("float32", "avg", "1,2 2,3 4,5", [7 / 3, 10 / 3]),
        ("float16", "product", "2,3 4,5 6,7", [48, 105]),
        ("int64", "bxor", "12,5 10,3 1,1", [7, 7]),
        ("uint8", "sum", "200,1 100,1 0,1", [44, 3]),
        ("bool", "max", "0,1 0,0 0,1", [False, True]),
        ("float64", "sum", "nan,1 1,2 1,inf", ["NaN", "Infinity"]),
        ("complex64", "sum", "1+2j,1 1,2 1,-1j", ["3+2j", "3-1j"]),
    ],
)
def test_dtypes_and_reduce_ops(dtype, reduce_op, values, after, command):
    rows = [word for row in values.split() for word in ("--values", row)]
    code, out, _ = command(
        "all-reduce", "--dtype", dtype, "--reduce-op", reduce_op, *rows, "--format", "json"
    )
    assert code == 0
    for rank in json.loads(out)["ranks"]:
        same = rank["after"] == after
        assert same or rank["after"] == pytest.approx(after, rel=1e-6)


def test_hello_introduces_every_rank(command):
    code, out, _ = command("hello", "-n", "3", "--format", "json")
    found = json.loads(out)
    assert (code, found["ok"]) == (0, True)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2]
    assert len({rank["pid"] for rank in found["ranks"]}) == 3
    assert {rank["heard_from"] for rank in found["ranks"]} == {3}
    _, out, _ = command("hello", "-n", "2")
    assert "heard from all" in out


def test_ops_lists_every_operation(command):
    code, out, _ = command("ops", "--format", "json")
    assert code == 0
    listed = {entry["command"] for entry in json.loads(out)["ops"]}
    assert listed == {op.command for op in ops.REGISTRY.values()}
    forms = [form for op in ops.REGISTRY.values() for form in op.all_forms]
    assert len(json.loads(out)["ops"]) == len(forms)


@pytest.mark.parametrize("op", ops.REGISTRY)
def test_explain_draws_each_op(op, command):
    code, out, _ = command("explain", op)
    assert code == 0
    for word in ("before", "after", "Call", "Used to", "Mistake", "rank 0"):
        assert word in out
    assert ("Costs" in out) == (op != "barrier")
    code, out, _ = command("explain", op, "--format", "json")
    assert json.loads(out)["moves"]


def test_torchs_own_spelling_of_a_command_works(command):
    assert command("all_reduce", "-n", "2", "-q")[0] == 0
