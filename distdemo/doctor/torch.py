"""Checks of torch: its release, build and backends, and a test world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import release_of

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

OLDEST = (2, 8)  # see pyproject.toml
TEST_WORLD = WorldSpec(2, deadline=10.0, capture=True, lazy=True)
INSTALL = "Install a wheel of torch for Linux: pip install torch."

Start = Callable[[], WorldReport]


def build(system: System) -> Finding:
    """Check torch's release and build."""
    found = system.torch()
    platform = f"CUDA {found.cuda}" if found.cuda else f"ROCm {found.rocm}" if found.rocm else "CPU"
    text = f"{found.version}, for {platform}"
    if not found.distributed:
        why = "This build doesn't include torch.distributed."
        return broken(f"{text}, without torch.distributed", why, INSTALL)
    if (0, 0) < release_of(found.version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        why = f"distdemo supports torch {oldest} and later."
        return warning(text, why, f"pip install 'torch>={oldest}'")
    return fine(text, version=found.version, cuda=found.cuda, rocm=found.rocm)


def built_in(system: System) -> Finding:
    """Check the backends that torch was built with."""
    found = system.torch().backends
    meant = system.torch().implementations
    listed = ", ".join(
        f"{name} {version}".strip() + (f" ({name} means {meant[name]})" if name in meant else "")
        for name, version in found.items()
    )
    usual = backends.default_backend(1, "cpu").name
    if usual not in found:
        return broken(
            f"built in: {listed or 'none'}; {usual} is missing",
            f"CPU tensors, objects and most examples need {usual}.",
            INSTALL,
        )
    return fine(f"built in: {listed} (distdemo backends tests each)", backends=tuple(found))


def world(start: Start | None) -> Finding:
    """Check the test world.

    Args:
        start: ``start_world``; None to skip the check.
    """
    if start is None:
        return skipped("no test world was started (--no-world)")
    try:
        report = start()
    except UsageError as error:
        return broken(
            f"the test world couldn't be started: {error.what.rstrip('.')}", error.why, error.hint
        )
    size = report.world.world_size
    name = f"a world of {size} ranks over {report.world.backend}"
    if report.verdict is not None:
        found = report.verdict
        return broken(f"{name} failed: {found.what.rstrip('.')}", found.why, found.hint)
    wanted = float(size * (size + 1) // 2)
    if any(value != wanted for value in report.values):
        return broken(
            f"{name} computed the sum {report.values[0]:g} instead of {wanted:g}",
            "A library that torch uses computes or transfers data incorrectly.",
            "distdemo check shows the wrong operations. Check LD_PRELOAD and LD_LIBRARY_PATH.",
        )
    return fine(f"{name}: verified in {report.seconds:.1f} s")


def start_world() -> WorldReport:
    """Run an all_reduce in a two-rank world over gloo."""
    from distdemo.launcher.local import run_world  # imports torch, which may be missing

    return run_world(TEST_WORLD, sum_ranks)


def sum_ranks(rank: Rank) -> float:
    """Return the sum of rank + 1 over all ranks. Collective."""
    import torch
    import torch.distributed as dist

    number = torch.tensor([float(rank.rank + 1)])
    rank.report_phase("entered all_reduce")
    dist.all_reduce(number)
    rank.report_phase("left all_reduce")
    return float(number.item())
