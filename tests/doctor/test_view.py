"""Display of doctor's report."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from golden import golden

from distdemo.doctor.records import Diagnosis, DoctorReport
from distdemo.doctor.view import doctor_view
from distdemo.view.blocks import quiet

GOLDEN = Path(__file__).parent / "golden"
REPORT = DoctorReport(
    (
        Diagnosis("fine", "node resolves to 10.0.0.1", check="hostname", topic="network"),
        Diagnosis(
            "warning",
            "29500 is in use",
            "It is the default of torchrun.",
            "Give each world its own port.",
            "default port",
            "network",
        ),
        Diagnosis(
            "broken",
            "it has 1 MiB\x1b[2J\nfree",
            "Ranks over MPI die of a bus error.",
            "Give it more.",
            "shared memory",
            "memory",
        ),
        Diagnosis("skipped", "this system has no GPU", check="GPUs", topic="gpus"),
    ),
    "node",
    1.5,
    {"torch": "2.13.0"},
)


def test_table_and_summary() -> None:
    shown = partial(doctor_view, REPORT)
    golden(GOLDEN / "table.txt", shown)
    golden(GOLDEN / "summary.txt", lambda sign: quiet(shown(sign)))
