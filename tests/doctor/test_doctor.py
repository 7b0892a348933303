"""``distdemo doctor`` on this machine: as it is, and with faults planted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
from helpers import PATIENCE, running, wait_until, warmed

from distdemo.doctor.gpus import _judged

DOCTOR = [sys.executable, "-m", "distdemo", "doctor", "--format", "json"]


def unshared(kind: str, before: str, *arguments: str) -> Any:
    """The document of a doctor in a namespace of its own, in which this was done before."""
    line = f"{before} && exec {shlex.join([*DOCTOR, *arguments])}"
    command = ["unshare", kind, "sh", "-c", line]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=None
    )
    if done.returncode not in (0, 1) or not done.stdout:
        pytest.skip(f"no namespace of one's own can be had here: {done.stderr.strip()[:200]}")
    return json.loads(done.stdout)


def finding(found: Any, check: str) -> Any:
    (only,) = [each for each in found["findings"] if each["check"] == check]
    return only


def assert_explained(found: Any, check: str, *words: str) -> None:
    """Broken, said in these words, with why and what to do, and the run is not ok."""
    one = finding(found, check)
    assert one["level"] == "broken", one
    assert one["why"]
    assert one["do"]
    for word in words:
        assert word in one["seen"]
    assert found["ok"] is False
    assert any(one["seen"] in error["what"] for error in found["errors"])


# --------------------------------------------------------------------------------- this machine


def test_it_looks_at_everything_and_tries_a_world():
    done = subprocess.run(DOCTOR, capture_output=True, text=True, timeout=PATIENCE, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    assert done.stderr == ""
    assert finding(found, "world")["level"] == "fine"
    assert "a world of 2 ranks over gloo: verified" in finding(found, "world")["seen"]
    unlooked = [each for each in found["findings"] if "could not be looked at" in each["seen"]]
    assert unlooked == []
    assert {each["topic"] for each in found["findings"]} >= {"network", "mpi", "gpus"}
    assert sum(found["counts"].values()) == len(found["findings"])


def test_a_table_without_a_world_or_torch(command):
    code, out, err = command("doctor", "--only", "memory", "--quiet")
    assert code in (0, 1)
    assert err == ""
    assert out.splitlines()[-1].endswith("fine.") or "skipped" in out


def test_the_child_that_asks_for_gpus_answers_what_is_read_of_it(tmp_path):
    with warmed(["-m", "distdemo.doctor.gpu_child"], tmp_path) as run:
        code, out, err = run.finish()
    assert code == 0, err
    found = json.loads(out)
    assert set(found) == {"gpus", "archs", "apart", "error", "warnings"}
    level = _judged(found).level
    assert level == "fine" if found["gpus"] else level == "broken"


# --------------------------------------------------------------------------------- planted faults


@pytest.mark.skipif(os.geteuid() != 0, reason="renaming this machine needs root")
def test_a_hostname_that_does_not_resolve():
    found = unshared("--uts", "hostname no-such-host-of-ours", "--only", "network")
    assert_explained(found, "hostname", "no-such-host-of-ours", "does not resolve")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_tiny_dev_shm():
    mount = "mount -t tmpfs -o size=1m none /dev/shm"
    found = unshared("--mount", mount, "--only", "memory")
    assert_explained(found, "shared-memory", "has 1 MiB free of 1 MiB")


def test_an_interface_for_gloo_that_is_not_there(command, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonexistent0")
    code, out, _ = command("doctor", "--only", "network", "--format", "json")
    assert code == 1
    assert_explained(json.loads(out), "gloo-interface", "no interface 'nonexistent0'")


def test_few_open_files():
    line = f"ulimit -n 64 && exec {shlex.join([*DOCTOR, '--only', 'memory'])}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    assert_explained(json.loads(done.stdout), "open-files", "64 at most")


def test_an_mpiexec_of_another_mpi(command, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py", reason="without mpi4py no mpiexec is the wrong one")
    code, out, _ = command("doctor", "--only", "mpi", "--format", "json")
    own = finding(json.loads(out), "mpi-library")
    if own["level"] != "fine":
        pytest.skip(f"mpi4py has no MPI here: {own['seen']}")
    said = "HYDRA build details:" if "Open MPI" in own["seen"] else "mpiexec (Open MPI) 5.0.11"
    other = tmp_path / "mpiexec"
    other.write_text(f"#!/bin/sh\necho '{said}'\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    code, out, _ = command("doctor", "--only", "mpi", "--format", "json")
    assert code == 1
    assert_explained(json.loads(out), "mpiexec", str(other), "and mpi4py loads")


@pytest.mark.parametrize("form", ["table", "json"])
def test_interrupted_it_says_that_there_is_no_verdict_and_leaves_nothing(tmp_path, form):
    pytest.importorskip("mpi4py", reason="without mpi4py no mpiexec is asked")
    asked, slow = tmp_path / "asked", tmp_path / "mpiexec"
    slow.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(asked))}\nexec sleep 60\n")
    slow.chmod(0o755)
    (tmp_path / "t").mkdir()
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    arguments = ["-m", "distdemo", "doctor", "--only", "mpi", "--format", form]
    with running(arguments, tmp_path / "t", env=path) as run:
        assert wait_until(asked.exists, PATIENCE)
        run.process.send_signal(signal.SIGINT)
        code, out, err = run.finish()
        assert code == 130
        if form == "json":
            assert json.loads(out)["errors"][0]["what"] == "Interrupted."
        said = out if form == "json" else err
        assert "There is no verdict" in said
        assert "ranks are gone" not in said
        run.leaves_nothing()


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_usage_errors_come_before_torch():
    code = (
        "import sys\nfrom distdemo.cli.main import run\n"
        "code = run(['doctor', '--only', 'nowhere'])\n"
        "assert 'torch' not in sys.modules\nsys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 3
