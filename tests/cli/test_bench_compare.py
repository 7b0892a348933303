"""``distdemo bench compare`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from recordings import SIZES, document, hockney, one_row, one_series, written


@pytest.fixture
def files(tmp_path):
    """The names of two files, the second by a factor slower."""

    def made(factor):
        names = []
        for seed, scale in ((1, 1.0), (2, factor)):
            rows = [one_row(size, scale * hockney(size), seed=seed) for size in SIZES]
            names.append(written(tmp_path / f"{seed}.json", document(one_series(rows))))
        return names

    return made


def test_the_same_twice_is_no_change(files, command):
    code, out, err = command("bench", "compare", *files(1.0), "--fail-over", "10%")
    assert (code, err) == (0, "")
    assert "No change beyond 10 %" in out
    assert max(map(len, out.splitlines())) <= 80
    for size in ("8 B", "32 KiB", "32 MiB"):
        assert size in out


def test_slower_fails_where_that_was_asked_for(files, command, tmp_path):
    pair = files(1.3)
    code, out, _ = command("bench", "compare", *pair)
    assert code == 0
    assert "13 slower" in out
    code, out, err = command("bench", "compare", *pair, "--fail-over", "10", "--quiet")
    assert (code, err) == (1, "")
    assert out == "✗ Slower by more than 10 %: 1 series and 12 sizes.\n"
    code, _, _ = command("bench", "compare", *pair, "--fail-over", "40%")
    assert code == 0
    code, out, _ = command("bench", "compare", *reversed(pair), "--fail-over", "10%", "-q")
    assert (code, "faster" in out) == (0, True)
    code, out, _ = command("bench", "compare", *pair, "--threshold", "50%", "-q")
    assert (code, "No change beyond 50 %" in out) == (0, True)


def test_the_document_goes_to_standard_output_and_into_a_file(files, command, tmp_path):
    path = tmp_path / "result.json"
    line = (*files(1.3), "--format", "json", "--fail-over", "0.5%", "--output", str(path))
    code, out, err = command("bench", "compare", *line)
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert found == json.loads(path.read_text())
    assert (found["command"], found["ok"], found["fail_over"]) == ("bench compare", False, 0.005)
    assert len(found["rows"]) == len(SIZES)
    assert len(found["errors"]) == len(SIZES) + 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{old} none.json", ["none.json: it can't be read", "no such file"]),
        ("{old} {folder}", ["it can't be read", "a folder"]),
        ("{old} {odd}", ["no JSON"]),
        ("{old} {other}", ["no row in common", "broadcast"]),
        ("{old} {new} --threshold ten", ["--threshold ten", "no percentage"]),
        ("{old} {new} --fail-over -5%", ["--fail-over -5%", "no percentage"]),
        ("{old} {new} --fail-over nan", ["--fail-over nan"]),
        ("{old} {new} --fail-over 0.1", ["percent, or a share?", "--fail-over 10%"]),
        ("{old} {new} --output {new}", ["that file is read", "overwritten"]),
        ("{old} {new} --output r.csv", ["r.csv", ".json"]),
        ("{old} {new} --output no/such/r.json", ["can't be written"]),
        ("{old} {new} --format csv", ["'csv'", "table, json"]),
        ("{old}", ["NEW.json"]),
    ],
)
def test_what_can_not_be_compared_is_refused(line, words, files, command, tmp_path):
    old, new = files(1.0)
    (tmp_path / "odd.json").write_text("{")
    written(tmp_path / "other.json", document(one_series(command="broadcast", op="broadcast")))
    places = {"odd": tmp_path / "odd.json", "other": tmp_path / "other.json", "folder": tmp_path}
    filled = line.format(old=old, new=new, **places)
    code, out, err = command("bench", "compare", *filled.split())
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 3
    for word in words:
        assert word in " ".join(err.split())
    code, out, err = command("bench", "compare", *filled.split(), "--format", "json")
    if "--format" not in line:
        assert (code, err) == (2, "")
        assert json.loads(out)["errors"][0]["what"]


def test_torch_and_numpy_are_not_loaded(files):
    program = (
        "import sys; from distdemo.cli.main import run; code = run(sys.argv[1:]); "
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules), 'heavy'; sys.exit(code)"
    )
    for word in ("compare", "fit"):
        line = [sys.executable, "-c", program, "bench", word, *files(1.0)]
        found = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert (found.returncode, found.stderr) == (0, "")
