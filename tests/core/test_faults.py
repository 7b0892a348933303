"""Kill and interrupt the command: it ends, says why, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from forked import in_a_child
from helpers import LOOPBACK, PATIENCE, marked_processes, tcp_addresses, wait_until

from distdemo import __main__ as entry

pytestmark = pytest.mark.processes
# Nobody waits as long as that: rank 2 keeps the others waiting, and none computes.
HELD_UP = ["barrier", "-n", "4", "--straggler", "2:600", "--timeout", "900"]


def joined(run):
    """Wait until every rank has a socket; return the ranks, and all addresses seen meanwhile."""
    ranks, seen = run.ranks(4), set[str]()

    def connected():
        addresses = [tcp_addresses(pid) for pid in (run.pid, *ranks)]
        seen.update(*addresses)
        return all(addresses[1:])

    assert wait_until(connected)
    return ranks, seen


def test_a_killed_rank_is_named_the_rest_ends_and_nothing_was_reachable_from_outside(start):
    run = start("distdemo", *HELD_UP, "--format", "json")
    ranks, seen = joined(run)
    assert seen <= LOOPBACK
    assert list(run.temporary.iterdir()) == []
    os.kill(ranks[0], signal.SIGKILL)
    code, out, err = run.finish()
    run.leaves_nothing()
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert document["ok"] is False
    (error,) = document["errors"]
    assert error["ranks"] == [0]
    assert "SIGKILL" in error["what"]
    assert document["world"]["outcomes"][0]["kind"] == "died"


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "starting"),
        (signal.SIGINT, "to the group"),
        (signal.SIGTERM, "working"),
        (signal.SIGHUP, "working"),
    ],
)
def test_a_signal_ends_it(start, number, moment):
    to_group = moment == "to the group"  # as a terminal sends it
    run = start("distdemo", *HELD_UP, start_new_session=to_group)
    if moment == "starting":
        run.ranks(1)
    else:
        joined(run)
    (os.killpg if to_group else os.kill)(run.process.pid, number)
    code, out, err = run.finish()
    run.leaves_nothing()
    assert (code, out) == (130 if number == signal.SIGINT else 1, "")
    assert "Traceback" not in err
    assert err.count("Interrupted" if number == signal.SIGINT else number.name) == 1


@pytest.mark.parametrize("suffix", [".json", ".md"])
def test_the_file_of_an_interrupted_command_has_no_earlier_result(start, tmp_path, suffix):
    file = tmp_path / f"result{suffix}"
    file.write_text("an earlier result")
    run = start("distdemo", *HELD_UP, "--output", str(file))
    joined(run)
    os.kill(run.process.pid, signal.SIGTERM)
    code, out, err = run.finish()
    run.leaves_nothing()
    assert (code, out, "Stopped by SIGTERM." in err) == (1, "", True)
    content = file.read_text()
    if suffix == ".json":
        document = json.loads(content)
        assert document["ok"] is False
        assert document["errors"][0]["what"] == "Stopped by SIGTERM."
    else:
        assert content.endswith("**✗ Stopped by SIGTERM.**\n")
    assert list(tmp_path.iterdir()) == [file]


# Python discards what is raised in __del__, as in the callbacks that importlib calls.
WHILE_IMPORTING = """
import signal, sys
from distdemo.__main__ import main

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.{number})

class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            sys.meta_path.remove(self)
            Interrupted()

sys.meta_path.insert(0, Finder())
sys.argv[1:] = {words}
main()
"""


@pytest.mark.parametrize(
    ("module", "number"), [("distdemo.cli.app", "SIGTERM"), ("torch.nn", "SIGINT")]
)
def test_a_signal_during_an_import_ends_it(start, tmp_path, module, number):
    file = tmp_path / "result.json"
    file.write_text("an earlier result")
    words = [*HELD_UP, "--output", str(file), "--quiet"]
    program = WHILE_IMPORTING.format(module=module, number=number, words=words)
    run = start(sys.executable, "-c", program)
    code, out, err = run.finish()
    run.leaves_nothing()
    assert (code, out) == (130 if number == "SIGINT" else 1, "")
    assert err.count("\n") <= 3
    assert "Traceback" not in err
    assert "ignored" not in err
    if number == "SIGINT":  # the options had been read
        assert json.loads(file.read_text())["errors"][0]["what"] == "Interrupted."


AT_THE_END = """
import signal, sys, threading
from distdemo.__main__ import main
from distdemo import signals
from distdemo.cli import runner, session

