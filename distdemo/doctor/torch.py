"""torch: which release, built for what, with which backends; and whether a world of it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import Surroundings
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import release_of

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

OLDEST = (2, 8)  # pyproject.toml says why
TRIAL = WorldSpec(2, deadline=10.0, capture=True, lazy=True)
INSTALL = "Install a wheel of torch for Linux: pip install torch."

Start = Callable[..., WorldReport]


def build(around: Surroundings) -> Finding:
    """The release, and what it was built for."""
    found = around.torch()
    made_for = f"CUDA {found.cuda}" if found.cuda else f"ROCm {found.rocm}" if found.rocm else "CPU"
    text = f"{found.version}, for {made_for}"
    if not found.distributed:
        why = "Nothing of torch.distributed is in this build."
        return broken(f"{text}, without torch.distributed", why, INSTALL)
    if (0, 0) < release_of(found.version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        why = f"distdemo is made for torch {oldest} and later."
        return warning(text, why, f"pip install 'torch>={oldest}'")
    return fine(text, version=found.version, cuda=found.cuda, rocm=found.rocm)


def built_in(around: Surroundings) -> Finding:
    """The backends that this torch was built with."""
    found = around.torch().backends
    meant = around.torch().implementations
    listed = ", ".join(
        f"{name} {version}".strip() + (f" ({name} means {meant[name]})" if name in meant else "")
        for name, version in found.items()
    )
    usual = backends.automatic(1, "cpu").name
    if usual not in found:
        return broken(
            f"built in: {listed or 'none'}; {usual} is not",
            f"CPU tensors, objects and most examples travel over {usual}.",
            INSTALL,
        )
    return fine(f"built in: {listed} (distdemo backends tries each)", backends=tuple(found))


def world(start: Start | None) -> Finding:
    """The proof: two ranks over gloo add up a number each.

    Args:
        start: starts a world; None to leave it.
    """
    if start is None:
        return skipped("no world was tried (--no-world)")
    try:
        report = start(TRIAL, add_up)
    except UsageError as error:
        return broken(f"no world could be started: {error.what.rstrip('.')}", error.why, error.hint)
    size = report.world.world_size
    name = f"a world of {size} ranks over {report.world.backend}"
    if report.verdict is not None:
        found = report.verdict
        return broken(f"{name} failed: {found.what.rstrip('.')}", found.why, found.hint)
    wanted = float(size * (size + 1) // 2)
    if any(value != wanted for value in report.values):
        return broken(
            f"{name} added up to {report.values[0]:g} instead of {wanted:g}",
            "A library under torch computes or carries data wrongly.",
            "distdemo check shows which operations are wrong; look at LD_PRELOAD and "
            "LD_LIBRARY_PATH.",
        )
    return fine(f"{name}: verified in {report.seconds:.1f} s")


def add_up(rank: Rank) -> float:
    """Collective: the sum over all ranks of each rank's number + 1. Runs in the ranks."""
    import torch
    import torch.distributed as dist

    number = torch.tensor([float(rank.rank + 1)])
    rank.reach("entered all_reduce")
    dist.all_reduce(number)
    rank.reach("left all_reduce")
    return float(number.item())
