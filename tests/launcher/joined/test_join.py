"""The command as a part of a world that was started from outside: one result, whatever ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers import (
    LOOPBACK,
    children,
    commanded,
    free_port,
    marked_processes,
    running,
    tcp_addresses,
    wait_until,
    warmed,
)

ENDS_WITHIN = 5.0  # seconds from the cause until all processes of all nodes are gone
HELD_UP = ["barrier", "-n", "4", "--straggler", "2:60", "--timeout", "30"]
DISTDEMO = ["-m", "distdemo"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node"]
MPIEXEC = Path(sys.executable).with_name("mpiexec")

needs_mpi = pytest.mark.skipif(not MPIEXEC.exists(), reason=f"there is no {MPIEXEC}")


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@contextmanager
def nodes(commands, temporary, settings=({}, {})):
    """Start these commands side by side, each with settings of its own in its environment."""
    with ExitStack() as stack:
        started = []
        for number, (command, env) in enumerate(zip(commands, settings, strict=True)):
            folder = temporary / str(number)
            folder.mkdir()
            started.append(stack.enter_context(commanded(command, folder, env=env)))
        yield started


@contextmanager
def terminals(temporary, *commands):
    """The command in one terminal of each of two nodes; one command is for both."""
    master = f"127.0.0.1:{free_port()}"
    both = commands * 2 if len(commands) == 1 else commands
    told = [
        [*command, "--nnodes", "2", "--node-rank", str(node), "--master", master]
        for node, command in enumerate(both)
    ]
    with nodes(told, temporary) as started:
        yield started


def by_hand(port, rank, size):
    """The environment of one rank of a world that somebody sets up."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **where}


def joined(node, count):
    """The ranks of a node, once all of them have a connection."""

    def connected():
        ranks = children(node)
        return len(ranks) == count and all(addresses_of(pid) for pid in ranks)

    assert wait_until(connected, 30)
    return children(node)


def addresses_of(pid, *, listening=False):
    try:
        return tcp_addresses(pid, listening=listening)
    except OSError:
        return []


def struck(runs, strike):
    """Do it once all ranks are there; what each node said: (exit code, stdout, stderr)."""
    ranks = [joined(run.process.pid, 2) for run in runs]
    strike(*ranks)
    at = time.monotonic()
    said = [run.finish() for run in runs]
    assert time.monotonic() - at < ENDS_WITHIN
    for run in runs:
        run.leaves_nothing()
    return said


def under_mpiexec(run, rank, met):
    """The processes of a rank that mpiexec started: its node's, and its own.

    Args:
        run: of mpiexec.
        rank: which one.
        met: wait until so many nodes have found each other.
    """
    seen: dict[str, tuple[int, int]] = {}

    def there():
        seen.clear()
        for node in marked_processes(run.mark):
            if len(children(node)) == 1 and variable(node, "PMI_RANK"):
                if met and not LOOPBACK & set(addresses_of(node)):
                    return False
                seen[variable(node, "PMI_RANK")] = node, children(node)[0]
        return len(seen) >= met and str(rank) in seen

    assert wait_until(there, 30)
    return seen[str(rank)]


def variable(pid, name):
    """What a process was given in this environment variable; empty if nothing."""
    try:
        words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return ""
    return dict(word.partition("=")[::2] for word in words).get(name, "")


# ---------------------------------------------------------------------------------- terminals


def test_two_terminals_make_one_world(temporary):
    with terminals(temporary, ["all-reduce", "-n", "3"]) as runs:
        first, second = [run.finish() for run in runs]
        for run in runs:
            run.leaves_nothing()
    assert first[0] == second[0] == 0
    assert "3 ranks · gloo" in first[1]
    assert first[1].count("[30 33 36 39]") == 3
    assert (first[2], second[1]) == ("", "")
    assert second[2].startswith("Rank 2 ran here; all went well. Node 0 (127.0.0.1) shows")


