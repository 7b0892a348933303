"""Command lines of ``check`` and ``backends``: errors, output and exit codes."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest
from forked import in_a_child

pytestmark = pytest.mark.processes


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("check --op all-reduse", "There is no operation 'all-reduse'."),
        ("check --op all-gather/no", "There is no form 'all-gather/no'."),
        ("check --case nothing/at/all", "There is no case 'nothing/at/all'."),
        ("check --case all_gather/list/no", "There is no case 'all_gather/list/no'."),
        ("check --op barrier --dtype int8", "No case matches."),
        ("check --full --probe", "--full and --probe can't be combined."),
        ("check -n 2,x", "--world-size 2,x: these are not world sizes of at least 1."),
        ("check --junit-xml out.json", "--junit-xml out.json: unknown suffix."),
        ("check --backend nccl", "--backend nccl needs a GPU."),
    ],
)
def test_invalid_command_lines_are_rejected(command, line, first):
    code, out, err = command(*line.split())
    assert (code, out, err.splitlines()[0]) == (2, "", first)


INTERRUPTED = """
import signal, sys
from distdemo.__main__ import main
from distdemo.check import controller

class Finder:
    def find_spec(self, name, *_):
        if name == "torch.nn":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.{number})

finish = controller.CheckRun._finish

def finish_one(run, *args):
    finish(run, *args)
    signal.raise_signal(signal.{number})

if "{moment}" == "importing":
    sys.meta_path.insert(0, Finder())
else:
    controller.CheckRun._finish = finish_one
sys.argv[1:] = "check --op broadcast -n 2 --format json --junit-xml".split() + ["{file}"]
main()
"""


@pytest.mark.parametrize(
    ("number", "moment"), [("SIGINT", "running"), ("SIGTERM", "running"), ("SIGTERM", "importing")]
)
def test_a_stopped_check_writes_what_it_has_done(start, number, moment, tmp_path):
    file = tmp_path / "report.xml"
    program = INTERRUPTED.format(number=number, moment=moment, file=file)
    python = sys.executable if moment == "importing" else "python"
    with start(python, "-c", program) as run:
        code, out, err = run.finish()
        run.leaves_nothing()
    assert code == (130 if number == "SIGINT" else 1)
    assert err.splitlines()[-1] == f"Wrote {file}", "after lines of progress"
    document = json.loads(out)
    counts = document["counts"]
    assert document["interrupted"]
    assert not document["ok"]
    assert bool(counts["passed"]) == (moment == "running")
    assert counts["not_run"] > 0
    root = ET.fromstring(file.read_text())  # noqa: S314 - our own
    assert root.get("tests") == str(counts["total"])
    assert root.get("errors") == str(counts["not_run"])


def test_a_single_case_runs_by_id(command):
    name = "all_gather/list/float32/n2/empty"
    code, out, err = command("check", "--case", name, "-n", "2", "--format", "json")
    assert code == 0, err
    (case,) = json.loads(out)["cases"]
    assert case["id"] == name
    assert f"check --case {name}" in case["command"]


def test_backends_are_tried_also_those_that_others_registered(command):
    def work() -> None:  # one of them is mpi
        import torch.distributed as dist

        def create(store, rank, size, timeout: timedelta):
            """Return gloo under a different name."""
            return dist.ProcessGroupGloo(store, rank, size, timeout)

        def fail(store, rank, size, timeout: timedelta):
            raise RuntimeError("no such hardware")

        dist.Backend.register_backend("borrowed", create, devices=["cpu"])
        dist.Backend.register_backend("broken", fail, devices=["cpu"])
        code, out, _ = command("backends", "--format", "json")
        entries = {entry["name"]: entry for entry in json.loads(out)["backends"]}
        assert code == 1, "an available backend fails"
        assert set(entries) == {"gloo", "nccl", "mpi", "ucc", "borrowed", "broken"}
        for name in ("gloo", "borrowed"):
            assert entries[name]["tried"] == "all_reduce on 2 ranks verified", entries[name]
        assert entries["nccl"]["missing"]
        assert not entries["broken"].get("works")
        assert "no such hardware" in entries["broken"]["tried"]

    in_a_child(work)
