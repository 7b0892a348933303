"""``distdemo doctor`` on this machine, with and without injected faults."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shlex
import signal
import socket
from typing import Any

import pytest
from forked import in_a_child
from helpers import PATIENCE, wait_until

from distdemo.doctor.gpus import judge

pytestmark = pytest.mark.processes


def finding(document: Any, check: str) -> Any:
    (only,) = [finding for finding in document["findings"] if finding["check"] == check]
    return only


def assert_explained(document: Any, check: str, *words: str) -> None:
    """Assert a broken finding with these words, an explanation, a fix and an error."""
    broken = finding(document, check)
    assert broken["level"] == "broken", broken
    assert broken["why"]
    assert broken["hint"]
    for word in words:
        assert word in broken["what"]
    assert document["ok"] is False
    assert any(broken["what"] in error["what"] for error in document["errors"])


# --------------------------------------------------------------------------------- this machine


def test_all_checks_and_the_test_world_run(start):
    with start("distdemo", "doctor", "--format", "json") as run:
        code, out, err = run.finish()
        run.leaves_nothing()
    document = json.loads(out)
    assert (code, err) == (0 if document["ok"] else 1, "")
    assert "a world of 2 ranks over gloo: verified" in finding(document, "test world")["what"]
    assert "the check failed" not in out
    assert sum(document["counts"].values()) == len(document["findings"]) > 15


def test_the_gpu_child_prints_what_is_judged(start):
    with start("python", "-m", "distdemo.doctor.gpus") as run:
        code, out, err = run.finish()
    assert code == 0, err
    facts = json.loads(out)
    level = "broken" if facts["for_gpus"] else "warning"
    assert judge(facts).level == ("fine" if facts["gpus"] else level)


# -------------------------------------------------------------------------------- injected faults


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting and renaming this machine need root")
def test_injected_faults_are_found_and_explained(command, monkeypatch):
    """Check an unknown hostname, a tiny /dev/shm and few open files, in new namespaces."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonexistent0")

    def poll():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000 | 0x04000000):  # CLONE_NEWNS and CLONE_NEWUTS of linux/sched.h
            return
        private = 1 << 18 | 1 << 14  # MS_PRIVATE and MS_REC of linux/mount.h
        assert libc.mount(b"none", b"/", None, private, None) == 0
        assert libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=1m") == 0
        socket.sethostname("no-such-host-of-ours")
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        line = ["doctor", "--only", "network", "--only", "memory", "--format", "json"]
        code, out, _ = command(*line)
        document = json.loads(out)
        assert code == 1
        assert_explained(document, "hostname", "no-such-host-of-ours", "does not resolve")
        assert_explained(document, "shared memory", "has 1 MiB free of 1 MiB")
        assert_explained(document, "open files", "room for 6 ranks")
        assert_explained(document, "gloo interface", "no interface 'nonexistent0'")

    in_a_child(poll)


def test_ctrl_c_gives_no_verdict_and_leaves_no_process(start, tmp_path):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    asked, slow = tmp_path / "asked", tmp_path / "mpiexec"
    slow.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(asked))}\nexec sleep 60\n")
    slow.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with start("distdemo", "doctor", "--only", "mpi", "--format", "json", env=path) as run:
        assert wait_until(asked.exists, PATIENCE)
        run.process.send_signal(signal.SIGINT)
        code, out, err = run.finish()
        (error,) = json.loads(out)["errors"]
        assert (code, err, error["what"]) == (130, "", "Interrupted.")
        run.leaves_nothing()
