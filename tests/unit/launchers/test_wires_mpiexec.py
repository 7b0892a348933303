"""The parts of the wire through mpiexec that need no MPI."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from helpers import wait_until

from distdemo.errors import UsageError
from distdemo.launchers.interrupts import Interrupts
from distdemo.launchers.wires import shim
from distdemo.launchers.wires.caller import greet
from distdemo.launchers.wires.confine import confine
from distdemo.launchers.wires.keeper import Keeper
from distdemo.launchers.wires.mpiexec import MpiexecWire
from distdemo.model import WireUp, WorldSpec

SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def interrupts():
    with Interrupts() as found:
        yield found


@pytest.fixture
def door(tmp_path):
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(tmp_path / "door"))
        found.listen()
        found.settimeout(20)
        yield found


def world(*command, timeout=20.0):
    return WorldSpec(2, "mpi", timeout=timeout, wireup=WireUp("mpiexec", command, (("A", "@"),)))


def trouble(interrupts, *command, **settings):
    """What the wire says of this mpiexec; nothing of it may be left then."""
    wire = MpiexecWire(world(*command, **settings), interrupts)
    folder = Path(wire._starter.settings["A"])
    assert folder.stat().st_mode & 0o777 == 0o700
    try:
        with pytest.raises(UsageError) as caught:
            wire.ready(0)
    finally:
        wire.close()
    assert not folder.exists()
    assert not Path(f"/proc/{wire._starter.pid}").exists()
    return caught.value


# --------------------------------------------------------------------------------- no shims come


def test_an_mpiexec_that_cannot_be_run_is_told(interrupts):
    with pytest.raises(UsageError, match="/no/such/mpiexec can't be run"):
        MpiexecWire(world("/no/such/mpiexec", "-n"), interrupts)


def test_the_last_words_of_an_mpiexec_that_fails_are_shown(interrupts):
    program = "print('-' * 60); print('no slots left'); print('=' * 60); raise SystemExit(1)"
    error = trouble(interrupts, sys.executable, "-c", program)
    assert error.what == "mpiexec could not start the ranks."
    assert error.why == "no slots left"


def test_processes_that_never_come_are_not_waited_for_longer_than_the_world(interrupts):
    began = time.monotonic()
    error = trouble(interrupts, *SLEEPS, timeout=0.2)
    assert error.what == "mpiexec started 0 of 2 processes within 0.2 s."
    assert time.monotonic() - began < 3


def test_a_signal_ends_the_wait(interrupts):
    wire = MpiexecWire(world(*SLEEPS), interrupts)
    try:
        signal.raise_signal(signal.SIGINT)
        assert wire.ready(0) is False
    finally:
        wire.close()


def test_mpiexec_is_told_nothing_of_an_engine_around_it(interrupts, monkeypatch):
    for name in ("PMI_RANK", "PMIX_NAMESPACE", "SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("MY_OWN", "kept")
    wire = MpiexecWire(world(*SLEEPS), interrupts)
    wire.close()
    told = wire._starter.environment
    assert told["MY_OWN"] == "kept"
    assert told["A"] == told["TMPDIR"]
    assert not [name for name in told if name.startswith(("PMI", "SLURM_", "OMPI_"))]


# -------------------------------------------------------------------------------------- the shim


def start_shim(tmp_path, **environment):
    command = [sys.executable, "-I", "-S", shim.__file__, str(tmp_path / "door")]
    descriptors = tuple(int(environment[name]) for name in ("PMI_FD",) if name in environment)
    return subprocess.Popen(command, env={**os.environ, **environment}, pass_fds=descriptors)


def test_a_shim_hands_on_its_rank_its_environment_and_its_descriptor(tmp_path, door):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start_shim(tmp_path, PMI_RANK="3", NEW="1", PMI_FD=str(theirs.fileno()))
        line, _ = door.accept()
        with line:
            caller = greet(line)
            assert caller.rank == 3
            told = caller.told(dict(os.environ))
            assert (told["NEW"], told["PMI_RANK"]) == ("1", "3")
            assert "PATH" not in told
            ((name, end),) = caller.sockets()
            assert name == "PMI_FD"
            os.write(end.fileno(), b"hello")
            assert ours.recv(5) == b"hello"
            end.close()
            assert process.poll() is None  # it stays while the launcher wants it
        assert process.wait(10) == 0


def test_a_shim_that_was_not_told_its_rank_says_so(tmp_path, door):
    process = start_shim(tmp_path)
    line, _ = door.accept()
    with line, pytest.raises(LookupError):
        greet(line)
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    "words", [b"", b"GET / HTTP/1.1\r\n\r\n", (9).to_bytes(8, "big") + b"half"]
)
def test_who_is_no_shim_is_sent_away(tmp_path, door, words):
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "door"))
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        line, _ = door.accept()
        with line, pytest.raises(OSError, match=r"no shim|too soon"):
            greet(line)


# ---------------------------------------------------------------------------- what is kept clean

LISTENER = """
import socket, sys
with socket.create_server(("0.0.0.0", 0)) as door, socket.create_server(("127.0.0.1", 0)) as other:
    print("up", flush=True)
    sys.stdin.readline()
    print([each.getsockopt(socket.SOL_SOCKET, 25, 16).decode() for each in (door, other)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are bound to a device on Linux alone")
def test_what_the_processes_of_a_session_listen_on_is_bound_to_loopback():
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    confine(process.pid)
    out, _ = process.communicate("tell\n", timeout=20)
    if "lo" not in out:
        pytest.skip("this container does not let a process take its child's descriptors")
    assert out.count("lo\\x00") == 2


def full_folder(tmp_path):
    folder = tmp_path / "private"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    return folder


def test_a_keeper_removes_what_it_was_told_and_nothing_else(tmp_path):
    folder = full_folder(tmp_path)
    (tmp_path / "kept").write_text("x")
    keeper = Keeper([str(folder), str(tmp_path / "never-made")])
    keeper.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_keeper_cleans_up_after_a_launcher_that_was_killed(tmp_path):
    folder = full_folder(tmp_path)
    program = f"""
        import json, os, signal, subprocess, sys
        from distdemo.launchers.wires.keeper import Keeper
        child = subprocess.Popen({SLEEPS!r}, start_new_session=True)
        keeper = Keeper([{str(folder)!r}], child.pid)
        print(json.dumps([child.pid, keeper._process.pid]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=30,
    )
    assert done.returncode == -signal.SIGKILL
    pids = json.loads(done.stdout)
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5)
    assert not folder.exists()


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
