"""Commands in the warm process do what they do in their own, and leave it as it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from helpers import PATIENCE, children, wait_until
from processes import Start, Terminal
from warmed import COMMAND, Warm, started

from distdemo.launcher import handover
from distdemo.warm import same

HERE = Path(__file__).parent
pytestmark = pytest.mark.processes


# ------------------------------------------------------------------------------------- the same


@pytest.mark.parametrize(
    "words", ["all-reduce --root 9", "learn hello --format json", "explain scatter -q"]
)
def test_output_and_exit_code_are_those_of_its_own_process(words: str, warm: Warm) -> None:
    before = warm.status()["commands"]
    ours, theirs = (warm.run(*words.split(), env=env, input=b"") for env in (warm.env, warm.cold))
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    assert re.sub(rb"[\d.]+(?= m?s|,?$)", b"N", ours.stdout) == re.sub(
        rb"[\d.]+(?= m?s|,?$)", b"N", theirs.stdout
    )
    assert wait_until(lambda: warm.status()["commands"] == before + 1)  # and not in its own


def test_a_program_has_what_its_command_has(warm: Warm) -> None:
    def prepare() -> None:
        os.umask(0o27)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR2])

    facts = []
    for env in (warm.env, warm.cold):
        own = {**env, "TMPDIR": str(warm.place), "TZ": "Asia/Kolkata", "OWN": "\udcff"}
        with tempfile.TemporaryFile() as file:
            file.write(b"another input")
            file.seek(0)
            words = ("run", HERE / "facts.py", "-n", "1", "--", file.fileno(), "ä")
            options = {"preexec_fn": prepare, "pass_fds": [file.fileno()]}
            ended = warm.run(*words, env=own, input=b"typed\n", **options)
        assert ended.returncode == 0, ended.stderr
        facts.append(json.loads((warm.place / "facts").read_text()))
    assert facts[0] == facts[1]
    assert facts[0]["input"] == "typed\n"
    assert facts[0]["descriptor"] == "another input"


def test_a_session_of_pytest_is_that_of_its_own_process(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SESSION)
    before = warm.status()["commands"]
    words = (sys.executable, "-m", "pytest", "-v", "-W", "error", "-p", "no:cacheprovider")
    ours, theirs = (
        warm.run(*words, cwd=tmp_path, env=env, text=True) for env in (warm.env, warm.cold)
    )
    assert ours.returncode == theirs.returncode == 1
    assert "torch was loaded" in ours.stdout
    assert re.sub(r"\d+\.\d+s|=+", "", ours.stdout) == re.sub(
        r"\d+\.\d+s|=+", "", theirs.stdout.replace("torch was not loaded", "torch was loaded")
    )
    assert ours.stderr == theirs.stderr
    assert wait_until(lambda: warm.status()["commands"] == before + 1)


SESSION = """
import sys
import pytest
WAS_LOADED = "torch" in sys.modules

@pytest.mark.ranks(2)
def test_on_ranks(rank):
    assert rank == 0

def test_here():
    print(f"torch was {'not ' * (not WAS_LOADED)}loaded")
    assert [1, 2] == [1, 3]
