"""Every command line that can't be carried out: exit 2, what and why and what to try, no rank."""

from __future__ import annotations

import json

import pytest

from distdemo.launchers import local

BAD = {
    "an unknown command": ("all-reduec", ["There is no command", "distdemo all-reduce"]),
    "an unknown option": ("all-reduce --worldsize 4", ["--worldsize", "--help"]),
    "an option without its value": ("all-reduce -n", ["requires an argument"]),
    "a surplus argument": ("all-reduce 4", ["unexpected"]),
    "an unknown op to explain": ("explain scater", ["'scater'", "distdemo explain scatter"]),
    "an unknown backend": ("all-reduce -b glo", ["'glo'", "--backend gloo"]),
    "an unknown dtype": ("all-reduce --dtype flaot32", ["'flaot32'", "--dtype float32"]),
    "an unknown device": ("all-reduce --device cdua", ["'cdua'", "--device cuda"]),
    "an unknown reduce op": ("reduce --reduce-op maxx", ["'maxx'", "--reduce-op max"]),
    "an unknown pattern": ("p2p --pattern rign", ["'rign'", "--pattern ring"]),
    "an unknown start method": ("all-reduce --start-method frok", ["'frok'", "fork"]),
    "an unknown format": ("all-reduce --format jsn", ["'jsn'", "--format json"]),
    "a root outside": ("broadcast --root 4", ["--root 4", "0 to 3", "--world-size 5"]),
    "a negative root": ("gather --root -1", ["--root -1", "0 to 3"]),
    "a root that is no number": ("scatter --root first", ["first", "whole number"]),
    "a src outside": ("p2p --src 2", ["--src 2", "0 to 1"]),
    "a dst outside": ("p2p --dst 7", ["--dst 7", "0 to 1"]),
    "src equal to dst": ("p2p --src 1 --dst 1", ["both 1", "--dst 0"]),
    "a sender in a ring": ("p2p --pattern ring --src 0", ["--src", "ring"]),
    "one rank for p2p": ("p2p -n 1", ["2 at least", "itself"]),
    "no rank": ("all-reduce -n 0", ["--world-size 0", "at least"]),
    "fewer than no rank": ("all-reduce -n -3", ["--world-size -3"]),
    "a number of ranks that is none": ("all-reduce -n four", ["four", "whole number"]),
    "half a rank": ("all-reduce -n 2.5", ["2.5", "whole number"]),
    "more ranks than fit": ("all-reduce -n 100000000", ["100,000,000", "at most", "a rank"]),
    "more than a number holds": ("all-reduce -n " + "9" * 400, ["at most"]),
    "rows of unequal length": (
        "all-reduce --values 1,2 --values 3",
        ["row 0 has 2 numbers", "row 1 has 1 number"],
    ),
    "values that are no numbers": ("all-reduce --values 1,b --values 2,3", ["'b'", "number"]),
    "values too large": ("all-reduce --dtype int8 --values 300 --values 1", ["300", "127"]),
    "values too small": ("all-reduce --dtype uint8 --values -1 --values 1", ["-1", "0 to 255"]),
    "fractions in whole numbers": ("all-reduce --dtype int32 --values 1.5 --values 1", ["1.5"]),
    "a number that would be rounded": (
        "all-reduce --values 16777217 --values 1",
        ["16777217", "16777216"],
    ),
    "complex values in real numbers": ("all-reduce --values 1+2j --values 1", ["complex"]),
    "too few rows": ("all-reduce -n 3 --values 1 --values 2", ["2 rows", "3 ranks"]),
    "too many rows": ("all-reduce -n 2 --values 1 --values 2 --values 3", ["3 rows", "2 ranks"]),
    "too few pieces": ("scatter -n 3 --values 1 --values 2", ["2 rows", "piece"]),
    "a missing file": ("all-reduce --values no-such-file", ["no-such-file", "no file"]),
    "a folder as a file": ("all-reduce --values /", ["can't be read"]),
    "values and fill": ("all-reduce --values 1 --values 2 --fill 1", ["--fill", "--values"]),
    "a fill that is no number": ("all-reduce --fill ones", ["ones", "--fill 1"]),
    "an empty shape": ("all-reduce --shape ,", ["--shape", "empty"]),
    "a negative shape": ("all-reduce --shape 2,-3", ["-3", "length"]),
    "a shape of no element": ("all-reduce --shape 0", ["0", "no length"]),
    "a shape of no numbers": ("all-reduce --shape big", ["big", "whole number"]),
    "a shape larger than memory": ("all-reduce --shape 1000000000000", ["TiB", "--shape"]),
    "a shape that values don't fill": (
        "all-reduce --shape 2,2 --values 1,2 --values 3,4",
        ["4 elements", "2 a rank"],
    ),
    "the average of whole numbers": ("all-reduce --reduce-op avg --dtype int64", ["whole numbers"]),
    "bits of floats": ("reduce --reduce-op bxor", ["Bitwise", "int32"]),
    "the order of complex numbers": ("reduce --reduce-op min --dtype complex64", ["complex"]),
    "the sum of bools": ("all-reduce --dtype bool", ["256 times"]),
    "a dtype that gloo has not": ("broadcast --dtype int16", ["int16", "int32"]),
    "nccl without a GPU": ("all-reduce --backend nccl", ["GPU", "gloo"]),
    "cuda without a GPU": ("all-reduce --device cuda", ["GPU"]),
    "a backend for another device": ("all-reduce -b nccl --device cpu", ["nccl", "cpu"]),
    "a backend that torch was built without": ("all-reduce --backend ucc", ["built without"]),
    "no time": ("all-reduce --timeout 0", ["--timeout 0", "positive"]),
    "negative time": ("all-reduce --timeout -5", ["--timeout -5"]),
    "endless time": ("all-reduce --timeout inf", ["--timeout inf"]),
    "a time that is no number": ("all-reduce --timeout soon", ["--timeout soon"]),
    "ranks to show that are not there": ("all-reduce --ranks 0,9", ["9", "0 to 3"]),
    "ranks backwards": ("all-reduce --ranks 3-1", ["backwards", "1-3"]),
    "a flag of another op": (
        "all-gather --root 1",
        ["--root means nothing to all-gather", "broadcast"],
    ),
    "a flag of another op to explain": ("explain all-gather --root 1", ["--root", "all-gather"]),
}


