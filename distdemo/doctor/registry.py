"""The one list of checks, and the run through all of them. Adding one is a line here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from distdemo.doctor import (
    clock,
    container,
    cores,
    gpus,
    interfaces,
    limits,
    memory,
    mpi,
    network,
    ports,
    torch_build,
    variables,
)
from distdemo.doctor.records import TOPICS, DoctorReport, Finding
from distdemo.doctor.seen import Check, Seen, broken, plain, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.doctor.system import begin_questions, end_questions
from distdemo.doctor.torch_build import Start
from distdemo.errors import UsageError
from distdemo.versions import versions

PATIENCE = 60.0  # seconds until a check that has bounds of its own is given up all the same

CHECKS = (
    Check("hostname", "network", "Hostname", network.hostname),
    Check("reverse-dns", "network", "Reverse DNS", network.reverse_names),
    Check("loopback", "network", "Loopback", network.loopback),
    Check("interfaces", "network", "Interfaces", interfaces.interfaces),
    Check("gloo-interface", "network", "gloo would take", interfaces.gloo),
    Check("nccl-interface", "network", "NCCL would take", interfaces.nccl),
    Check("mtu", "network", "Packet size", interfaces.mtu),
    Check("ports", "network", "Ports", ports.ephemeral),
    Check("usual-port", "network", "Usual port", ports.usual),
    Check("firewall", "network", "Firewall", network.firewall),
    Check("shared-memory", "memory", "Shared memory", memory.shared_memory),
    Check("memory", "memory", "Memory", memory.ranks),
    Check("overcommit", "memory", "Overcommitment", memory.overcommit),
    Check("temporary", "memory", "Temporary files", memory.temporary),
    Check("open-files", "memory", "Open files", limits.open_files),
    Check("processes", "memory", "Processes", limits.processes),
    Check("locked-memory", "memory", "Locked memory", limits.locked_memory),
    Check("ptrace", "memory", "Memory of others", limits.ptrace),
    Check("cores", "processors", "Cores", cores.cores),
    Check("threads", "processors", "Threads a rank", cores.threads),
    Check("pinning", "processors", "Pinning", cores.pinning),
    Check("clock", "processors", "Clock", clock.clock),
    Check("torch", "torch", "torch", torch_build.build),
    Check("backends", "torch", "Backends", torch_build.built_in),
    Check("nccl-wheels", "torch", "NCCL", torch_build.nccl_wheels),
    Check("world", "torch", "Proof", lambda _: torch_build.world(None)),
    Check("mpi-library", "mpi", "Library", mpi.library),
    Check("mpiexec", "mpi", "mpiexec", mpi.mpiexec),
    Check("mpi-wheels", "mpi", "Wheels", mpi.wheels),
    Check("gpus", "gpus", "GPUs", gpus.gpus),
    Check("gpu-peers", "gpus", "Peer access", gpus.peers),
    Check("gpu-driver", "gpus", "Driver", gpus.driver),
    Check("visible-devices", "gpus", "Hidden GPUs", gpus.hidden),
    Check("engine", "environment", "Engine", variables.engine),
    Check("master", "environment", "Master", ports.master),
    Check("variables", "environment", "Variables", variables.traps),
    Check("nccl-files", "environment", "nccl.conf", variables.nccl_files),
    Check("libraries", "environment", "Libraries", variables.libraries),
    Check("container", "environment", "Container", container.container),
)
NEEDS_TORCH = frozenset({"threads", "torch", "backends", "world", "gpus"})


def examine(
    around: Surroundings,
    topics: Collection[str] = tuple(TOPICS),
    start: Start | None = None,
    visit: Callable[[], Sequence[Finding]] | None = None,
) -> DoctorReport:
    """Look at everything, at once where nothing stands against it.

    The trial world comes first: ranks are forked quickest while this process has one thread.

    Args:
        around: what to look at.
        topics: only these of ``TOPICS``.
        start: starts the trial world; None for none.
        visit: makes the findings about the peer; None where none is named.
    """
    began = time.monotonic()
    visited = visit() if visit is not None else ()
    checks = [check for check in CHECKS if check.topic in topics]
    seen = _of_torch(around, checks, start)
    checks_left = [check for check in checks if check.name not in seen]
    begin_questions()
    try:
        seen |= _all_at_once(checks_left, around)
    finally:
        end_questions()
    findings = [check.finding(each) for check in checks for each in seen[check.name]]
    findings += visited
    seconds = time.monotonic() - began
    return DoctorReport(tuple(findings), around.hostname, seconds, versions())


def _of_torch(
    around: Surroundings, checks: Sequence[Check], start: Start | None
) -> dict[str, Sequence[Seen]]:
    """The trial world; or, where torch can't be imported, that alone of all that needs it."""
    names = [check.name for check in checks if check.name in NEEDS_TORCH]
    if not names:
        return {}
    try:
        around.torch()
    except UsageError as error:
        told = "torch" if "torch" in names else names[0]
        seen: dict[str, Sequence[Seen]] = dict.fromkeys(names, ())
        return seen | {told: [broken(plain(error.what), error.why, error.hint)]}
    if "world" not in names:
        return {}
    return {"world": _guarded(lambda: torch_build.world(start))}


def _all_at_once(checks: Sequence[Check], around: Surroundings) -> dict[str, Sequence[Seen]]:
    """Each check in a thread of its own, so that what waits for an answer holds up no other."""
    seen: dict[str, Sequence[Seen]] = {}

    def look(check: Check) -> None:
        seen[check.name] = _guarded(lambda: check.look(around))

    threads = [threading.Thread(target=look, args=(check,), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = [failed(f"it took longer than {PATIENCE:g} s")]
    return {check.name: seen.get(check.name, late) for check in checks}


def _guarded(look: Callable[[], Seen | Sequence[Seen]]) -> Sequence[Seen]:
    """What a check saw; that it failed if it did."""
    try:
        seen = look()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks go on
        return [failed(f"{type(error).__name__}: {error}")]
    return [seen] if isinstance(seen, Seen) else seen


def failed(reason: str) -> Seen:
    """A check that came to no end of its own."""
    return warning(
        f"could not be looked at: {reason}",
        "Whether something is wrong here stays unknown.",
        "distdemo is at fault, or this system is one that it does not know: please report it.",
    )