"""
"""Test file with two tests that fail."""


def test_a_report_says_that_the_ranks_come_from_the_warm_process(warm: Warm) -> None:
    assert (
        "Started by fork: from the warm process" in warm.run("hello", "--verbose", text=True).stdout
    )


# --------------------------------------------------------------------------------- not the same


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("nice -n 5", "nice value"),
        ("prlimit --nofile=500:", "limit on open files"),
        ("taskset -c 0", "processors"),
        ("setpriv --no-new-privs", "no_new_privs"),
        ("unshare --net", "net namespace"),
        ("choom -n 500 --", "oom_score_adj"),
        ("chrt --batch 0", "scheduling policy"),
        ("setarch -R", "personality"),
        ("env MKLDNN_VERBOSE=0", "MKLDNN_VERBOSE"),  # which C code reads
        ("env OMP_NUM_THREADS=3", "OMP_NUM_THREADS"),
        ("env TORCH_LOGS=dist", "TORCH_LOGS"),
        ("env KINETO_USE_DAEMON=", "KINETO_USE_DAEMON"),  # which torch reads
        ("env LC_NUMERIC=C", "LC_NUMERIC"),
        ("env PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED"),
    ],
)
def test_a_difference_is_named(before: str, name: str, warm: Warm) -> None:
    program, *options = before.split()
    if program in ("setpriv", "unshare", "choom") and os.geteuid() != 0:
        pytest.skip("needs root")
    if program == "taskset" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("needs two processors")
    assert warm.status(f"/usr/bin/{program}", *options)["cold"].startswith(name)


def test_a_command_with_a_difference_runs_in_its_own_process(warm: Warm) -> None:
    count = warm.status()["commands"]
    ended = warm.run("/usr/bin/nice", "-n", "5", *COMMAND, "explain", "--quiet")
    assert ended.returncode == 0, ended.stderr
    assert warm.status()["commands"] == count


@pytest.mark.parametrize("option", ["-O", "-u", "-Wignore", "-Xdev", "-s"])
def test_an_option_of_python_is_a_difference(option: str, warm: Warm) -> None:
    line = (sys.executable, option, *COMMAND[1:], "warm", "--status", "--format", "json")
    assert json.loads(warm.run(*line).stdout)["cold"].startswith("flags of Python")


def test_a_file_that_hides_a_loaded_module_is_a_difference(warm: Warm, tmp_path: Path) -> None:
    file = tmp_path / "tty.py"
    file.write_text("MINE = True")
    program = tmp_path / "program.py"
    program.write_text("import tty\nassert tty.MINE")
    assert warm.run("run", program, "-n", "1").returncode == 0
    assert warm.status(cwd=tmp_path)["cold"] == f"{file} hides the module tty."


def test_all_variables_that_are_read_at_import_are_compared() -> None:
    ended = subprocess.run([sys.executable, "-c", READ_VARIABLES], capture_output=True, check=True)
    names = ended.stdout.decode().split()
    assert len(names) > 9
    assert set(names) == same.variables(dict.fromkeys(names, "")).keys()


READ_VARIABLES = """
import os
names = set()
kind = type(os.environ)
class Recorded(kind):
    def __getitem__(self, name):
        names.add(name)
        return super().__getitem__(name)
