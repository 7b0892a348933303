"""The command when something goes wrong around it: it ends in time, says why, leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers import (
    LOOPBACK,
    children,
    commanded,
    marked_processes,
    running,
    tcp_addresses,
    wait_until,
    warmed,
)

DISTDEMO = ["-m", "distdemo"]
ENDS_WITHIN = 2.0  # seconds from the cause until everything is gone
# Long enough to be still at work when a fault strikes: large tensors, verified by every rank.
LONG = ["all-reduce", "-n", "4", "--shape", "4000000", "--timeout", "60"]
# As long as nobody ends it, and its ranks compute nothing.
HELD_UP = ["barrier", "-n", "4", "--straggler", "2:60", "--timeout", "60"]
# Long enough for its ranks to be looked at dozens of times while they are connected.
SEEN = ["all-reduce", "-n", "4", "--shape", "1000000"]


@pytest.fixture
def temporary(tmp_path_factory):
    """A short path: the forkserver's socket lies in it, and has 107 characters at most."""
    return tmp_path_factory.mktemp("t")


def joined(run):
    """Wait until all four ranks are there and talk to each other, each to two in a ring."""
    ranks = run.ranks(4)
    assert wait_until(lambda: all(connections_of(rank) >= 2 for rank in ranks), 30)
    return ranks


def connections_of(pid):
    try:
        return len(tcp_addresses(pid)) - len(tcp_addresses(pid, listening=True))
    except OSError:
        return 0


def begun(arguments, temporary, *, imports):
    """The command as a Python that imports torch by itself, or without that."""
    if imports:
        return running([*DISTDEMO, *arguments], temporary)
    return commanded(arguments, temporary)


def fit_for(method, arguments, temporary):
    """The command, in a process whose main program a forkserver can import if it has to."""
    if method == "forkserver":
        return warmed([*DISTDEMO, *arguments], temporary)
    return commanded(arguments, temporary)


def tcp_addresses_of(pid):
    try:
        return tcp_addresses(pid)
    except OSError:
        return []


def test_nothing_of_a_running_world_is_reachable_from_another_machine(temporary):
    with commanded(SEEN, temporary) as run:
        seen = set()
        while run.process.poll() is None:
            for pid in [run.process.pid, *children(run.process.pid)]:
                seen.update(tcp_addresses_of(pid))
            assert list(temporary.iterdir()) == []
        assert run.finish()[0] == 0
        assert seen
        assert seen <= LOOPBACK
        run.leaves_nothing()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_and_the_rest_ends(victim, temporary):
    with commanded([*LONG, "--format", "json"], temporary) as run:
        os.kill(joined(run)[victim], signal.SIGKILL)
        struck = time.monotonic()
        code, out, err = run.finish()
        taken = time.monotonic() - struck
        run.leaves_nothing()
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert taken < ENDS_WITHIN + 0.5  # and what printing takes
    assert document["ok"] is False
    (error,) = document["errors"]
    assert error["ranks"] == [victim]
    assert "SIGKILL" in error["what"]
    assert document["world"]["outcomes"][victim]["kind"] == "died"


def test_a_rank_that_stands_still_is_named_at_the_timeout(temporary):
    arguments = ["all-reduce", "-n", "4", "--shape", "8000000", "--timeout", "1.5"]
    with commanded(arguments, temporary) as run:
        ranks = run.ranks(4)
        assert wait_until(lambda: any(tcp_addresses_of(rank) for rank in ranks), 30)
        os.kill(ranks[1], signal.SIGSTOP)
        code, out, _ = run.finish()
        run.leaves_nothing()
    assert code == 1
    assert "Timed out after 1.5 s: rank 1 never arrived" in out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
@pytest.mark.parametrize("moment", ["importing", "starting", "working"])
def test_a_signal_ends_it_in_time(number, status, moment, temporary):
    with begun(LONG, temporary, imports=moment == "importing") as run:
        pid = run.process.pid
        assert wait_until(lambda: "libtorch" in Path(f"/proc/{pid}/maps").read_text(), 30)
        if moment == "starting":
            run.ranks(1)
        elif moment == "working":
            joined(run)
        os.kill(pid, number)
        struck = time.monotonic()
        code, out, err = run.finish()
        assert time.monotonic() - struck < ENDS_WITHIN + 0.5
        run.leaves_nothing()
    assert (code, out) == (status, "")
    assert "Traceback" not in err
    assert ("Interrupted" if number == signal.SIGINT else "SIGTERM") in err


def test_ctrl_c_at_a_terminal_reaches_all_of_the_group_and_is_told_once(temporary):
    with commanded([*LONG, "--format", "json"], temporary, start_new_session=True) as run:
        joined(run)
        os.killpg(run.process.pid, signal.SIGINT)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (130, "")
    document = json.loads(out)
    assert document["ok"] is False
    assert document["errors"][0]["what"] == "Interrupted."


@pytest.mark.parametrize("moment", ["starting", "working"])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_ranks_die_with_a_killed_parent(moment, method, temporary):
    arguments = [*HELD_UP, "--start-method", method]
    with fit_for(method, arguments, temporary) as run:
        if method == "fork":
            ranks = run.ranks(1 if moment == "starting" else 4)
            # Lazily, two that wait for a third need not be connected: but each has its socket.
            assert moment == "starting" or wait_until(lambda: all(map(tcp_addresses_of, ranks)), 30)
        else:
            # The ranks are children of the forkserver.
            wanted = 5 if moment == "starting" else 7
            assert wait_until(lambda: len(marked_processes(run.mark)) >= wanted, 30)
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait(10)
        run.leaves_nothing()


def test_a_reader_that_leaves_early_gets_its_line_and_no_complaint(temporary):
    shell = f"{sys.executable} -m distdemo all-gather -n 8 --shape 64 | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("all_gather")
    assert done.stderr == ""


def test_a_full_disk_behind_standard_output_is_an_error(temporary):
    with (
        Path("/dev/full").open("w") as full,
        running(["-m", "distdemo", "ops"], temporary, stdout=full) as run,
    ):
        code, _, err = run.finish()
    assert code == 1
    assert "could not be written" in err
    assert "Traceback" not in err


def test_a_closed_standard_output_is_no_traceback(temporary):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m distdemo all-reduce -n 2 >&-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["missing", "a file", "read-only"])
def test_a_temporary_directory_that_can_not_be_written_to_does_not_matter(kind, temporary):
    place = temporary / "place"
    if kind == "a file":
        place.write_text("")
    elif kind == "read-only":
        place = Path("/proc")  # not even root can write there
    with commanded(["all-reduce", "-q"], temporary, env={"TMPDIR": str(place)}) as run:
        code, _, err = run.finish()
    assert (code, err) == (0, "")


def test_five_side_by_side_do_not_disturb_each_other(temporary):
    command = ["all-reduce", "-n", "3", "--format", "json", "--fill"]
    with ExitStack() as stack:
        runs = [
            stack.enter_context(commanded([*command, str(number)], temporary))
            for number in range(5)
        ]
        said = [run.finish() for run in runs]
    assert [(code, err) for code, _, err in said] == [(0, "")] * 5
    results = [
        [rank["after"]["pieces"][0]["values"] for rank in json.loads(out)["ranks"]]
        for _, out, _ in said
    ]
    assert results == [[[3.0 * number] * 4] * 3 for number in range(5)]
    assert list(temporary.iterdir()) == []
