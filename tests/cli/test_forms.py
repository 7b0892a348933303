"""Groups, uneven tensors, objects and barriers, as a user asks for them: as a table and as JSON."""

from __future__ import annotations

import json
import re
import shlex

import pytest


@pytest.fixture
def table(command):
    """The table of a command line that has to succeed."""

    def shown(line):
        code, out, err = command(*shlex.split(line))
        assert (code, err) == (0, ""), out + err
        assert max(map(len, out.splitlines())) <= 80
        return out

    return shown


@pytest.fixture
def document(command):
    """The document of a command line that has to succeed."""

    def written(line):
        code, out, err = command(*shlex.split(line), "--format", "json")
        assert (code, err) == (0, ""), out + err
        found = json.loads(out)
        assert found["ok"] is True
        return found

    return written


def held(found, name="after"):
    return [rank[name] for rank in found["ranks"]]


# --------------------------------------------------------------------------------------- groups


def test_a_group_of_two_and_its_root(table, document):
    line = "gather --group 1,3 --root 1 --shape 1"
    found = document(line)
    assert held(found) == [[0], None, [20], [[10], [30]]]
    assert [rank["group_rank"] for rank in found["ranks"]] == [None, 0, None, 1]
    assert [rank["takes_part"] for rank in found["ranks"]] == [False, True, False, True]
    assert (found["groups"], found["spec"]["group"]) == ([[1, 3]], [1, 3])
    assert found["world"]["world_size"] == 4
    text = table(line)
    assert "root 1 of the group, rank 3 of the world" in " ".join(text.split())
    assert text.count("✓ as was") == 2
    assert "Ranks outside the group make no call" in text


@pytest.mark.parametrize(
    ("split", "groups", "sums"),
    [
        ("2", [[0, 1], [2, 3]], [1, 1, 5, 5]),
        ("%2", [[0, 2], [1, 3]], [2, 4, 2, 4]),
        ("/4", [[0, 1, 2, 3]], [6, 6, 6, 6]),
    ],
)
def test_a_split_runs_its_groups_at_once(split, groups, sums, document):
    found = document(f"all-reduce --split {split} --fill rank --shape 1")
    assert found["groups"] == groups
    assert held(found) == [[number] for number in sums]


def test_the_groups_of_a_split_have_letters(table):
    text = table("all-reduce --split 2")
    assert "2 groups of 2 ranks" in text
    assert "A is ranks 0,1; B is ranks 2,3" in text
    assert [name in text for name in ("A 0", "A 1", "B 0", "B 1")] == [True] * 4


def test_a_ring_and_an_exchange_run_in_groups_too(document):
    ring = document("p2p --pattern ring --group 0,2,3 --nonblocking --shape 1")
    assert held(ring) == [[30], [10], [0], [20]]
    both = document("p2p --pattern exchange --split 2 -n 4 --shape 1")
    assert held(both) == [[[10]], [[0]], [[30]], [[20]]]


# --------------------------------------------------------------------------------------- uneven


def test_tensors_of_the_sizes_3_0_7(table, document):
    line = "all-gather --uneven --sizes 3,0,7"
    found = document(line)
    assert held(found) == [[[0, 1, 2], [], [20, 21, 22, 23, 24, 25, 26]]] * 3
    assert held(found, "before")[1] == []
    assert found["spec"]["form"] == "uneven"
    assert [step["step"] for step in found["ranks"][0]["steps"]] == [
        "all_gather the sizes",
        "pad to the largest",
        "all_gather",
        "trim",
    ]
    assert "44 of 84 bytes (52%)" in found["notes"][0]
    text = table(line)
    assert "lengths 3,0,7" in text
    assert "Step by step" in text
    assert "30 elements match" in text


def test_values_of_unequal_length(document):
    found = document("all-gather --uneven --values 1,2 --values '' --values 3")
    assert held(found) == [[[1, 2], [], [3]]] * 3


def test_parts_of_unequal_length_some_of_them_empty(table, document):
    line = "all-to-all --splits 1,0,2 --splits 0,0,0 --splits 2,2,2"
    assert held(document(line)) == [[0, 20, 21], [22, 23], [1, 2, 24, 25]]
    assert "uneven" in table(line)