def test_nothing_of_two_terminals_can_be_reached_from_another_machine(temporary):
    # As long as one is late, the places where they listen are there to be seen.
    with terminals(temporary, ["barrier", "-n", "3", "--straggler", "2:0.5"]) as runs:
        seen, heard = set(), set()

        def looked_at_to_the_end():
            ended = all(run.process.poll() is not None for run in runs)
            for pid in [pid for run in runs for pid in marked_processes(run.mark)]:
                seen.update(addresses_of(pid))
                heard.update(addresses_of(pid, listening=True))
            return ended

        assert wait_until(looked_at_to_the_end, 30)
        assert [run.finish()[0] for run in runs] == [0, 0]
    assert heard
    assert seen <= LOOPBACK


def test_a_terminal_with_another_command_is_told_and_named(temporary):
    asked = ["broadcast", "--format", "json"], ["broadcast", "--root", "1", "-n", "4"]
    with terminals(temporary, *asked) as runs:
        first, second = [run.finish() for run in runs]
    (error,) = json.loads(first[1])["errors"]
    assert (first[0], second[0]) == (1, 1)
    assert error["ranks"] == [2, 3]
    assert "something else than rank 0: distdemo broadcast --root 1" in error["what"]
    assert error["hint"] == "Give every process the same command."
    assert "Rank 0 was asked for something else." in second[2]


def test_a_killed_rank_of_another_node_is_named_and_all_end(temporary):
    with terminals(temporary, [*HELD_UP, "--format", "json"]) as runs:
        first, second = struck(runs, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL))
    document = json.loads(first[1])
    assert [(code, err) for code, _, err in (first,)] == [(1, "")]
    assert (second[0], second[1]) == (1, "")
    (error,) = document["errors"]
    assert error["ranks"] == [3]
    assert "SIGKILL" in error["what"]
    assert document["world"]["outcomes"][3]["kind"] == "died"


def test_a_killed_node_is_named_with_all_its_ranks(temporary):
    with terminals(temporary, HELD_UP) as runs:
        first, second = struck(runs, lambda *_: runs[1].process.kill())
    assert (first[0], second[0]) == (1, -signal.SIGKILL)
    assert f"Ranks 2, 3: the process on {socket.gethostname()} ended without" in first[1]


def test_without_node_0_the_others_say_that_there_is_no_verdict(temporary):
    with terminals(temporary, HELD_UP) as runs:
        first, second = struck(runs, lambda *_: runs[0].process.kill())
    assert (first[:2], second[:2]) == ((-signal.SIGKILL, ""), (1, ""))
    assert "The verdict of rank 0 is not to be had.\nThe process on 127.0.0.1 ended" in second[2]


@pytest.mark.parametrize(
    ("node", "number", "codes"),
    [(0, signal.SIGINT, (130, 130)), (1, signal.SIGTERM, (1, 1))],
)
def test_a_signal_to_either_node_ends_both(node, number, codes, temporary):
    with terminals(temporary, HELD_UP) as runs:
        said = struck(runs, lambda *_: runs[node].process.send_signal(number))
    assert tuple(code for code, _, _ in said) == codes
    word = "Interrupted" if number == signal.SIGINT else "SIGTERM"
    assert word in said[node][2]
    assert "Traceback" not in said[0][2] + said[1][2]


def test_a_node_that_is_killed_before_node_0_comes_leaves_nothing(temporary):
    nowhere = ["--nnodes", "2", "--node-rank", "1", "--master", f"127.0.0.1:{free_port()}"]
    with commanded(["all-reduce", *nowhere], temporary) as run:
        assert not wait_until(lambda: run.process.poll() is not None, 1.0)
        run.process.kill()
        run.finish(ENDS_WITHIN)
        run.leaves_nothing(ENDS_WITHIN)


# ------------------------------------------------------------------------- ranks set up by hand


