"""Command lines of ``check`` and ``backends``: errors, output and exit codes."""

from __future__ import annotations

import json

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


def test_backends_are_tried(command):
    def work() -> None:  # one of them is mpi
        code, out, _ = command("backends", "--format", "json")
        entries = {entry["name"]: entry for entry in json.loads(out)["backends"]}
        assert code == 0
        assert set(entries) == {"gloo", "nccl", "mpi", "ucc"}
        assert entries["gloo"]["tried"] == "all_reduce on 2 ranks verified"
        assert entries["nccl"]["missing"]

    in_a_child(work)
