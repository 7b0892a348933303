"""``distdemo rpc`` as a user types it: one command, ranks that others started, and refusals."""

from __future__ import annotations

import json
import os
import signal

import pytest
from helpers import commanded, free_port

from distdemo.rpc import loading, remote


def test_one_command_shows_calls_losses_weights_and_what_state_rpc_is_in(command):
    code, out, err = command("rpc", "-n", "3")
    assert code == 0, out + err
    assert err == ""
    for words in (
        "3 workers",
        "swap('ping')",
        "ValueError('< 0')",
        "output.forward()",
        "Loss over RPC",
        "hidden.weight",
        "✓ Weights as in one process, bit for bit.",
        "maintenance mode",
    ):
        assert words in out, words
    assert "Warning" not in out


def test_the_document_is_all_that_is_said(command):
    code, out, err = command(
        "rpc", "--steps", "2", "--lr", "0.1", "--seed", "3", "--format", "json"
    )
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["command"] == "rpc"
    assert document["ok"] is True
    assert document["spec"] == {"steps": 2, "learning_rate": 0.1, "seed": 3}
    assert len(document["training"]["losses"]) == 3
    assert all(call["ok"] for call in document["calls"])


def test_quiet_is_one_line(command):
    assert command("rpc", "-q", "--steps", "1") == (
        0,
        "✓ 18 calls right; trained over RPC as in one process.\n",
        "",
    )


def test_a_proof_that_does_not_hold_is_exit_code_1(command):
    code, out, _ = command("rpc", "-q", "--lr", "1e-30", "--steps", "1")
    assert code == 1
    assert out.startswith("✗ 1 of 5 proofs failed: The loss fell.")


def test_a_killed_worker_is_named(command, monkeypatch):
    def root(number):
        os.kill(os.getpid(), signal.SIGKILL)

    for name in ("__module__", "__qualname__"):
        setattr(root, name, getattr(remote.root, name))
    monkeypatch.setattr(remote, "root", root)
    code, out, err = command("rpc", "-n", "3")
    assert code == 1
    assert err == ""
    assert out.startswith("worker1 (rank 1) was killed by SIGKILL.\n")
    assert "The last that" not in out, "torch's own words are not the worker's"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("-n", "1"), "--world-size 1 is too small"),
        (("-n", "25"), "24 workers at most"),
        (("--steps", "0"), "--steps 0 is out of range"),
        (("--seed", "-1"), "--seed -1 can't be used."),
        (
            ("-b", "gloo"),
            "-b means nothing to rpc.\nIt belongs to: every operation, trace, bench, run, train, ",
        ),
        (("--shape", "2"), "It belongs to: 9 of 10 operations, trace, explain."),
        (("--momentum", "0"), "--momentum means nothing to rpc.\nIt belongs to: train.\n"),
    ],
)
def test_what_cannot_be_done_is_exit_code_2_in_three_lines(command, arguments, what):
    code, out, err = command("rpc", *arguments)
    assert code == 2
    assert out == ""
    assert what in err
    assert "Traceback" not in err


def test_a_torch_without_rpc_is_refused(command, monkeypatch):
    from torch.distributed import rpc

    monkeypatch.setattr(rpc, "is_available", lambda: False)
    assert loading.MODULES
    code, out, err = command("rpc")
    assert code == 2
    assert out == ""
    assert err.startswith("distdemo rpc can't be run here.\n")


def test_help_says_what_state_rpc_is_in(command):
    code, out, _ = command("rpc", "--help")
    assert code == 0
    assert "maintenance mode" in " ".join(out.split())


def test_ranks_that_others_started_are_workers_and_nothing_of_torch_s_own_is_said(tmp_path):
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    temporary = [tmp_path / "0", tmp_path / "1"]
    for folder in temporary:
        folder.mkdir()
    with (
        commanded(["rpc", "-q"], temporary[0], env={**where, "RANK": "0"}) as first,
        commanded(["rpc", "-q"], temporary[1], env={**where, "RANK": "1"}) as second,
    ):
        said = "✓ 18 calls right; trained over RPC as in one process.\n"
        assert (first.finish(), second.finish()) == ((0, said, ""), (0, "", ""))
        for run in (first, second):
            run.leaves_nothing()
