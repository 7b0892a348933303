"""The list of all checks, and the function that runs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from distdemo.doctor import environment, gpus, machine, network, software
from distdemo.doctor.records import TOPICS, Diagnosis, DoctorReport, broken, warning
from distdemo.doctor.system import System
from distdemo.errors import UsageError
from distdemo.versions import versions

CHECK_TIMEOUT_S = 60.0  # for a check whose own time limits fail


class Check(NamedTuple):
    """A check: its name, topic, title and function."""

    name: str
    topic: str
    title: str
    function: Callable[[System], Diagnosis | Sequence[Diagnosis]]


CHECKS = (
    Check("hostname", "network", "Hostname", network.hostname),
    Check("loopback", "network", "Loopback", network.loopback),
    Check("interfaces", "network", "Interfaces", network.interfaces),
    Check("gloo-interface", "network", "gloo interface", network.gloo_interface),
    Check("nccl-interface", "network", "NCCL interface", network.nccl_interface),
    Check("usual-port", "network", "Default port", network.default_port),
    Check("firewall", "network", "Packet filter", network.firewall),
    Check("shared-memory", "memory", "Shared memory", machine.shared_memory),
    Check("memory", "memory", "Memory", machine.memory),
    Check("temporary", "memory", "Temporary files", machine.temporary),
    Check("open-files", "memory", "Open files", machine.open_files),
    Check("processes", "memory", "Processes", machine.processes),
    Check("locked-memory", "memory", "Locked memory", machine.locked_memory),
    Check("torch", "torch", "torch", software.build),
    Check("backends", "torch", "Backends", software.built_in),
    Check("world", "torch", "Test world", software.test_world),
    Check("mpi-library", "mpi", "Library", software.mpi_library),
    Check("mpiexec", "mpi", "mpiexec", software.mpiexec),
    Check("gpus", "gpus", "GPUs", gpus.gpus),
    Check("gpu-driver", "gpus", "Driver", gpus.driver),
    Check("engine", "environment", "Engine", environment.engine),
    Check("master", "environment", "Master", environment.master),
    Check("variables", "environment", "Variables", environment.harmful_variables),
    Check("libraries", "environment", "Libraries", environment.libraries),
)


def examine(system: System, topics: Collection[str] = tuple(TOPICS)) -> DoctorReport:
    """Run the checks of these topics.

    The checks of torch run first, one after the other, until one is broken: torch should be
    imported by one thread, and forking ranks is fastest while this process has no other. The
    remaining checks run in parallel, so that a slow one doesn't delay the rest.
    """
    began = time.monotonic()
    checks = [check for check in CHECKS if check.topic in topics]
    findings: dict[Check, Sequence[Diagnosis]] = {}
    try:
        for check in checks:
            if check.topic == "torch":
                findings[check] = _run_check(check, system)
                if findings[check][0].level == "broken":
                    break
        parallel = [check for check in checks if check.topic != "torch"]
        threads = [
            threading.Thread(
                target=lambda check=check: findings.update({check: _run_check(check, system)}),
                daemon=True,
            )
            for check in parallel
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + CHECK_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        for check in parallel:
            findings.setdefault(check, [_failed(f"it took longer than {CHECK_TIMEOUT_S:g} s")])
    finally:
        system.run.end()
    return DoctorReport(
        tuple(finding for check in checks for finding in findings.get(check, ())),
        system.hostname,
        time.monotonic() - began,
        versions(),
    )


def _run_check(check: Check, system: System) -> Sequence[Diagnosis]:
    """Return the findings of a check, or a warning if it fails."""
    try:
        findings = check.function(system)
    except UsageError as error:
        findings = broken(error.what.rstrip("."), error.why, error.hint)
    except Exception as error:  # the other checks continue
        findings = _failed(f"{type(error).__name__}: {error}")
    if isinstance(findings, Diagnosis):
        findings = [findings]
    return [
        replace(finding, check=check.name, topic=check.topic, title=check.title)
        for finding in findings
    ]


def _failed(reason: str) -> Diagnosis:
    return warning(
        f"the check failed: {reason}",
        "distdemo can't tell whether something is wrong here.",
        "This is a bug in distdemo, or an unsupported system: please report it.",
    )