owner, name = {{
    "before its verdict": (runner._Output, "write"),
    "after its verdict": (session.Session, "end"),
    "and it hangs": (session.Session, "end"),
}}["{moment}"]
hangs = "{moment}" == "and it hangs"
signals.EXIT_TIMEOUT_S = 0 if hangs else 100
call = getattr(owner, name)

def interrupted(*args):
    signal.raise_signal(signal.{number})
    if hangs:
        threading.Event().wait()
    return call(*args)

setattr(owner, name, interrupted)
sys.argv[1:] = ["all-reduce", "-n", "2", "-q"]
main()
"""


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("before its verdict", "SIGINT"),
        ("before its verdict", "SIGTERM"),
        ("after its verdict", "SIGINT"),
        ("and it hangs", "SIGTERM"),
    ],
)
def test_a_verdict_and_an_interruption_exclude_each_other(start, moment, number):
    program = AT_THE_END.format(moment=moment, number=number)
    run = start("python", "-c", program)
    code, out, err = run.finish()
    run.leaves_nothing()
    interrupted = 130 if number == "SIGINT" else 1
    assert code == (interrupted if moment == "before its verdict" else 0)
    assert ("Verified" in out) == (code == 0)
    assert bool(err) == (code != 0)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_ranks_die_with_a_killed_parent(start, method):
    # A forkserver has to import the main program, which pytest's can't be.
    line = [*HELD_UP, "--start-method", method]
    forks = method == "fork"
    run = start("distdemo", *line) if forks else start("python", "-m", "distdemo", *line)
    if forks:
        joined(run)
    else:  # the ranks are children of the forkserver
        assert wait_until(lambda: len(marked_processes(run.mark)) >= 7)
    run.process.kill()
    run.process.wait(PATIENCE)
    run.leaves_nothing()


LOADER = """
import sys, torch, torch.distributed as dist
from torch.utils.data import DataLoader
if __name__ == "__main__":  # workers of a forkserver import this file
    dist.init_process_group("gloo")
    data = torch.arange(64.0)
    batches = iter(DataLoader(data, 2, num_workers=2, multiprocessing_context=sys.argv[1]))
    next(batches)
    print("loaded", flush=True)
    dist.recv(torch.zeros(1), 1 - dist.get_rank())
"""


@pytest.mark.parametrize(
    ("number", "method"),
    [(signal.SIGHUP, "fork"), (signal.SIGKILL, "fork"), (signal.SIGKILL, "forkserver")],
)
def test_data_loaders_leave_nothing_when_the_launcher_is_stopped(start, number, method, tmp_path):
    program = tmp_path / "loads.py"
    program.write_text(LOADER)
    run = start("distdemo", "run", "-n", "2", program, "--", method)
    for _ in range(2):
        assert "loaded" in run.read_line()
    run.process.send_signal(number)
    run.process.wait(PATIENCE)
    run.leaves_nothing()


def test_a_reader_that_leaves_early_causes_no_error(start):
    reader, writer = os.pipe()
    run = start("distdemo", "all-gather", "-n", "8", "--shape", "64", stdout=writer)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as file:
        assert file.readline().startswith(b"all_gather")
    code, _, err = run.finish()
    assert (code, err) == (0, "")


def test_a_full_disk_behind_standard_output_is_an_error(start):
    with Path("/dev/full").open("w") as full, start("distdemo", "explain", stdout=full) as run:
        code, _, err = run.finish()
    assert code == 1
    assert err.startswith("The result could not be read or written.\nNo space left on device.")
    assert "Traceback" not in err


def test_streams_that_the_shell_closed_are_opened_to_nowhere():
    def work():
        for fd in (0, 1):
            os.close(fd)
        sys.stdout = None
        entry._open_streams()
        print("nobody reads this", flush=True)  # noqa: T201 - which is the point
        assert [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1)] == [os.devnull] * 2  # noqa: PTH115

    in_a_child(work)


def test_a_temporary_directory_that_can_not_be_written_to_does_not_matter(start):
    # Not even root can write to /proc.
    run = start("distdemo", "all-reduce", "-n", "2", "-q", env={"TMPDIR": "/proc"})
    code, _, err = run.finish()
    assert (code, err) == (0, "")
