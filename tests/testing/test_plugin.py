"""Run the pytest plugin over the samples, in a separate pytest process."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from golden import matches
from helpers import PATIENCE, wait_until
from processes import Run, Start
from testing.outcomes import FILES, OUTCOMES, SAMPLES, copy_samples, outcomes

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


def shown_failures(out: str) -> str:
    """Return pytest's output about some of the failed tests."""
    wanted = ("test_asserts_on_two", "test_leaves_the_others_alone", "test_hangs")
    parts = re.split(r"^_{3,} (?:ERROR .* )?(\w+) _{3,}$", out, flags=re.MULTILINE)
    by_name = dict(zip(parts[1::2], parts[2::2], strict=True))
    return "".join(f"___ {name}{by_name[name]}" for name in wanted)


def test_the_debugger_has_the_terminal(start: Start, tmp_path: Path) -> None:
    words = pytest_line(tmp_path, "--pdb", "-x", files=("test_faults.py",))
    terminal = start.terminal("python", *words, env=PLAIN)
    terminal.wait_for("(Pdb) ")
    terminal.type("p 'numbers', numbers\n")
    terminal.wait_for("('numbers', [")
    terminal.type("q\n")
    terminal.wait_for("1 failed")
    assert terminal.end() != 0


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


def test_ranks_stop_before_pytest_timeout_would(start: Start, tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text(
        "import threading, pytest\n"
        "@pytest.mark.ranks(2, timeout=600)\n"
        "@pytest.mark.timeout(2, method='thread')\n"
        "def test_time(rank):\n"
        "    threading.Event().wait(600)\n"
    )
    with pytested(start, tmp_path, "-p", "timeout", files=("test_waits.py",)) as run:
        code, out, _ = run.finish(2 * PATIENCE)
        assert (code, "1 failed" in out) == (1, True), out
        assert "Rank 0 is at test_waits.py:5 in test_time" in out
        assert wait_until(lambda: not run.left())


def test_torch_is_imported_only_for_marked_tests(tmp_path: Path) -> None:
    (tmp_path / "test_both.py").write_text(
        "import sys, pytest\n"
        "@pytest.mark.ranks(2)\n"
        "def test_marked():\n"
        "    pass\n"
        "def test_plain():\n"
        "    assert 'torch' not in sys.modules\n"
    )
    line = [sys.executable, "-X", "importtime", "-m", "pytest", "-q", "-k", "plain", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert not re.search(r"\btorch\b", done.stderr)
    assert "distdemo.testing.host" not in done.stderr


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.ranks(),
        pytest.mark.ranks(0),
        pytest.mark.ranks("two"),
        pytest.mark.ranks(2, nodes=3),
        pytest.mark.ranks(2, timeout=0),
        pytest.mark.ranks(2, sanitize=False, strict=True),
        pytest.mark.ranks(2, sanitize=False, findings="p2p=off"),
        pytest.mark.ranks(2, findings="ranks=off"),
        pytest.mark.ranks(2, sanitize="buffers"),
        pytest.mark.ranks(2, strict="no"),
        pytest.mark.ranks(2, sanitize=False, check_replicas=1),
        pytest.mark.ranks(2, check_replicas=True),
        pytest.mark.ranks(2, excluded="experts.*"),
    ],
)
def test_invalid_marks_are_rejected(mark: pytest.MarkDecorator) -> None:
    from distdemo.testing.mark import parse_mark

    with pytest.raises(ValueError, match=r"rank|timeout|sanitize=False|True or|list of|least 1"):
        parse_mark(mark.mark)


def test_warnings_of_the_sanitizer(start: Start, tmp_path: Path) -> None:
    """Run in a worker of xdist, which sends warnings to the process that shows them."""
    report = tmp_path / "junit.xml"
    shutil.copy(SAMPLES / "warned.py", tmp_path / "test_warned.py")
    words = ("-n1", f"--junitxml={report}")
    with pytested(start, tmp_path, *words, files=("test_warned.py",)) as run:
        code, out, _ = run.finish(2 * PATIENCE)
    found = outcomes(report)
    wrong = {"test_is_strict", "test_is_an_error", "test_asks_for_replicas"}
    assert (code, found["failed"], found["expected"]) == (1, wrong, {"test_is_expected"}), out
    summary = out.partition("warnings summary")[2]
    warned = set(re.findall(r"^test_warned\.py::(\S+)$", summary, flags=re.MULTILINE))
    names = {"test_starts_with_other_values", "TestSuite::test_method", "test_renumbers"}
    assert warned == names, out
    assert "RanksWarning: weight differs between rank 0 and rank 1 before the first" in summary
    assert "  rank 1  weight before the first step: digest " in summary
    assert "not compared to the end: rank 0: the program numbers its ranks differently" in summary
    noted = [
        len(case.findall("properties/property[@name='ranks_warning']"))
        for case in ET.parse(report).getroot().iter("testcase")  # noqa: S314 - our own file
    ]
    assert sorted(noted) == [0, 0] + [1] * 7, noted
    off = ET.parse(report).getroot().find(".//property[@name='ranks_off']")  # noqa: S314 - likewise
    assert off is not None
    assert off.get("value") == "replicas"


def test_all_warnings_of_the_sanitizer_can_be_failures(start: Start, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "warned.py", tmp_path / "test_warned.py")
    words = ("--ranks-strict", "-k", "other_values or renumbers")
    with pytested(start, tmp_path, *words, files=("test_warned.py",)) as run:
        code, out, _ = run.finish(2 * PATIENCE)
    assert (code, "2 failed" in out, "warnings summary" in out) == (1, True, False), out
    assert "weight differs between rank 0 and rank 1 before the first step." in out
    assert "not compared to the end: rank 0: the program numbers its ranks differently" in out