@pytest.mark.parametrize("variant", ["list", "single"])
def test_pieces_for_each_rank_as_a_list_or_one_tensor(variant, document):
    rows = "--values 1,2,3,4 --values 5,6,7,8"
    swapped = held(document(f"all-to-all --variant {variant} {rows}"))
    parts = [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    whole = [[1, 2, 5, 6], [3, 4, 7, 8]]
    assert swapped == (parts if variant == "list" else whole)
    reduced = held(document(f"reduce-scatter --variant {variant} {rows}"))
    assert reduced == [[6, 8], [10, 12]]


# -------------------------------------------------------------------------------------- objects

NESTED = """{"a": [1, {"b": null}], "u": "\u96ea"}"""


def test_nested_and_unequal_objects(table, document):
    line = f"all-gather --objects --values '{NESTED}' --values '[]' --values '\"{'x' * 300}\"'"
    found = document(line)
    things = [json.loads(NESTED), [], "x" * 300]
    assert held(found) == [things] * 3
    assert held(found, "before") == things
    sizes = [rank["pickled_bytes"] for rank in found["ranks"]]
    assert len({size for (size,) in sizes}) == 3
    text = table(line)
    assert "9 objects came as they were sent" in text
    assert "Pickle" in text


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("broadcast --objects --root 1 -n 3 --values '{\"a\": 1}'", [{"a": 1}] * 3),
        ("scatter --objects --values 1 --values '[2]'", [1, [2]]),
        ("gather --objects --root 1 --values 1 --values '[2]'", [None, [1, [2]]]),
        ("p2p --objects --values '{\"a\": [null]}'", [{"a": [None]}] * 2),
    ],
)
def test_objects_in_every_op_that_takes_them(line, after, document):
    assert held(document(line)) == after


def test_objects_come_from_a_file(document, tmp_path):
    file = tmp_path / "objects"
    file.write_text('{"rank": 0}\n# the other\n"text"\n')
    assert held(document(f"all-gather --objects --values {file}")) == [[{"rank": 0}, "text"]] * 2


# -------------------------------------------------------------------------------------- barriers


def test_a_barrier_waits_for_its_straggler(table, document):
    line = "barrier --straggler 1:0.2"
    came = [rank["attendance"] for rank in document(line)["ranks"]]
    last = max(each["arrived_seconds"] for each in came)
    assert all(each["left_seconds"] >= last for each in came)
    assert {each["had_come"] for each in came} == {4}
    text = table(line)
    assert text.count("✓ all had come") == 4
    assert re.search(r"Last to come: rank \d, [\d.]+ (ms|s) after the first", text)


def test_a_monitored_barrier(table, document):
    found = document("barrier --monitored")
    assert found["spec"]["calls"] == "monitored_barrier"
    assert [rank["verified"] for rank in found["ranks"]] == [True] * 4
    assert "monitored" in table("barrier --monitored").splitlines()[0]


def test_a_barrier_without_waiting_for_the_handle_at_once(document):
    for rank in document("barrier --async -n 3")["ranks"]:
        assert rank["wait_seconds"] is not None


# ------------------------------------------------------------------------------ the rest of them


def test_a_seed_mixes_the_values(document):
    def before(seed):
        return held(document(f"all-reduce -n 2 --seed {seed}"), "before")

    assert before(1) == before(1) != before(2)


def test_a_fill_works_in_every_width(document):
    for dtype in ("float64", "int64", "complex128"):
        found = document(f"all-to-all -n 2 --dtype {dtype} --fill 1")
        assert [rank["wrong"] for rank in found["ranks"]] == [0, 0]


def test_inference_mode_is_told(table):
    assert "inference mode" in table("all-gather -n 2 --inference-mode --variant single")


@pytest.mark.parametrize("columns", ["20", "40"])
@pytest.mark.parametrize(
    "line",
    ["all-gather -n 3 --shape 1", "all-to-all --splits 1,1", "scatter --group 0,2 --shape 1"],
)
def test_a_narrow_terminal_shows_every_rank_s_values(columns, line, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = command(*shlex.split(line))
    assert code == 0
    assert max(map(len, out.splitlines())) <= int(columns)
    _, out_json, _ = command(*shlex.split(line), "--format", "json")
    for rank in json.loads(out_json)["ranks"]:
        _, _, own = out.partition(f"Rank {rank['rank']}\n")
        own = own.partition("\nRank ")[0]
        for number in re.findall(r"(\d+)\.0", str(rank["after"])):
            assert re.search(rf"\b{number}\b", own)
