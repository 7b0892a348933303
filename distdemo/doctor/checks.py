"""The one list of checks, and the run through all of them. Adding one is a line here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from distdemo.doctor import gpus, machine, mpi, network, torch, variables
from distdemo.doctor.records import TOPICS, DoctorReport, Finding, broken, warning
from distdemo.doctor.system import Questions, Surroundings
from distdemo.doctor.torch import Start
from distdemo.errors import UsageError
from distdemo.versions import versions

PATIENCE = 60.0  # seconds until a check that has bounds of its own is given up all the same
Look = Callable[[Surroundings], Finding | Sequence[Finding]]


class Check(NamedTuple):
    """One thing to look at: its name, its topic, its title for people, and how to look."""

    name: str
    topic: str
    title: str
    look: Look


CHECKS = (
    Check("hostname", "network", "Hostname", network.hostname),
    Check("loopback", "network", "Loopback", network.loopback),
    Check("interfaces", "network", "Interfaces", network.interfaces),
    Check("gloo-interface", "network", "gloo would take", network.gloo),
    Check("nccl-interface", "network", "NCCL would take", network.nccl),
    Check("usual-port", "network", "Usual port", network.usual),
    Check("firewall", "network", "Packet filter", network.firewall),
    Check("shared-memory", "memory", "Shared memory", machine.shared_memory),
    Check("memory", "memory", "Memory", machine.ranks),
    Check("temporary", "memory", "Temporary files", machine.temporary),
    Check("open-files", "memory", "Open files", machine.open_files),
    Check("processes", "memory", "Processes", machine.processes),
    Check("locked-memory", "memory", "Locked memory", machine.locked_memory),
    Check("cores", "memory", "Cores", machine.cores),
    Check("torch", "torch", "torch", torch.build),
    Check("backends", "torch", "Backends", torch.built_in),
    Check("world", "torch", "Proof", lambda _: torch.world(None)),
    Check("mpi-library", "mpi", "Library", mpi.library),
    Check("mpiexec", "mpi", "mpiexec", mpi.mpiexec),
    Check("gpus", "gpus", "GPUs", gpus.gpus),
    Check("gpu-driver", "gpus", "Driver", gpus.driver),
    Check("visible-devices", "gpus", "Hidden GPUs", gpus.hidden),
    Check("engine", "environment", "Engine", variables.engine),
    Check("master", "environment", "Master", variables.master),
    Check("variables", "environment", "Variables", variables.traps),
    Check("libraries", "environment", "Libraries", variables.libraries),
)
NEEDS_TORCH = frozenset({"torch", "backends", "world", "gpus"})


def examine(
    around: Surroundings, topics: Collection[str] = tuple(TOPICS), start: Start | None = None
) -> DoctorReport:
    """Look at everything, at once where nothing stands against it.

    The trial world comes first: ranks are forked quickest while this process has one thread.

    Args:
        around: what to look at.
        topics: only these of ``TOPICS``.
        start: starts the trial world; None for none.
    """
    began = time.monotonic()
    checks = [check for check in CHECKS if check.topic in topics]
    found: dict[str, Sequence[Finding]] = {}
    needy = [check.name for check in checks if check.name in NEEDS_TORCH]
    try:
        if needy:
            around.torch()
        if "world" in needy:
            found["world"] = _guarded(lambda _: torch.world(start), around)
    except UsageError as error:  # one finding says so, and all else that needs torch is left out
        found = dict.fromkeys(needy, ())
        told = "torch" if "torch" in needy else needy[0]
        found[told] = [broken(error.what.rstrip("."), error.why, error.hint)]
    try:
        found |= _all_at_once([check for check in checks if check.name not in found], around)
    finally:
        if isinstance(around.ask, Questions):
            around.ask.end()
    findings = tuple(
        replace(each, check=check.name, topic=check.topic, title=check.title)
        for check in checks
        for each in found[check.name]
    )
    return DoctorReport(findings, around.hostname, time.monotonic() - began, versions())


def _all_at_once(checks: Sequence[Check], around: Surroundings) -> dict[str, Sequence[Finding]]:
    """Each check in a thread of its own, so that what waits for an answer holds up no other."""
    found: dict[str, Sequence[Finding]] = {}

    def look(check: Check) -> None:
        found[check.name] = _guarded(check.look, around)

    threads = [threading.Thread(target=look, args=(check,), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = [_failed(f"it took longer than {PATIENCE:g} s")]
    return {check.name: found.get(check.name, late) for check in checks}


def _guarded(look: Look, around: Surroundings) -> Sequence[Finding]:
    """What a check found; that it failed if it did."""
    try:
        found = look(around)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks go on
        return [_failed(f"{type(error).__name__}: {error}")]
    return [found] if isinstance(found, Finding) else found


def _failed(reason: str) -> Finding:
    return warning(
        f"could not be looked at: {reason}",
        "Whether something is wrong here stays unknown.",
        "distdemo is at fault, or this system is one that it does not know: please report it.",
    )
