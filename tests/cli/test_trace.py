"""``distdemo trace`` as a user runs it: one run, spoiled ones, several, on paper, and the list."""

from __future__ import annotations

import json

import pytest
from recordings import SIZES, document, one_row, one_series, written

from distdemo.bench.models import find
from distdemo.trace import algorithms, trace_options

OPS = [name.replace("_", "-") for name in algorithms.ops()]


@pytest.fixture
def ring_file(tmp_path):
    """A file of bench whose times are a ring's: α is 30 µs, β 0.5 ns."""
    way = find("all_reduce", "ring")
    rows = [one_row(size, way.seconds(4, size, 30e-6, 0.5e-9), seed=1) for size in SIZES]
    series = one_series(rows, group_size=4, world_size=4)
    return written(tmp_path / "bench.json", document(series))


# ----------------------------------------------------------------------------------------- one run


def test_every_round_is_shown_within_80_columns(command):
    code, out, err = command("trace")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert [f"Round {number} of 6" in out for number in range(1, 7)] == [True] * 6
    assert "\x1b" not in out


@pytest.mark.parametrize("op", OPS)
def test_every_op_runs_and_its_verdict_can_be_had_alone(op, command):
    code, out, err = command("trace", op, "-n", "3", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("✓ Verified")


def test_an_element_a_chunk_unless_a_size_is_asked_for(command):
    line = ("trace", "broadcast", "-a", "chain", "-n", "3", "--format", "json")
    code, out, _ = command(*line, "--chunks", "5", "--root", "1")
    assert code == 0
    found = json.loads(out)
    assert (found["spec"]["shape"], found["spec"]["root"], len(found["rounds"])) == ([5], 1, 6)
    assert json.loads(command(*line, "--size", "1K")[1])["spec"]["shape"] == [256]


def test_a_size_is_cut_down_to_whole_parts_with_a_note(command):
    code, out, _ = command("trace", "scatter", "-n", "3", "--size", "100", "--format", "json")
    found = json.loads(out)
    assert (code, found["spec"]["shape"]) == (0, [8])
    assert "a multiple of 12 bytes" in " ".join(found["notes"])


def test_the_users_own_values_are_traced(command):
    code, out, _ = command("trace", "--values", "1,2", "--values", "30,40", "-a", "naive")
    assert code == 0
    assert "2 ranks" in out
    assert "31 42" in out


def test_an_animation_without_a_terminal_prints_the_rounds(command):
    plain, played = command("trace", "-n", "2"), command("trace", "-n", "2", "--animate")
    assert played[0] == 0
    assert "Round 2 of 2" in played[1]
    assert len(played[1].splitlines()) == len(plain[1].splitlines())


def test_the_files_have_all_of_it(command, tmp_path):
    page, text = tmp_path / "trace.html", tmp_path / "trace.txt"
    line = ("--html", str(page), "--output", str(text), "--quiet")
    assert command("trace", "-n", "3", *line)[0] == 0
    assert "<script" in page.read_text(encoding="utf-8")
    assert "Round 4 of 4" in text.read_text(encoding="utf-8")


# ----------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("fault", ["drop", "twice", "neighbour", "drop:5", "twice:2:1"])
def test_a_spoiled_message_is_noticed_and_told_everywhere(fault, command, tmp_path):
    page, data = tmp_path / "trace.html", tmp_path / "trace.json"
    files = ("--html", str(page), "--output", str(data))
    code, out, err = command("trace", "--spoil", fault, *files)
    assert (code, err) == (1, "")
    found = json.loads(data.read_text(encoding="utf-8"))
    assert found["ok"] is False
    assert found["errors"]
    first = found["wrong_chunks"][0]
    assert f"rank {first['rank']}, chunk {first['chunk']}" in out
    assert "Wrong: " in out.splitlines()[-1]
    assert page.is_file()


def test_a_sum_without_a_zero_is_not_the_fault_that_is_made(command):
    """Rank 0's first number is 0: the numbers would be right, although its message is missing."""
    found = json.loads(command("trace", "--spoil", "drop", "--format", "json")[1])
    assert found["spec"]["fault"]["src"] != 0
    assert any(each["wrong"] for each in found["ranks"])


@pytest.mark.parametrize("way", [(), ("--quiet",)])
def test_a_verdict_says_so_where_all_numbers_are_right_by_chance(way, command):
    code, out, _ = command("trace", "--spoil", "drop:1:0", *way)
    words = "all numbers are right by chance, but contributions are missing."
    assert (code, words in " ".join(out.split())) == (1, True)
    assert " 0 of " not in out


def test_where_nothing_is_sent_no_other_formula_is_told(command):
    assert "Also in print" in command("trace", "-n", "2")[1]
    assert "Also in print" not in command("trace", "-n", "1")[1]


def test_a_world_that_fails_leaves_a_document_and_no_file(command, tmp_path):
    page = tmp_path / "trace.html"
    line = ("--timeout", "0.001", "--html", str(page), "--format", "json")
    code, out, _ = command("trace", *line)
    found = json.loads(out)
    assert (code, found["ok"], page.exists()) == (1, False, False)
    assert "Timed out" in found["errors"][0]["what"]


# ----------------------------------------------------------------------------------------- several


def test_algorithms_are_compared_with_the_backends_own(command, tmp_path):
    pytest.importorskip("matplotlib")
    picture, text = tmp_path / "compared.svg", tmp_path / "compared.txt"
    files = ("--plot", str(picture), "--output", str(text))
    line = ("-n", "2", "-a", "ring,doubling", "--size", "64,1K", "--budget", "0.05", *files)
    code, out, err = command("trace", "--compare", *line, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["ok"], len(found["sizes"])) == (True, 2)
    assert (found["world"]["timeout"], found["world"]["start_method"] != "auto") == (30, True)
    assert found["link"]["lone"]["alpha_seconds"] <= found["link"]["together"]["alpha_seconds"]
    assert "doubling" in text.read_text(encoding="utf-8")
    assert picture.read_bytes().lstrip().startswith(b"<?xml")


def test_paper_takes_the_link_from_a_file_of_bench(ring_file, command):
    line = ("--simulate", "-n", "1000", "--size", "1M", "--fit", ring_file)
    code, out, err = command("trace", *line, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["link"]["alpha_seconds"] == pytest.approx(30e-6, rel=0.05)
    assert found["link"]["beta_seconds_per_byte"] == pytest.approx(0.5e-9, rel=0.05)
    code, out, _ = command("trace", "broadcast", *line)
    assert code == 0
    assert "SIMULATION" in out
    assert "fitted to" in " ".join(out.split())


def test_a_simulated_page_and_one_size_of_it(command, tmp_path):
    page = tmp_path / "paper.html"
    line = ("gather", "--simulate", "-a", "tree", "-n", "5", "--root", "2", "--html", str(page))
    code, out, err = command("trace", *line)
    assert (code, err) == (0, "")
    assert out.count("gather · ") == 1
    assert "<script" in page.read_text(encoding="utf-8")


def test_without_a_link_paper_counts_and_says_how_to_get_times(command):
    code, out, err = command("trace", "all-to-all", "--simulate")
    assert (code, err) == (0, "")
    assert "--alpha and --beta" in " ".join(out.split())


def test_the_list_names_every_algorithm_once(command):
    code, out, err = command("trace", "--list", "--format", "json")
    assert (code, err) == (0, "")
    listed = [(each["op"], each["name"]) for each in json.loads(out)["algorithms"]]
    assert listed == [(each.op, each.name) for each in algorithms.REGISTRY]
    assert "pairwise" not in command("trace", "--list", "all_gather")[1]


@pytest.mark.parametrize("flags", ["--dtype int16", "--dtype bool", "--reduce-op premul_sum"])
def test_ranks_reduce_by_themselves_what_the_backend_would_not(command, flags):
    code, out, _ = command("trace", "-n", "3", "-q", *flags.split())
    assert (code, "9 elements on 3 ranks right" in out) == (0, True)


def test_the_ops_that_help_names_are_those_that_have_algorithms():
    assert sorted(trace_options._OPS) == sorted(OPS)


def test_a_shell_is_offered_algorithms():
    assert trace_options._algorithms()[0] == "ring"
