"""``distdemo bench fit`` as a user runs it."""

from __future__ import annotations

import json

import pytest
from recordings import SIZES, document, one_row, one_series, written

from distdemo.bench.models import find


@pytest.fixture
def files(tmp_path):
    """The names of files of these numbers of ranks, all in a ring."""

    def made(*ranks):
        way, names = find("all_reduce", "ring"), []
        for n in ranks:
            rows = [one_row(size, way.seconds(n, size, 30e-6, 0.5e-9), seed=n) for size in SIZES]
            series = one_series(rows, group_size=n, world_size=n)
            names.append(written(tmp_path / f"{n}.json", document(series)))
        return names

    return made


def test_one_file_is_fitted_and_says_what_it_can_not_know(files, command):
    code, out, err = command("bench", "fit", *files(2))
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "timing can't tell the algorithms apart" in " ".join(out.split())
    assert "ring fits" in " ".join(out.split())
    assert "PREDICTION" not in out


def test_two_and_four_ranks_predict_eight_and_a_million(files, command):
    two, four, eight = files(2, 4, 8)
    line = (two, four, "--against", eight, "--predict", "1000000", "--format", "json")
    code, out, err = command("bench", "fit", *line)
    assert (code, err) == (0, "")
    found = json.loads(out)
    (series,) = found["fits"]
    assert (series["chosen"], series["world_sizes"]) == ("ring", [2, 4])
    ring = series["algorithms"][0]
    assert ring["alpha_seconds"] == pytest.approx(30e-6, rel=0.03)
    assert ring["beta_seconds_per_byte"] == pytest.approx(0.5e-9, rel=0.03)
    near, far = found["predictions"]
    assert (near["group_size"], far["group_size"]) == (8, 1_000_000)
    for row in near["rows"]:
        assert row["seconds"]["ring"] == pytest.approx(row["measured_seconds"], rel=0.1)
    assert all(row["measured_seconds"] is None for row in far["rows"])
    assert far["crossovers"]
    assert found["assumptions"]


def test_sizes_and_algorithm_are_chosen_and_files_written(files, command, tmp_path):
    pytest.importorskip("matplotlib")
    picture, result = tmp_path / "fit.svg", tmp_path / "fit.json"
    line = ("--predict", "64", "--size", "1M", "--size", "1G", "--algorithm", "tree", "--quiet")
    code, out, err = command(
        "bench", "fit", *files(2), *line, "--plot", str(picture), "--output", str(result)
    )
    assert (code, err) == (0, "")
    assert len(out.splitlines()) <= 2
    assert "<svg" in picture.read_text()
    (prediction,) = json.loads(result.read_text())["predictions"]
    assert prediction["from_algorithm"] == "tree"
    assert [row["bytes"] for row in prediction["rows"]] == [1 << 20, 1 << 30]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ["needs a file", "--output run.json"]),
        ("none.json", ["none.json", "no such file"]),
        ("{two} {two}", ["named twice"]),
        ("{two} --against {two}", ["named twice"]),
        ("{two} --predict 1", ["--predict 1", "2 to 1,000,000"]),
        ("{two} --predict 1000001", ["out of range"]),
        ("{two} --predict many", ["--predict many", "whole number"]),
        ("{two} --size 1M", ["--size means nothing without --predict"]),
        ("{two} --predict 8 --size big", ["--size big"]),
        ("{two} --predict 8 --size 0", ["--size 0"]),
        ("{two} --algorithm rink", ["'rink'", "--algorithm ring"]),
        ("{two} --algorithm bruck", ["none of the measured operations has it", "ring"]),
        ("{two} --against {other}", ["nothing of what is fitted"]),
        ("{lone}", ["nothing that can be fitted", "one rank sends nothing"]),
        ("{two} --plot x.gif", ["x.gif", ".png"]),
        ("{two} --output x.txt", ["x.txt", ".json"]),
        ("{two} --output {two}", ["that file is read"]),
    ],
)
def test_what_can_not_be_fitted_is_refused(line, words, files, command, tmp_path):
    (two,) = files(2)
    other = document(one_series(command="broadcast", op="broadcast"))
    names = {
        "two": two,
        "other": written(tmp_path / "other.json", other),
        "lone": written(tmp_path / "lone.json", document(one_series(group_size=1))),
    }
    code, out, err = command("bench", "fit", *line.format(**names).split())
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 3
    for word in words:
        assert word in " ".join(err.split())