os.environ.__class__ = Recorded
from distdemo.launcher.torch_import import load_torch
load_torch()
from distdemo.warm import host
host._load_modules()
os.environ.__class__ = kind
print(*names)
"""
"""Program that prints the names of the variables that are read until a warm process is ready."""


def test_an_edited_module_ends_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("site")
    module = folder / "sitecustomize.py"
    module.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        for warm in started(tmp_path_factory):
            pid = warm.pid
            module.write_text("import sys; sys.stderr.write('edited')")
            assert b"edited" in warm.run("explain").stderr
            assert wait_until(lambda: not Path(f"/proc/{pid}").exists())  # noqa: B023 - one round


# ----------------------------------------------------------------------------------- ends


class Waiting:
    """A program in the warm process that waits for the end of its input.

    Attributes:
        client: Process that was started.
        program: Process that it became in the warm process.
    """

    def __init__(self, warm: Warm) -> None:
        self.warm = warm
        pipe = subprocess.PIPE
        words = (*COMMAND, "run", str(HERE / "waiting.py"), "-n", "2")
        self.client = subprocess.Popen(
            words, env=warm.env, cwd=warm.place, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert self.client.stdout is not None
        lines = {self.client.stdout.readline(), self.client.stdout.readline()}
        assert lines == {"0 │ 0 is ready\n".encode(), "1 │ 1 is ready\n".encode()}
        self.program = warm.program()

    def end(self) -> int:
        """Return the exit code; assert that no process of the program is left."""
        self.client.communicate(timeout=PATIENCE)
        assert wait_until(lambda: not self.warm.guardians())
        return self.client.returncode


@pytest.mark.parametrize(
    ("target", "number", "code"),
    [
        ("client", signal.SIGINT, 130),
        ("client", signal.SIGTERM, 1),
        ("client", signal.SIGHUP, 1),
        ("client", signal.SIGQUIT, -signal.SIGQUIT),
        ("client", signal.SIGKILL, -signal.SIGKILL),
        ("program", signal.SIGINT, 130),
        ("program", signal.SIGTERM, 1),
        ("program", signal.SIGHUP, 1),
        ("program", signal.SIGQUIT, -signal.SIGQUIT),
        ("program", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_ends_both_processes_and_the_ranks(
    target: str, number: int, code: int, warm: Warm
) -> None:
    waiting = Waiting(warm)
    ranks = children(waiting.program)
    os.kill(waiting.client.pid if target == "client" else waiting.program, number)
    assert waiting.end() == code
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks))


def test_the_end_of_a_guardian_is_the_end_of_its_program(warm: Warm) -> None:
    waiting = Waiting(warm)
    os.kill(warm.guardians()[0], signal.SIGKILL)
    assert waiting.end() == -signal.SIGKILL
    assert wait_until(lambda: not Path(f"/proc/{waiting.program}").exists())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_outlives_the_warm_process_which_leaves_nothing(
    number: int, new_warm: Warm
) -> None:
    waiting = Waiting(new_warm)
    os.kill(new_warm.pid, number)
    assert wait_until(lambda: not new_warm.folder.exists())
    waiting.client.communicate(timeout=PATIENCE)
    assert waiting.client.returncode == 0


@pytest.mark.parametrize("ends", ["--stop", "kill"])
def test_it_removes_only_what_it_has_created(ends: str, new_warm: Warm) -> None:
    other = new_warm.folder / "other"
    other.mkdir()
    (other / "file").write_text("precious")
    pid = new_warm.pid
    (cleanup,) = children(pid)
    if ends == "kill":
        os.kill(pid, signal.SIGKILL)
    else:
        assert new_warm.run("warm", "--stop").returncode == 0
    assert wait_until(lambda: not Path(f"/proc/{cleanup}").exists())
    assert [*new_warm.folder.iterdir()] == [other]
    assert (other / "file").read_text() == "precious"
    shutil.rmtree(new_warm.folder)


def test_a_folder_that_was_there_before_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    warm = Warm(tmp_path_factory.mktemp("w"), tmp_path_factory.mktemp("place"))
    warm.folder.mkdir(mode=0o700)
    assert warm.run("warm", "-q").returncode == 0
    assert warm.run("warm", "--stop").returncode == 0
    assert wait_until(lambda: not any(warm.folder.iterdir()))


def test_it_spares_the_next_one_after_its_folder_was_removed(new_warm: Warm) -> None:
    first = new_warm.pid
    os.kill(first, signal.SIGSTOP)
    shutil.rmtree(new_warm.folder)
    assert new_warm.run("warm", "-q").returncode == 0
    os.kill(first, signal.SIGCONT)
    assert wait_until(lambda: not Path(f"/proc/{first}").exists())
    assert new_warm.status()["state"] == "warm"


def test_many_commands_leave_it_as_it_was(warm: Warm) -> None:
    pid = warm.pid
    before = sorted(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(2):
        clients = [
            subprocess.Popen([*COMMAND, "explain", "-q"], env=warm.env, stdout=subprocess.DEVNULL)
            for _ in range(4)
        ]
        assert [client.wait(PATIENCE) for client in clients] == [0] * 4
    assert wait_until(lambda: sorted(os.listdir(f"/proc/{pid}/fd")) == before)
    assert len(os.listdir(f"/proc/{pid}/task")) <= 2  # with NumPy's, from its import
    assert not warm.guardians()


# --------------------------------------------------------------------------------- whom it trusts


def connected(warm: Warm) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(PATIENCE)
    connection.connect(str(warm.folder / handover.NAME))
    return connection


def with_request(edit: Callable[[dict[str, Any]], object]) -> Callable[[IO[bytes]], object]:
    """Return a function that writes a request, edited, into a file."""
    request: dict[str, Any] = {
        "program": "distdemo.__main__.run_here",
        "argv": ["distdemo", "explain"],
        "path": sys.path,
        "environ": dict(os.environ),
        "facts": handover.own_facts(),
        "descriptors": [0, 1, 2],
    }
    edit(request)
    return lambda file: file.write(json.dumps(request).encode())


@pytest.mark.parametrize(
    "write",
    [
        lambda file: None,
        lambda file: file.truncate(1 << 40),
        lambda file: file.write(b"[" * 100_000),
        with_request(lambda request: request.update(program="os.abort")),
        with_request(lambda request: request.update(descriptors=[])),
        with_request(lambda request: request.update(path=[])),
        with_request(lambda request: request.update(argv=[1])),
        with_request(lambda request: request.pop("facts")),
    ],
)
def test_an_invalid_request_gets_no_answer(write: Callable[[Any], object], warm: Warm) -> None:
    with connected(warm) as connection:
        file = os.memfd_create("request")
        with os.fdopen(file, "wb", buffering=0) as stream:
            write(stream)
            socket.send_fds(connection, [b"request"], [file])
        assert connection.recv(1 << 16) == b""
    assert warm.status()["cold"] == ""


def test_a_client_that_says_nothing_blocks_nobody(warm: Warm) -> None:
    with connected(warm), connected(warm):
        assert warm.run("explain", "-q").returncode == 0
    assert wait_until(lambda: not warm.guardians())


def test_a_warm_process_that_does_not_answer_stops_no_command(warm: Warm) -> None:
    pid = warm.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert warm.run("explain", "-q").returncode == 0
    finally:
        os.kill(pid, signal.SIGCONT)


def plant(kind: str, runtime: Path, listener: socket.socket) -> None:
    """Put something in the place of the warm process's socket, or make its folder unsafe."""
    folder = runtime / "distdemo-warm"
    folder.mkdir(mode=0o700)
    if kind == "file":
        (folder / "warm").write_text("precious")
    elif kind == "link":
        folder.rename(runtime / "elsewhere")
        folder.symlink_to(runtime / "elsewhere")
    if kind != "file":
        listener.bind(f"{folder}/warm")
    if kind == "open":
        folder.chmod(0o755)
    if kind == "foreign":
        os.chown(folder, 65534, 65534)
    if kind not in ("file", "nobody"):
        listener.listen()


