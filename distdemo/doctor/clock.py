"""The clock: whether anything keeps it in step with those of other machines."""

from __future__ import annotations

from distdemo.doctor.seen import Seen, fine, skipped, warning
from distdemo.doctor.surroundings import Surroundings

LARGE = 1.0  # seconds of error that show in logs and traces


def clock(around: Surroundings) -> Seen:
    """What the kernel says of it."""
    found = around.clock()
    if found is None:
        return skipped("this system does not tell")
    if found.synchronised and found.error < LARGE:
        return fine(f"kept in step, within {found.error * 1e3:.3g} ms", error=found.error)
    seen = f"may be {found.error:.3g} s off" if found.synchronised else "nothing keeps it in step"
    return warning(
        seen,
        "On one machine it does no harm. Across machines log lines and traces can't be put in "
        "order, and tokens and certificates may count as expired.",
        "Run chrony, ntpd or systemd-timesyncd; in a virtual machine or container mend the host's.",
        error=found.error,
    )