def test_of_two_processes_of_one_rank_the_second_is_sent_away_and_the_world_goes_on(temporary):
    port = free_port()
    settings = [by_hand(port, rank, 2) for rank in (0, 1, 1)]
    # The world lasts until the last of the three must have come, however busy the machine is.
    asked = ["barrier", "--straggler", "0:1.5", "--format", "json"]
    with nodes(3 * [asked], temporary, settings) as runs:
        first, *others = [run.finish() for run in runs]
    assert first[0] == 0
    assert json.loads(first[1])["ok"] is True
    assert sorted(code for code, _, _ in others) == [0, 1]
    (turned_away,) = [err for code, _, err in others if code]
    assert "Another process is rank 1 of it already." in turned_away


def test_a_check_has_the_size_of_the_world_that_others_start(temporary):
    port = free_port()
    asked = ["check", "--op", "broadcast", "--format", "json"]
    with nodes(2 * [asked], temporary, [by_hand(port, rank, 2) for rank in range(2)]) as runs:
        first, second = [run.finish() for run in runs]
    assert (first[0], *second) == (0, 0, "", "")
    check = json.loads(first[1])
    assert check["ok"]
    assert {case["world_size"] for case in check["cases"]} == {2}


def test_a_result_that_no_store_takes_in_one_piece_comes_all_the_same(temporary):
    values = temporary / "values.txt"
    values.write_text(2 * (json.dumps(12000 * [1000 * "x"]) + "\n"))
    port = free_port()
    asked = ["all-gather", "--objects", "--values", str(values), "--quiet"]
    with nodes(2 * [asked], temporary, [by_hand(port, rank, 2) for rank in range(2)]) as runs:
        said = [run.finish() for run in runs]
        values.unlink()
    assert [code for code, _, _ in said] == [0, 0]
    assert "Verified: 4 objects" in said[0][1]


def test_a_node_that_can_not_take_part_is_told_by_node_0(temporary):
    """A program that new processes would have to import, and whose file is gone."""
    gone = temporary / "program.py"
    gone.write_text("import os; os.unlink(__file__); from distdemo.__main__ import main; main()")
    port = free_port()
    settings = [by_hand(port, rank, 2) for rank in range(2)]
    with (
        commanded(["all-reduce", "--format", "json"], temporary, env=settings[0]) as one,
        warmed(
            [str(gone), "all-reduce", "--start-method", "spawn"], temporary, env=settings[1]
        ) as other,
    ):
        first, second = one.finish(), other.finish()
    (error,) = json.loads(first[1])["errors"]
    assert (first[0], second[0]) == (1, 2)
    assert error["ranks"] == [1]
    assert error["what"].startswith("Rank 1: can't take part on")
    assert "New processes can't import this program" in error["what"]


WORLDS = """
import os
import sys
from distdemo.launcher.joined.engines import detect
from distdemo.launcher.joined.join import NodeZero, OtherNode
from distdemo.launcher.joined.placement import Request
from distdemo.launcher.records import WorldSpec

def work(rank, what):
    if what == "fail" and rank.rank == 1:
        raise ValueError("as asked")
    rank.tell((what, rank.rank))
    return rank.count("ranks", 1), what

if __name__ == "__main__":
    place, request, spec = detect(os.environ), Request("the same", "words"), WorldSpec(2)
    if place.node:
        node = OtherNode(place, request, 30.0)
        sys.exit(node.serve(spec, work, ("one",), lambda order: (work, (order,))))
    node = NodeZero(place, request, 30.0)
    for what in ("one", "fail", "three"):
        told = []
        report = node.run(
            spec, work, (what,), order=what, hear=lambda rank, value: told.append((rank, *value))
        )
        kinds = [outcome.kind for outcome in report.outcomes]
        print(what, kinds, sorted(told), sorted(report.values), getattr(report.verdict, "what", ""))
    node.end(7)
"""


