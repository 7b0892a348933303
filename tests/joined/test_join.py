"""The command as one process of a world that an engine started."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
from helpers import LOOPBACK, children, free_port, marked_processes, tcp_addresses, wait_until
from processes import by_hand

pytestmark = pytest.mark.processes
HELD_UP = ["barrier", "-n", "2", "--straggler", "1:600", "--timeout", "600"]


def joined(node):
    """Return a node's rank once it is connected; the first child is the control process."""

    def connected():
        return len(children(node)) == 2 and all(tcp_addresses(pid) for pid in children(node))

    assert wait_until(connected)
    return children(node)[1:]


def struck(runs, strike):
    """Act once all ranks run; return each node's (exit code, stdout, stderr)."""
    ranks = [joined(run.pid) for run in runs]
    strike(*ranks)
    said = [run.finish() for run in runs]
    for run in runs:
        run.leaves_nothing()
    return said


# ---------------------------------------------------------------------------------- terminals


def test_two_terminals_make_one_world(start):
    runs = start.nodes(["all-reduce", "-n", "3"])
    first, second = [run.finish() for run in runs]
    for run in runs:
        run.leaves_nothing()
    assert first[0] == second[0] == 0
    assert "3 ranks · gloo" in first[1]
    assert first[1].count("[30 33 36 39]") == 3
    assert (first[2], second[1]) == ("", "")
    assert second[2].startswith("Rank 2 ran here; the run succeeded. Node 0 (127.0.0.1) shows")


def test_a_terminal_with_a_different_command_is_reported(start):
    asked = ["broadcast", "--format", "json"], ["broadcast", "--root", "1", "-n", "4"]
    runs = start.nodes(*asked)
    first, second = [run.finish() for run in runs]
    assert first[1], first
    (error,) = json.loads(first[1])["errors"]
    assert (first[0], second[0]) == (1, 1)
    assert error["ranks"] == [2, 3]
    assert "was started with a different command: distdemo broadcast --root 1" in error["what"]
    assert error["hint"] == "Give every process the same command."
    assert "Rank 0 was started with a different command: distdemo broadcast" in second[2]


def test_a_killed_rank_of_another_node_is_named_and_all_end(start):
    runs = start.nodes([*HELD_UP, "--format", "json"])
    first, second = struck(runs, lambda _, ranks: os.kill(ranks[0], signal.SIGKILL))
    assert (first[0], first[2], second[:2]) == (1, "", (1, ""))
    document = json.loads(first[1])
    (error,) = document["errors"]
    assert error["ranks"] == [1]
    assert "SIGKILL" in error["what"]
    assert document["world"]["outcomes"][1]["kind"] == "died"


def test_a_killed_node_is_named_and_without_node_0_the_other_says_so(start):
    runs = start.nodes(HELD_UP)
    first, second = struck(runs, lambda *_: runs[1].process.kill())
    assert (first[0], second[0]) == (1, -signal.SIGKILL)
    assert f"Rank 1: its process exited without a report (host {socket.gethostname()})" in first[1]
    runs = start.nodes(HELD_UP)
    first, second = struck(runs, lambda *_: runs[0].process.kill())
    assert (first[:2], second[:2]) == ((-signal.SIGKILL, ""), (1, ""))
    assert "Node 0 gave no verdict.\nThe connection to 127.0.0.1:" in second[2]


@pytest.mark.parametrize(
    ("node", "number", "codes"),
    [(0, signal.SIGINT, (130, 130)), (1, signal.SIGTERM, (1, 1))],
)
def test_a_signal_to_either_node_ends_a_world_on_loopback_and_says_where_ranks_were(
    start, node, number, codes
):
    def strike(*_):
        for pid in [pid for run in runs for pid in marked_processes(run.mark)]:
            seen.update(tcp_addresses(pid))
            listening.update(tcp_addresses(pid, listening=True))
        runs[node].process.send_signal(number)

    seen: set[str] = set()
    listening: set[str] = set()
    runs = start.nodes(HELD_UP)
    said = struck(runs, strike)
    assert listening
    assert seen <= LOOPBACK  # no other machine can reach it
    assert tuple(code for code, _, _ in said) == codes
    assert ("Interrupted." if number == signal.SIGINT else "SIGTERM") in said[node][2]
    assert "(phase: " in said[0][1] + said[0][2]
    assert "Traceback" not in said[0][2] + said[1][2]


# ------------------------------------------------------------------------- ranks set up by hand


def test_a_node_that_can_not_take_part_is_reported_by_node_0(start, tmp_path):
    limited = tmp_path / "program.py"
    limited.write_text(
        "import torch; torch.cuda.is_initialized = lambda: True\n"
        "from distdemo.__main__ import main; main()"
    )
    port = free_port()
    one = start("distdemo", "all-reduce", "--format", "json", env=by_hand(port, 0))
    other = start("python", limited, "all-reduce", "--start-method", "fork", env=by_hand(port, 1))
    first, second = one.finish(), other.finish()
    assert first[1], first
    (error,) = json.loads(first[1])["errors"]
    assert (first[0], second[0]) == (1, 2)
    assert error["ranks"] == [1]
    assert error["what"].startswith("Rank 1: can't take part: ")
    assert "Ranks can't be forked" in error["what"]


WORLDS = """
import os
import sys
from distdemo.joined.engines import detect
from distdemo.joined.nodes import ParticipationEnded, join
from distdemo.launcher.local import sends
from distdemo.launcher.records import WorldSpec

@sends(tuple[str, int])
def work(rank, what: str, more: object) -> tuple[int, str]:
    if what == "fail" and rank.rank == 1:
        raise ValueError("as asked")
    rank.send((what, rank.rank))
    return rank.count("ranks", 1), what

if __name__ == "__main__":
    world, more = join(detect(os.environ), "words"), object()
    for what in ("one", "fail", "three"):
        told = []
        try:
            report = world.run(
                WorldSpec(2),
                work,
                (what, more),
                on_message=lambda rank, value: told.append((rank, *value)),
            )
        except ParticipationEnded as end:
            world.end(0)
            sys.exit(end.code)
        kinds = [outcome.kind for outcome in report.outcomes]
        print(what, kinds, sorted(told), sorted(report.values), getattr(report.verdict, "what", ""))
    world.end(7)
"""


def test_one_world_follows_another_and_a_failure_ends_only_its_own(start, tmp_path):
    program = tmp_path / "worlds.py"
    program.write_text(WORLDS)
    zero, other = start.by_hand("python", program)
    (code, out, err), (second, nothing, _) = zero.finish(), other.finish()
    assert (code, second, nothing) == (0, 7, ""), err
    one, fail, three = out.splitlines()
    told = "[(0, 'one', 0), (1, 'one', 1)] [(1, 'one'), (2, 'one')]"
    assert one.strip() == f"one ['returned', 'returned'] {told}"
    assert "'raised'" in fail
    assert fail.endswith("Rank 1 raised ValueError: as asked")
    assert three.strip() == one.strip().replace("one", "three")


def test_a_size_that_contradicts_the_engine_is_reported(command, monkeypatch):
    for name, value in by_hand(29500, 1, 2).items():
        monkeypatch.setenv(name, value)
    code, out, err = command("all-reduce", "-n", "4")
    assert (code, out) == (2, "")
    assert err.startswith("--world-size 4, but this world has 2 ranks.")
