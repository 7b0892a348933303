"""The parts of the wire through mpiexec that need no MPI."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from helpers import wait_until

from distdemo.errors import UsageError
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.keeper import Keeper
from distdemo.launcher.records import MpiStart, WorldSpec
from distdemo.launcher.wires import confine, shim, starter
from distdemo.launcher.wires.caller import greet
from distdemo.launcher.wires.confine import Confinement
from distdemo.launcher.wires.mpiexec import MpiexecWire

IDLE = (sys.executable, "-c", "import select; select.select([], [], [], 60)")


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
    return WorldSpec(
        2, "mpi", deadline=timeout, mpi_start=MpiStart("mpiexec", command, (("A", "@"),))
    )


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


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where private folders are made, which has to be empty at the end."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr(starter, "_SHARED_MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("distdemo-")] == []


def test_an_mpiexec_that_cannot_be_run_is_told(interrupts, temporary):
    with pytest.raises(UsageError, match="/no/such/mpiexec can't be run"):
        MpiexecWire(world("/no/such/mpiexec", "-n"), interrupts)


def test_a_temporary_folder_whose_path_is_too_long_for_a_socket_is_told(
    interrupts, temporary, monkeypatch
):
    long = temporary / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(UsageError) as caught:
        MpiexecWire(world(*IDLE), interrupts)
    assert "can't be opened" in caught.value.what
    assert str(long) in caught.value.why
    assert "TMPDIR" in caught.value.hint


def test_where_nothing_could_clean_up_nothing_is_begun(interrupts, temporary, monkeypatch):
    begun = temporary.parent / "begun"
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(UsageError, match="process that cleans up after a world can't be started"):
        MpiexecWire(world("touch", str(begun)), interrupts)
    assert not begun.exists()


def test_the_last_words_of_an_mpiexec_that_fails_are_shown(interrupts):
    program = "print('-' * 60); print('no slots left'); print('=' * 60); raise SystemExit(1)"
    error = trouble(interrupts, sys.executable, "-c", program)
    assert error.what == "mpiexec could not start the ranks."
    assert error.why == "no slots left"


def test_processes_that_never_come_are_not_waited_for_longer_than_the_world(interrupts):
    began = time.monotonic()
    error = trouble(interrupts, *IDLE, timeout=0.2)
    assert error.what == "mpiexec started 0 of 2 processes within 0.2 s."
    assert time.monotonic() - began < 3


def test_a_signal_ends_the_wait(interrupts):
    wire = MpiexecWire(world(*IDLE), interrupts)
    try:
        signal.raise_signal(signal.SIGINT)
        assert wire.ready(0) is False
    finally:
        wire.close()


def test_mpiexec_is_told_nothing_of_an_engine_around_it(interrupts, monkeypatch):
    for name in ("PMI_RANK", "PMIX_NAMESPACE", "SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("MY_OWN", "kept")
    wire = MpiexecWire(world(*IDLE), interrupts)
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


@pytest.fixture
def may_confine():
    """Skips where a process may not take its child's descriptors, nor bind to a device."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("descriptors of others are to be had on Linux alone")
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child,
        socket.socket() as end,
        open(os.pidfd_open(child.pid), "rb") as handle,  # noqa: PTH123 - a descriptor
    ):
        copy = ctypes.CDLL(None).syscall(confine._PIDFD_GETFD, handle.fileno(), 0, 0)
        if copy < 0:
            pytest.skip("this container does not let a process take its child's descriptors")
        os.close(copy)
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        except OSError as error:
            pytest.skip(f"sockets can't be bound to a device here: {error}")


def test_what_the_processes_of_a_session_listen_on_is_bound_to_loopback(may_confine):
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    confinement = Confinement(process.pid)
    confinement.tighten()  # too early for all
    assert process.stdout.readline() == "up\n"
    confinement.tighten()
    out, _ = process.communicate("tell\n", timeout=20)
    assert out.count("lo\\x00") == 2


OPENS = """
import select, socket, time
until = time.monotonic() + 10
with socket.create_server(("0.0.0.0", 0)) as door:
    while not (name := door.getsockopt(socket.SOL_SOCKET, 25, 16)) and time.monotonic() < until:
        select.select([], [], [], 0.001)
print("bound to", name.decode().strip(chr(0)) or "nothing")
raise SystemExit(1)
"""


def test_what_mpiexec_opens_is_bound_before_any_shim_comes(interrupts, may_confine):
    assert trouble(interrupts, sys.executable, "-c", OPENS).why == "bound to lo"


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_a_descriptor_that_is_gone_meanwhile_hides_no_other():
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.readlink(f"/proc/self/fd/{server.fileno()}")[8:-1]  # noqa: PTH115 - as text
        # The descriptor through which the folder is listed is in the list, and gone after it.
        assert list(confine._sockets(os.getpid(), {inode})) == [server.fileno()]


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


@pytest.mark.parametrize("ended", [True, False])
def test_a_keeper_kills_a_session_that_the_launcher_did_not_end(tmp_path, ended):
    with subprocess.Popen(IDLE, start_new_session=True) as process:
        keeper = Keeper([str(full_folder(tmp_path))])
        keeper.watch(process.pid)
        keeper.close(ended=ended)
        assert list(tmp_path.iterdir()) == []
        if ended:  # then it is nobody's any more
            assert process.poll() is None
            process.kill()
        assert process.wait(10) == -signal.SIGKILL


def test_a_keeper_cleans_up_after_a_launcher_that_was_killed(tmp_path):
    folder = full_folder(tmp_path)
    program = f"""
        import json, os, signal, subprocess, sys
        from distdemo.launcher.keeper import Keeper
        child = subprocess.Popen({IDLE!r}, start_new_session=True)
        keeper = Keeper([{str(folder)!r}])
        keeper.watch(child.pid)
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
