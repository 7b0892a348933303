"""The list of all checks, and the function that runs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from distdemo.doctor import gpus, machine, mpi, network, torch, variables
from distdemo.doctor.records import TOPICS, DoctorReport, Finding, broken, warning
from distdemo.doctor.system import ProgramRunner, System
from distdemo.doctor.torch import Start
from distdemo.errors import UsageError
from distdemo.versions import versions

CHECK_TIMEOUT_S = 60.0  # for a check whose own time limits fail
CheckFunction = Callable[[System], Finding | Sequence[Finding]]


class Check(NamedTuple):
    """A check: its name, topic, title and function."""

    name: str
    topic: str
    title: str
    function: CheckFunction


CHECKS = (
    Check("hostname", "network", "Hostname", network.hostname),
    Check("loopback", "network", "Loopback", network.loopback),
    Check("interfaces", "network", "Interfaces", network.interfaces),
    Check("gloo-interface", "network", "gloo interface", network.gloo),
    Check("nccl-interface", "network", "NCCL interface", network.nccl),
    Check("usual-port", "network", "Default port", network.default_port),
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
    Check("world", "torch", "Test world", lambda _: torch.world(None)),
    Check("mpi-library", "mpi", "Library", mpi.library),
    Check("mpiexec", "mpi", "mpiexec", mpi.mpiexec),
    Check("gpus", "gpus", "GPUs", gpus.gpus),
    Check("gpu-driver", "gpus", "Driver", gpus.driver),
    Check("visible-devices", "gpus", "Hidden GPUs", gpus.visible_devices),
    Check("engine", "environment", "Engine", variables.engine),
    Check("recorder", "environment", "Flight recorder", variables.flight_recorder),
    Check("master", "environment", "Master", variables.master),
    Check("variables", "environment", "Variables", variables.harmful_variables),
    Check("libraries", "environment", "Libraries", variables.libraries),
)
NEEDS_TORCH = frozenset({"torch", "backends", "world", "gpus"})


def examine(
    system: System, topics: Collection[str] = TOPICS, start: Start | None = None
) -> DoctorReport:
    """Run the checks, in parallel except for the test world.

    The test world runs first: forking ranks is fastest while this process has one thread.

    Args:
        system: System to examine.
        topics: Keys of ``TOPICS`` to check.
        start: Function that starts the test world; None to skip it.
    """
    began = time.monotonic()
    checks = [check for check in CHECKS if check.topic in topics]
    found: dict[str, Sequence[Finding]] = {}
    needing_torch = [check.name for check in checks if check.name in NEEDS_TORCH]
    try:
        if needing_torch:
            system.torch()
        if "world" in needing_torch:
            found["world"] = _run_check(lambda _: torch.world(start), system)
    except UsageError as error:  # report it once and skip every check that needs torch
        found = dict.fromkeys(needing_torch, ())
        reporter = "torch" if "torch" in needing_torch else needing_torch[0]
        found[reporter] = [broken(error.what.rstrip("."), error.why, error.hint)]
    try:
        found |= _run_in_parallel([check for check in checks if check.name not in found], system)
    finally:
        if isinstance(system.run, ProgramRunner):
            system.run.end()
    findings = tuple(
        replace(each, check=check.name, topic=check.topic, title=check.title)
        for check in checks
        for each in found[check.name]
    )
    return DoctorReport(findings, system.hostname, time.monotonic() - began, versions())


def _run_in_parallel(checks: Sequence[Check], system: System) -> dict[str, Sequence[Finding]]:
    """Run each check in its own thread, so that a slow one doesn't delay the rest."""
    found: dict[str, Sequence[Finding]] = {}

    def run(check: Check) -> None:
        found[check.name] = _run_check(check.function, system)

    threads = [threading.Thread(target=run, args=(check,), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    until = time.monotonic() + CHECK_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = [_failed(f"it took longer than {CHECK_TIMEOUT_S:g} s")]
    return {check.name: found.get(check.name, late) for check in checks}


def _run_check(function: CheckFunction, system: System) -> Sequence[Finding]:
    """Return the findings of a check, or a warning if it fails."""
    try:
        found = function(system)
    except Exception as error:  # noqa: BLE001 - the other checks continue
        return [_failed(f"{type(error).__name__}: {error}")]
    return [found] if isinstance(found, Finding) else found


def _failed(reason: str) -> Finding:
    return warning(
        f"the check failed: {reason}",
        "distdemo can't tell whether something is wrong here.",
        "This is a bug in distdemo, or an unsupported system: please report it.",
    )