@pytest.mark.parametrize("kind", ["file", "link", "open", "foreign", "nobody"])
def test_what_others_have_planted_is_not_used(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if kind == "foreign" and os.geteuid() != 0:
        pytest.skip("needs root")
    warm = Warm(tmp_path_factory.mktemp("w"), tmp_path_factory.mktemp("place"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        plant(kind, warm.folder.parent, listener)
        assert warm.status()["state"] == "unusable"
        assert warm.run("explain", "-q").returncode == 0
    if kind in ("file", "link", "open", "foreign"):
        ended = warm.run("warm", text=True)
        assert ended.returncode == 1
        assert "a folder that only you may use" in " ".join(ended.stderr.split())
        assert (warm.folder / "warm").exists()  # it may be anyone's
        assert warm.run("warm", "--stop").returncode == 0
        assert kind != "file" or (warm.folder / "warm").read_text() == "precious"
    else:
        assert warm.run("warm", "-q").returncode == 0
        assert warm.run("warm", "--stop").returncode == 0


# ------------------------------------------------------------------------------------ terminals


@pytest.fixture
def bash(warm: Warm, start: Start) -> Terminal:
    """Start a shell with job control in a terminal, and let it know the command."""
    own = {"PS1": "$ ", "HISTFILE": None, "PYTHONUNBUFFERED": None}
    env = {"XDG_RUNTIME_DIR": warm.env["XDG_RUNTIME_DIR"], **own}
    words = ("--ctty", "--wait", "/bin/bash", "--norc", "--noprofile", "-i")
    terminal = start.terminal("/usr/bin/setsid", *words, env=env)
    terminal.wait_for("$ ")
    terminal.type(f'd() {{ {" ".join(COMMAND)} "$@"; }}; cd {warm.place}\n')
    return terminal


def test_a_stopped_command_goes_on_in_the_foreground_only(bash: Terminal, warm: Warm) -> None:
    bash.type("d learn hello\n")
    bash.wait_for("Your prediction: ")
    program = warm.program()
    bash.type("\x1a")
    bash.wait_for("Stopped")
    assert state(program) == "T"
    client = descendant(bash.run.process.pid)
    bash.type("bg; echo in the 'background'\n")
    bash.wait_for("in the background")
    assert wait_until(lambda: state(client) == "T")
    assert state(program) == "T"
    bash.type("fg\n")
    bash.wait_for('distdemo "$@"\n')
    bash.type("nonsense\n")
    bash.wait_for("Your prediction: ")
    bash.type("\x03")
    bash.wait_for("Interrupted.")
    bash.type("echo code $?\n")
    bash.wait_for("code 130")


def descendant(pid: int) -> int:
    """Return the process at the end of the only line of descent."""
    return descendant(*children(pid)) if children(pid) else pid


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_shell_of_ranks_in_a_terminal(bash: Terminal, warm: Warm) -> None:
    bash.type("d shell -n 2\n")
    bash.wait_for(">>> ")
    bash.type("rank + 40\n")
    bash.wait_for("41")
    bash.wait_for(">>> ")
    guardians = warm.guardians()
    assert len(guardians) == 2  # of the shell, and of the host of its ranks
    bash.type("print('run' + 'ning'); import signal; signal.pause()\n")
    bash.wait_for("running")
    bash.type("\x03")
    bash.wait_for("KeyboardInterrupt")
    bash.wait_for(">>> ")
    bash.type("\x04")
    bash.type("echo code $?\n")
    bash.wait_for("code 0")
    assert wait_until(lambda: not warm.guardians())


def test_a_background_job_runs_in_its_own_process(bash: Terminal, warm: Warm) -> None:
    before = warm.status()["commands"]
    bash.type("d explain -q & wait; d explain -q; echo code $?\n")
    bash.wait_for("code 0")
    assert wait_until(lambda: warm.status()["commands"] == before + 1)


def test_a_closed_terminal_ends_the_command(bash: Terminal, warm: Warm) -> None:
    bash.type(f"d run {HERE / 'waiting.py'} -n 2\n")
    bash.wait_for("1 is ready")
    bash.run.process.kill()
    os.close(os.dup(bash.main))
    bash.run.kill()
    assert wait_until(lambda: not warm.guardians())
