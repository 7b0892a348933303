"""What a doctor found, and what it served, as tables, lines and documents."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from distdemo.doctor.records import DoctorReport, Finding, ListenReport, Visit
from distdemo.doctor.view_document import doctor_document, listen_document
from distdemo.doctor.view_table import doctor_table, listen_table, verdict, verdict_line
from distdemo.view.console import ASCII_SIGNS, Signs
from distdemo.view.document import dumps

Draw = Callable[..., str]

FINE = Finding("hostname", "network", "Hostname", "fine", "node resolves to 10.0.0.1")
WARNING = Finding(
    "clock",
    "processors",
    "Clock",
    "warning",
    "nothing keeps it in step [b]",
    "Why it is.",
    "Do so.",
)
BROKEN = Finding(
    "shared-memory",
    "memory",
    "Shared memory",
    "broken",
    "1 MiB free \x1b[31m",
    "Ranks die of a bus error.",
    "docker run --shm-size=1g",
    (("free", "1048576"),),
)
SKIPPED = Finding("gpus", "gpus", "GPUs", "skipped", "this system shows no GPU")
REPORT = DoctorReport((FINE, BROKEN, WARNING, SKIPPED), "node", 1.2, {"torch": "2.13.0"})
SERVED = ListenReport(
    "10.0.0.1",
    29600,
    "as told",
    60.0,
    (
        Visit("10.0.0.2", "other", 0.3, 20_000_000, 20_000_000, "done"),
        Visit("10.0.0.3", "", 0.1, 0, 0, "no doctor of this protocol"),
    ),
)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [30, 80, 160])
def test_everything_is_told_at_any_width(draw: Draw, columns: int, encoding: str) -> None:
    text = draw(lambda console: doctor_table(REPORT, console), encoding, columns)
    words = flat(text)
    for part in (
        "Network",
        "Hostname: node resolves to 10.0.0.1.",
        "Memory and limits",
        "Shared memory: 1 MiB free [31m.",
        "Why: Ranks die of a bus error.",
        "Try: docker run --shm-size=1g",
        "nothing keeps it in step [b].",
        "this system shows no GPU.",
        "1 broken, 1 warning, 1 fine, 1 skipped.",
        "node, 1.20 s; torch 2.13.0",
    ):
        assert part in words
    if encoding == "ascii":
        assert text.isascii()
        assert "?" not in text


def test_every_level_has_its_sign(draw: Draw) -> None:
    lines = draw(lambda console: doctor_table(REPORT, console)).splitlines()
    for start in ("✓ Hostname", "✗ Shared memory", "! Clock", "— GPUs", "✗ 1 broken"):
        assert any(line.startswith(start) for line in lines), start
    lines = draw(lambda console: doctor_table(REPORT, console), "ascii").splitlines()
    for start in ("ok Hostname", "WRONG Shared memory", "! Clock", "- GPUs"):
        assert any(line.startswith(start) for line in lines), start


def test_quiet_tells_what_is_wrong_and_the_verdict(draw: Draw) -> None:
    text = draw(lambda console: doctor_table(REPORT, console, quiet=True))
    assert "Hostname" not in text
    assert "GPUs" not in text
    assert "Network" not in text
    assert "Try: docker run --shm-size=1g" in text
    assert text.splitlines()[-1] == "✗ 1 broken, 1 warning, 1 fine, 1 skipped."


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ((FINE,), "✓ 1 fine."),
        ((FINE, FINE, WARNING, WARNING), "! 2 warnings, 2 fine."),
        ((BROKEN, BROKEN), "✗ 2 broken."),
        ((SKIPPED,), "— 1 skipped."),
        ((), "— Nothing was looked at."),
    ],
)
def test_the_verdict_counts(findings: tuple[Finding, ...], line: str) -> None:
    report = DoctorReport(findings, "node")
    assert verdict_line(report, Signs()).plain == line
    assert verdict_line(report, ASCII_SIGNS).plain.endswith(verdict(report))
    assert report.ok is (BROKEN not in findings)


def test_the_document_has_every_field(draw: Draw) -> None:
    document = json.loads(dumps(doctor_document(REPORT)))
    assert document["command"] == "doctor"
    assert document["ok"] is False
    assert document["counts"] == {"fine": 1, "warning": 1, "broken": 1, "skipped": 1}
    (error,) = document["errors"]
    assert error["why"] == BROKEN.why
    assert error["hint"] == BROKEN.do
    assert document["findings"][1] == {
        "check": "shared-memory",
        "topic": "memory",
        "title": "Shared memory",
        "level": "broken",
        "seen": BROKEN.seen,
        "why": BROKEN.why,
        "do": BROKEN.do,
        "facts": {"free": "1048576"},
    }
    assert document["findings"][0]["why"] is None
    well = doctor_document(DoctorReport((FINE, WARNING), "node"))
    assert (well["ok"], well["errors"]) == (True, [])


def test_what_was_served_is_told(draw: Draw) -> None:
    text = flat(draw(lambda console: listen_table(SERVED, console)))
    assert "✓ 10.0.0.2 other: 300 ms, 20 MB received, 20 MB sent" in text
    assert "! 10.0.0.3: 100 ms, nothing received, nothing sent · no doctor" in text
    assert "2 visits in 60.0 s at 10.0.0.1:29600; it is closed again." in text
    document = json.loads(dumps(listen_document(SERVED)))
    assert (document["address"], document["port"]) == ("10.0.0.1", 29600)
    assert [visit["end"] for visit in document["visits"]] == ["done", SERVED.visits[1].end]
