"""What doctor found, as people read it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from golden import golden

from distdemo.doctor import view
from distdemo.doctor.records import DoctorReport, Finding

GOLDEN = Path(__file__).parent / "golden"
REPORT = DoctorReport(
    (
        Finding("fine", "node resolves to 10.0.0.1", topic="network", title="Hostname"),
        Finding(
            "warning",
            "29500 is in use",
            "It is the default of torchrun.",
            "Give worlds a port of their own.",
            topic="network",
            title="Usual port",
        ),
        Finding(
            "broken",
            "it has 1 MiB\x1b[2J\nfree",
            "Ranks over MPI die of a bus error.",
            "Give it more.",
            topic="memory",
            title="Shared memory",
        ),
        Finding("skipped", "this system shows no GPU", topic="gpus", title="GPUs"),
    ),
    "node",
    1.5,
    {"torch": "2.13.0"},
)


def test_the_report_reads_as_it_should() -> None:
    golden(GOLDEN / "table.txt", partial(view.table, REPORT))
    golden(GOLDEN / "summary.txt", partial(view.summary, REPORT))


def test_findings_are_counted() -> None:
    assert REPORT.counts == {"broken": 1, "warning": 1, "fine": 1, "skipped": 1}
    assert not REPORT.ok
