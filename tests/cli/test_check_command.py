"""``distdemo check`` as a user and as a CI job run it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema
from helpers import commanded

from distdemo.check import matrix

SCHEMA = Path(__file__).parents[1] / "schemas" / "junit-10.xsd"
FEW = ["check", "--op", "barrier", "-n", "2", "--backend", "gloo"]
FAILS = [*FEW, "--timeout", "1e-9", "--fail-fast"]  # no case is that quick
# Once there are eight ranks, the cases of one are done, and those of eight take some seconds.
LONG = ["check", "--op", "all-reduce", "--full", "-n", "1,8", "-b", "gloo"]


@pytest.fixture(autouse=True)
def no_runner(monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def counted(found):
    """The counts of a document, which are those of its cases."""
    counts = dict(found["counts"])
    assert counts.pop("total") == sum(counts.values()) == len(found["cases"])
    for status, count in counts.items():
        named = status.replace("_", " ")
        assert sum(case["status"] == named for case in found["cases"]) == count
    return counts


# -------------------------------------------------------------------------------- the whole check


def test_the_plain_check_passes_with_every_case_that_the_backend_supports(command):
    code, out, err = command("check", "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    counts = counted(found)
    assert found["ok"] is True
    assert found["errors"] == []
    assert counts["passed"] >= 300
    assert (counts["failed"], counts["not_run"]) == (0, 0)
    assert (found["scope"], found["seed"], found["interrupted"]) == ("quick", 0, False)
    assert found["worlds"] == len(matrix.QUICK_SIZES), "one world a size"
    for case in found["cases"]:
        assert case["status"] in ("passed", "not supported")
        assert bool(case["why"]) == (case["status"] == "not supported")
        assert (case["seconds"] > 0) == (case["status"] == "passed")
        assert case["command"].startswith("distdemo ")
    assert len({case["id"] for case in found["cases"]}) == len(found["cases"])


# -------------------------------------------------------------------------------- its three views


def test_a_table_has_a_row_a_form_and_the_verdict(command):
    code, out, err = command(*FEW)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if line.startswith("barrier ")]
    assert rows == [["barrier", "monitored", "✓", "3"], ["barrier", "plain", "✓", "6"]]
    assert out.splitlines()[-1] == "✓ 9 cases passed."
    assert max(map(len, out.splitlines())) <= 80
    assert "seed 0" in out


def test_the_document_and_the_junit_file_say_the_same(command, tmp_path):
    file = tmp_path / "report.xml"
    arguments = ["check", "--op", "gather/list", "-n", "2", "--format", "json"]
    code, out, err = command(*arguments, "--junit-xml", str(file))
    assert (code, err) == (0, "")
    found = json.loads(out)
    counts = counted(found)
    assert counts["not_supported"], "gloo's gather takes no complex numbers"
    xmlschema.XMLSchema(SCHEMA).validate(str(file))
    (suite,) = ET.parse(file).getroot()  # noqa: S314 - our own file
    assert suite.get("tests") == str(len(found["cases"]))
    assert suite.get("skipped") == str(counts["not_supported"])
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    names = [case.get("name", "") for case in suite.iter("testcase")]
    assert sorted(names) == sorted(case["id"] for case in found["cases"])


def test_quiet_is_the_verdict_alone(command):
    code, out, err = command(*FEW, "--quiet", "--seed", "3")
    assert (code, out, err) == (0, "✓ 9 cases passed.\n", "")


def test_a_case_is_run_alone_by_its_name(command):
    name = "all_reduce/tensor/max/int64/n2/3x5"
    code, out, _ = command("check", "--case", name, "-n", "2", "--format", "json")
    assert code == 0
    (case,) = json.loads(out)["cases"]
    assert (case["id"], case["status"]) == (name, "passed")


def test_isolated_cases_have_a_world_each(command):
    code, out, _ = command(
        "check", "--op", "barrier/monitored", "-n", "2", "--isolate", "--format=json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["worlds"] == len(found["cases"]) == 3


def test_where_the_backend_supports_none_of_the_cases_the_check_is_no_success(command):
    code, out, _ = command("check", "--op", "gather/list", "--dtype", "complex64", "-n", "3")
    assert code == 1
    assert "No case ran" in out


# ------------------------------------------------------------------------------------- failures


def test_a_failing_check_is_told_in_every_view(command, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    file = tmp_path / "report.xml"
    code, out, err = command(*FAILS, "--junit-xml", str(file), "--format", "json")
    found = json.loads(out)
    counts = counted(found)
    assert code == 1
    assert found["ok"] is False
    assert (counts["passed"], counts["failed"], counts["not_run"]) == (0, 1, 8)
    failed, left = found["errors"]
    assert "No progress" in failed["why"]
    assert failed["hint"].startswith("distdemo barrier ")
    assert "8 cases" in left["what"]
    assert err.startswith("::error ")
    xmlschema.XMLSchema(SCHEMA).validate(str(file))
    (suite,) = ET.parse(file).getroot()  # noqa: S314 - our own file
    assert (suite.get("failures"), suite.get("errors")) == ("1", "8")


@pytest.mark.parametrize("form", ["table", "json"])
def test_on_a_runner_of_github_there_is_a_notice(form, command, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, out, err = command(*FEW, "--format", form)
    assert code == 0
    notice = out.splitlines()[-1] if form == "table" else err.rstrip("\n")
    assert notice.startswith("::notice title=distdemo check")
    assert "9 cases passed." in notice
    if form == "json":
        assert json.loads(out)["ok"] is True
    else:
        assert err == ""


def test_a_report_that_can_not_be_written_is_an_error_and_costs_no_result(command):
    code, out, err = command(*FEW, "--junit-xml", "/dev/full")
    assert code == 1
    assert "cases passed" in out
    assert "--junit-xml /dev/full: that could not be written." in err


# --------------------------------------------------------------------------- readers that go away


def test_a_reader_of_one_line_gets_it_and_no_complaint(temporary):
    unread, end = os.pipe()
    with commanded(FEW, temporary, stdout=end) as run:
        os.close(end)
        with os.fdopen(unread, "rb", buffering=0) as reader:
            assert reader.readline().startswith(b"check")
        code, _, err = run.finish()
    assert (code, err) == (0, "")


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_failure_stays_one_though_nobody_reads_of_it(form, temporary):
    unread, end = os.pipe()
    os.close(unread)
    with commanded([*FAILS, "--format", form], temporary, stdout=end) as run:
        os.close(end)
        code, _, err = run.finish()
    assert (code, err) == (1, "")


# ----------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_shows_what_was_done_and_what_was_not(temporary, tmp_path):
    file = tmp_path / "report.xml"
    with commanded([*LONG, "--junit-xml", str(file)], temporary) as run:
        run.ranks(8)
        os.kill(run.process.pid, signal.SIGINT)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (130, "")
    *_, verdict = out.splitlines()
    assert verdict.startswith("✗ Interrupted: ")
    assert "not run" in verdict
    assert "The check was interrupted" in " ".join(out.split())
    xmlschema.XMLSchema(SCHEMA).validate(str(file))
    assert 'type="not run"' in file.read_text(encoding="utf-8")


def test_ctrl_c_at_a_terminal_reaches_all_of_the_group_and_leaves_one_document(temporary):
    arguments = [*LONG, "--format", "json"]
    with commanded(arguments, temporary, start_new_session=True) as run:
        run.ranks(8)
        os.killpg(run.process.pid, signal.SIGINT)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (130, "")
    found = json.loads(out)
    counts = counted(found)
    assert (found["ok"], found["interrupted"]) == (False, True)
    assert counts["failed"] == 0
    assert counts["not_run"] > 0
    done = {case["status"] for case in found["cases"] if case["world_size"] == 1}
    assert done == {"passed", "not supported"}
    assert counts["passed"] > 0
    (error,) = found["errors"]
    assert error["why"] == "The check was interrupted."


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check --op all-reduec", ["'all-reduec'", "--op all-reduce"]),
        ("check --op gather/lst", ["'gather/lst'", "--op gather/list"]),
        ("check --dtype flaot32", ["--dtype float32"]),
        ("check --case barrier/plain/none/n2/late7 -n 2", ["--case barrier/plain/none/n2/late1"]),
        ("check --quick --full", ["don't go together"]),
        ("check --op barrier --dtype int8", ["No case is left"]),
        ("check -n 0", ["--world-size 0"]),
        ("check --seed one", ["--seed one"]),
        ("check --timeout 0", ["--timeout 0"]),
        ("check --backend nccl", ["needs a GPU"]),
        ("check --backend ucc", ["built without"]),
        ("check --junit-xml no/such/folder/x.xml", ["can't be written"]),
        ("check --root 1", ["--root means nothing to check"]),
    ],
)
def test_what_can_not_be_checked_is_refused_before_any_rank_starts(
    line, words, command, monkeypatch
):
    def start(*_):
        pytest.fail("a rank was started")

    monkeypatch.setattr("distdemo.launcher.crew.Crew.start", start)
    monkeypatch.setattr("distdemo.backends.gpus_in_sight", lambda: False)
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 3
    for word in words:
        assert word in " ".join(err.split())
