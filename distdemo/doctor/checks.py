"""The list of all checks, and the function that runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from distdemo.doctor import gpus, machine, software
from distdemo.doctor.records import TOPICS, Diagnosis, DoctorReport, broken, warning
from distdemo.doctor.system import System
from distdemo.errors import UsageError
from distdemo.versions import versions


class Check(NamedTuple):
    """A check: its name, topic and function."""

    name: str
    topic: str
    function: Callable[[System], Diagnosis | Sequence[Diagnosis]]


CHECKS = (
    Check("hostname", "network", machine.hostname),
    Check("gloo interface", "network", machine.gloo_interface),
    Check("NCCL interface", "network", machine.nccl_interface),
    Check("default port", "network", machine.default_port),
    Check("firewall", "network", machine.firewall),
    Check("shared memory", "memory", machine.shared_memory),
    Check("memory", "memory", machine.memory),
    Check("temporary files", "memory", machine.temporary),
    Check("open files", "memory", machine.open_files),
    Check("processes", "memory", machine.processes),
    Check("locked memory", "memory", machine.locked_memory),
    Check("torch", "torch", software.torch),
    Check("test world", "torch", software.test_world),
    Check("sanitizer", "torch", software.sanitizer),
    Check("MPI", "mpi", software.mpi),
    Check("GPUs", "gpus", gpus.gpus),
    Check("GPU modes", "gpus", gpus.modes),
    Check("master", "environment", software.master),
    Check("variables", "environment", software.harmful_variables),
    Check("libraries", "environment", software.libraries),
)


def examine(system: System, topics: Collection[str] = tuple(TOPICS)) -> DoctorReport:
    """Run the checks of these topics, one after the other."""
    began = time.monotonic()
    findings = [
        replace(finding, check=check.name, topic=check.topic)
        for check in CHECKS
        if check.topic in topics
        for finding in _run_check(check, system)
    ]
    elapsed_s = time.monotonic() - began
    return DoctorReport(tuple(findings), system.hostname, elapsed_s, versions())


def _run_check(check: Check, system: System) -> Sequence[Diagnosis]:
    """Return the findings of a check, or a warning if it fails."""
    try:
        findings = check.function(system)
    except UsageError as error:
        findings = broken(error.what.rstrip("."), error.why, error.hint)
    except Exception as error:  # the other checks continue
        findings = warning(
            f"the check failed: {type(error).__name__}: {error}",
            "distdemo can't tell whether something is wrong here.",
            "This is a bug in distdemo, or an unsupported system: please report it.",
        )
    return [findings] if isinstance(findings, Diagnosis) else findings