def test_one_world_follows_another_and_a_failure_ends_only_its_own(temporary):
    program = temporary / "worlds.py"
    program.write_text(WORLDS)
    port = free_port()
    with ExitStack() as stack:
        zero, other = [
            stack.enter_context(warmed([str(program)], temporary, env=by_hand(port, rank, 2)))
            for rank in range(2)
        ]
        (code, out, err), (second, nothing, _) = zero.finish(), other.finish()
        program.unlink()
    assert (code, second, nothing) == (0, 7, ""), err
    one, fail, three = out.splitlines()
    told = "[(0, 'one', 0), (1, 'one', 1)] [(1, 'one'), (2, 'one')]"
    assert one.strip() == f"one ['returned', 'returned'] {told}"
    assert "'raised'" in fail
    assert fail.endswith("Rank 1 raised ValueError: as asked")
    assert three.strip() == one.strip().replace("one", "three")


def test_a_size_that_contradicts_the_engine_is_told_once(temporary):
    settings = [by_hand(29500, rank, 3) for rank in range(3)]
    asked = ["all-reduce", "-n", "4"]
    with nodes(3 * [asked], temporary, settings) as runs:
        said = [run.finish() for run in runs]
    assert [code for code, _, _ in said] == [2, 2, 2]
    assert "--world-size 4, but this world has 3 ranks." in said[0][2]
    assert [out + err for _, out, err in said[1:]] == ["", ""]


# ------------------------------------------------------------------------------------- torchrun


def test_torchrun_starts_one_world_that_speaks_once(temporary):
    """A document on standard output and nothing else there."""
    asked = [*DISTDEMO, "all-reduce", "--format", "json"]
    with warmed([*TORCHRUN, "2", *asked], temporary) as run:
        code, out, _ = run.finish()
        assert wait_until(lambda: not marked_processes(run.mark))
    assert code == 0
    document = json.loads(out)
    assert document["ok"]
    assert document["world"]["engine"] == "torchrun"
    assert [each["kind"] for each in document["world"]["outcomes"]] == ["returned", "returned"]


# -------------------------------------------------------------------------------------- mpiexec


@needs_mpi
@pytest.mark.mpi
def test_mpiexec_starts_one_world_over_mpi(temporary):
    """Over gloo it does so below, and on two hosts."""
    asked = [*DISTDEMO, "all-reduce", "--format", "json", "--backend", "mpi"]
    with running(["-n", "2", sys.executable, *asked], temporary, program=MPIEXEC) as run:
        code, out, err = run.finish()
        assert (code, err) == (0, "")
        world = json.loads(out)["world"]
        assert (world["engine"], world["world"]["backend"]) == ("mpi", "mpi")
        assert (len(world["outcomes"]), world["hosts"]) == (2, [])
        run.leaves_nothing()


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("victim", ["rank", "node", "rank that has met nobody"])
def test_a_kill_under_mpiexec_ends_all_and_is_told_where_anybody_is_left(victim, temporary):
    """hydra kills every process as soon as one of its own is gone, node 0's too."""
    barrier = ["barrier", "--straggler", "1:60", "--timeout", "30"]
    command = ["-n", "2", sys.executable, *DISTDEMO, *barrier]
    with running(command, temporary, program=MPIEXEC) as run:
        met = 0 if victim == "rank that has met nobody" else 2
        node, rank = under_mpiexec(run, 1, met)
        os.kill(node if victim == "node" else rank, signal.SIGKILL)
        at = time.monotonic()
        code, out, err = run.finish()
        assert time.monotonic() - at < ENDS_WITHIN
        # What MPI has put into memory stays where a node is killed, or its rank before it could
        # tell of it.
        if victim == "rank":
            run.leaves_nothing()
        assert wait_until(lambda: not marked_processes(run.mark))
    assert code != 0
    if victim != "node":
        assert "Rank 1 was killed by SIGKILL." in (out if victim == "rank" else err)
