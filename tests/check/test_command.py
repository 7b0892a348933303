"""Command lines of ``check`` and ``backends``: errors, output and exit codes."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from forked import in_a_child

pytestmark = pytest.mark.processes


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_command_lines_are_rejected(command):
    for line, first in (
        ("check --op all-reduse", "There is no operation 'all-reduse'."),
        ("check --op all-gather/no", "There is no form 'all-gather/no'."),
        ("check --case all_gather/list/n2/no", "There is no case 'all_gather/list/n2/no'."),
        ("check --op barrier --dtype int8", "No case matches."),
        ("check -n 2,x", "--world-size 2,x: these are not world sizes of at least 1."),
        ("check --junit-xml out.json", "--junit-xml out.json: unknown suffix."),
        ("check --backend nccl", "--backend nccl needs a GPU."),
    ):
        code, out, err = command(*line.split())
        assert (code, out, err.splitlines()[0]) == (2, "", first)


def test_a_single_case_runs_by_id_and_a_junit_file_is_written(command, tmp_path):
    name = "all_gather/list/float32/n2/empty"
    file = tmp_path / "report.xml"
    words = ("check", "--case", name, "--format", "json", "--junit-xml", file)
    code, out, err = command(*words)
    assert (code, err) == (0, f"Wrote {file}\n")
    (case,) = json.loads(out)["cases"]
    assert (case["id"], case["status"]) == (name, "passed")
    assert name in file.read_text()


WHILE_IT_RUNS = """
import signal
from distdemo.__main__ import main
from distdemo.check import controller

make = controller.CheckRun._result
passed = []

def result(run, number, status, *more, **named):
    passed.extend([number] * (status == "passed"))
    if status == "passed" and len(passed) == 3:
        HOW
    return make(run, number, status, *more, **named)

controller.CheckRun._result = result
main()
"""


@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ("signal.raise_signal(signal.SIGTERM)", 1, "Stopped by SIGTERM."),
        ("signal.raise_signal(signal.SIGINT)", 130, "Interrupted."),
        ("raise OSError(5, 'no such disk')", 1, "OSError: [Errno 5] no such disk"),
    ],
)
def test_what_has_run_is_written_whatever_ends_the_check(start, tmp_path, how, code, why):
    junit, written = tmp_path / "report.xml", tmp_path / "report.json"
    words = ["check", "--op", "broadcast", "--dtype", "float32", "-n", "2"]
    files = ["--junit-xml", str(junit), "--output", str(written)]
    run = start("python", "-c", WHILE_IT_RUNS.replace("HOW", how), *words, *files)
    ended, out, err = run.finish()
    run.leaves_nothing()
    assert ended == code
    assert ("! " in out) == ("signal" in how), err
    document = json.loads(written.read_text())
    counts = document["counts"]
    assert (document["ok"], counts["failed"]) == (False, 0)
    assert counts["not_run"] > 0
    assert counts["passed"] + counts["not_run"] + counts["not_supported"] == counts["total"]
    suites = ET.parse(junit).getroot()  # noqa: S314 - our own file
    assert suites.attrib["errors"] == str(counts["not_run"])
    cases = list(suites.iter("testcase"))
    errors = [error for case in cases for error in case.iter("error")]
    assert {error.attrib["message"] for error in errors} == {f"not run: {why}"}
    whole = [case for case in cases if not list(case)]
    assert len(whole) == counts["passed"] >= 2


def test_backends_are_tried(command):
    def work() -> None:  # one of them is mpi
        code, out, _ = command("backends", "--format", "json")
        entries = {entry["name"]: entry for entry in json.loads(out)["backends"]}
        assert code == 0
        assert set(entries) == {"gloo", "nccl", "mpi", "ucc"}
        assert entries["gloo"]["tried"] == "all_reduce on 2 ranks verified"
        assert entries["nccl"]["missing"]

    in_a_child(work)