@pytest.fixture(autouse=True)
def no_rank_starts(monkeypatch):
    def start(*_):
        pytest.fail("a rank was started")

    monkeypatch.setattr(local._Launcher, "start", start)


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_with_what_why_and_what_to_try(name, command):
    line, words = BAD[name]
    code, out, err = command(*line.split())
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) >= 3
    assert "Traceback" not in err
    flat = " ".join(err.split())
    for word in words:
        assert word in flat


@pytest.mark.parametrize("name", BAD)
def test_it_is_a_valid_document_with_format_json(name, command):
    line, _ = BAD[name]
    if "--format" in line:
        line = line.replace("--format jsn", "")
        line += " --root 99"
    if line.endswith(" -n"):
        pytest.skip("the value that is missing would be --format")
    code, out, err = command(*line.split(), "--format", "json")
    assert code == 2
    assert err == ""
    document = json.loads(out)
    assert document["schema_version"] == 1
    assert document["ok"] is False
    assert document["command"] == line.split()[0]
    (error,) = document["errors"]
    assert all(error[part] for part in ("what", "why", "hint"))


def test_a_file_of_values_with_a_bad_line_names_the_line(command, tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("# two ranks\n1 2 3\n4 five 6\n")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "line 3" in " ".join(err.split())
    assert "'five'" in err


def test_an_empty_file_of_values_is_refused(command, tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("\n# nothing\n")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "no line of numbers" in " ".join(err.split())


def test_a_file_that_is_no_text_is_refused(command, tmp_path):
    file = tmp_path / "values.bin"
    file.write_bytes(b"\xff\xfe\x00\x01")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "can't be read" in " ".join(err.split())
