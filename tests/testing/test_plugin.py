"""Run the pytest plugin over the samples, in a separate pytest process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import matches
from helpers import PATIENCE, wait_until
from processes import Run, Start
from testing.outcomes import FILES, OUTCOMES, copy_samples, outcomes

pytestmark = [pytest.mark.timeout(300), pytest.mark.processes]  # on a loaded machine


PLAIN = {"CI": "", "BUILD_NUMBER": "", "PYTEST_ADDOPTS": "", "COLUMNS": "80"}
"""With CI set, pytest shows more of a failed comparison."""


def pytest_line(folder: Path, *words: str, files: tuple[str, ...]) -> list[str]:
    """Prepare a folder without the configuration of the project's own tests; return arguments."""
    copy_samples(folder)
    ini = folder / "pytest.ini"
    ini.write_text("[pytest]\nfilterwarnings =\n    ignore::ResourceWarning\n")
    line = ["-m", "pytest", "-q", "-c", str(ini), "-p", "no:cacheprovider", "-p", "no:timeout"]
    return [*line, *words, *(str(folder / file) for file in files)]


def pytested(start: Start, folder: Path, *words: str, files: tuple[str, ...] = ()) -> Run:
    """Run pytest over these files."""
    return start("python", *pytest_line(folder, *words, files=files), env=PLAIN)


def scrubbed(text: str) -> str:
    """Remove the parts of a report that differ between runs."""
    text = re.sub(r"\S*/(?=test_\w+\.py)", "", text)
    text = re.sub(r"^\[gw0\] .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"in \d+\.\d+s|pid=\d+|0x[0-9a-f]+", "*", text)


def test_all_outcomes_of_pytest(start: Start, tmp_path: Path) -> None:
    """Run in a worker of xdist, which sends all that it reports; the tests below run without."""
    report = tmp_path / "junit.xml"
    with pytested(start, tmp_path, "-n1", "-ra", f"--junitxml={report}", files=FILES) as run:
        code, out, _ = run.finish(2 * PATIENCE)
        assert code == 1, out
        found = outcomes(report)
        passed = found.pop("passed")
        assert found == OUTCOMES, out
        assert {"test_average", "test_forked_child", "test_after_all_that"} <= passed
        assert wait_until(lambda: not run.left())
    matches(Path(__file__).parent / "golden" / "failures.txt", scrubbed(shown_failures(out)))
    assert "test_ways.py::test_warns" in out
    assert "not compared to the end: rank 0: the program numbers its ranks differently" in out
    assert "The ranks drew different examples." in out
    assert "--ranks-seed=" in out


def shown_failures(out: str) -> str:
    """Return pytest's output about some of the failed tests."""
    wanted = ("test_asserts_on_two", "test_leaves_the_others_alone", "test_hangs")
    parts = re.split(r"^_{3,} (?:ERROR .* )?(\w+) _{3,}$", out, flags=re.MULTILINE)
    by_name = dict(zip(parts[1::2], parts[2::2], strict=True))
    return "".join(f"___ {name}{by_name[name]}" for name in wanted)


def test_the_debugger_has_the_terminal_and_all_ranks_are_shown(
    start: Start, tmp_path: Path
) -> None:
    words = pytest_line(tmp_path, "--pdb", "-x", "--ranks-report=all", files=("test_faults.py",))
    terminal = start.terminal("python", *words, env=PLAIN)
    terminal.wait_for("(Pdb) ")
    terminal.type("p 'numbers', numbers\n")
    terminal.wait_for("('numbers', [")
    terminal.type("q\n")
    terminal.wait_for("1 failed")
    assert terminal.end() != 0
    assert terminal.raw.count("wrong data received") >= 3  # both tracebacks and the summary


def test_ctrl_c_says_where_the_ranks_were(start: Start, tmp_path: Path) -> None:
    (tmp_path / "test_sleeps.py").write_text(
        "import pathlib, threading, pytest\n"
        "@pytest.mark.ranks(2)\n"
        "def test_sleeps(rank):\n"
        f"    pathlib.Path({str(tmp_path)!r}, f'up{{rank}}').touch()\n"
        "    threading.Event().wait(600)\n"
    )
    with pytested(start, tmp_path, files=("test_sleeps.py",)) as run:
        assert wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists())
        run.process.send_signal(signal.SIGINT)
        code, out, _ = run.finish(2 * PATIENCE)
        assert code == 2
        assert "test_sleeps.py:5 in test_sleeps" in out
        assert wait_until(lambda: not run.left())


def test_what_a_conftest_and_pytest_timeout_ask_for(start: Start, tmp_path: Path) -> None:
    """The environment is read when torch is imported; ranks stop before pytest-timeout would."""
    (tmp_path / "conftest.py").write_text(
        "import os\nimport torch\nos.environ['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'\n"
    )
    (tmp_path / "test_asks.py").write_text(
        "import threading, pytest, torch.distributed as dist\n"
        "@pytest.mark.ranks(1)\n"
        "def test_environment():\n"
        "    assert dist.get_debug_level() == dist.DebugLevel.DETAIL\n"
        "@pytest.mark.ranks(2, timeout=600)\n"
        "@pytest.mark.timeout(2, method='thread')\n"
        "def test_time(rank):\n"
        "    threading.Event().wait(600)\n"
    )
    with pytested(start, tmp_path, "-p", "timeout", files=("test_asks.py",)) as run:
        code, out, _ = run.finish(2 * PATIENCE)
        assert (code, "1 failed, 1 passed" in out) == (1, True), out
        assert "rank 1: at test_asks.py:8 in test_time" in out
        assert wait_until(lambda: not run.left())


AUDIT = """import os, sys
folder = os.path.dirname(__file__)
log = os.open(f"{folder}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
def audit(event, args):
    name = os.path.basename(str(args[0])) if event == "open" else ""
    if event == "subprocess.Popen" or name == "test_ignored.py":
        os.write(log, f"{event} {name}\\n".encode())
sys.addaudithook(audit)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--fixtures", "test_marked.py"),
        ("--ignore=test_ignored.py", "--ignore=test_marked.py"),
        ("test_plain.py",),
    ],
    ids=lambda words: words[0],
)
def test_no_process_without_marked_tests_and_no_other_file_is_read(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    marked = "import pytest\n@pytest.mark.ranks(2)\ndef test_marked():\n    pass\n"
    for name in ("test_marked.py", "test_ignored.py"):
        (tmp_path / name).write_text(marked)
    plain = "import sys\ndef test_plain():\n    assert 'torch' not in sys.modules\n"
    (tmp_path / "test_plain.py").write_text(plain)
    (tmp_path / "sitecustomize.py").write_text(AUDIT)
    line = [sys.executable, "-m", "pytest", "-q", *words]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.ranks(),
        pytest.mark.ranks(0),
        pytest.mark.ranks("two"),
        pytest.mark.ranks(2, nodes=3),
        pytest.mark.ranks(2, timeout=0),
    ],
)
def test_invalid_marks_are_rejected(mark: pytest.MarkDecorator) -> None:
    from distdemo.testing.plugin import parse_mark

    with pytest.raises(ValueError, match=r"rank|timeout"):
        parse_mark(mark.mark)
