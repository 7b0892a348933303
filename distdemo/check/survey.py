"""Which backends are here: asked of torch, and tried with two ranks and an all_reduce."""

from __future__ import annotations

from dataclasses import replace

import torch.distributed as dist

from distdemo import backends, ops
from distdemo.backends.contract import Backend
from distdemo.check.checker import Start
from distdemo.check.records import BackendEntry
from distdemo.demo.rank import run_op
from distdemo.errors import UsageError
from distdemo.launcher.records import Returned, WorldSpec
from distdemo.ops.spec import OpSpec

BUILT_IN = frozenset({"undefined", "fake", "xccl", *backends.REGISTRY})
PATIENCE = 15.0  # seconds that a backend gets to show that it works


def survey(start: Start) -> list[BackendEntry]:
    """An entry for each backend that torch knows, and for each that a third party registered.

    Args:
        start: starts a world.
    """
    known = [_of_known(backend, start) for backend in backends.REGISTRY.values()]
    others = [name for name in dist.Backend.backend_list if name not in BUILT_IN]
    return [*known, *(_of_third_party(name, start) for name in others)]


def _of_known(backend: Backend, start: Start) -> BackendEntry:
    missing = backend.missing()
    entry = BackendEntry(
        name=backend.name,
        summary=backend.summary if missing else f"{backend.summary} {backend.choice()}".strip(),
        devices=backend.devices,
        missing=missing or "",
        get=backend.get if missing else "",
        version="" if missing else backend.version(),
    )
    if missing:
        return entry
    return _tried(entry, backend.default_device(), start)


def _of_third_party(name: str, start: Start) -> BackendEntry:
    """One that somebody registered with ``Backend.register_backend``."""
    devices = tuple(dist.Backend.backend_capability.get(name, ["cpu"]))
    entry = BackendEntry(name, "Registered by a third party.", devices)
    if "cpu" not in devices and "cuda" not in devices:
        return entry
    return _tried(entry, "cpu" if "cpu" in devices else "cuda", start)


def _tried(entry: BackendEntry, device: str, start: Start) -> BackendEntry:
    """The same with what came of an all_reduce over it."""
    ranks = 2 if device == "cpu" else min(2, backends.count_gpus())
    world = WorldSpec(ranks, entry.name, device, PATIENCE, capture=True)
    specs = (OpSpec("all_reduce", ranks, reduce_op="sum"),)
    try:
        report = start(world, run_op, (ops.REGISTRY["all_reduce"], specs), hear=_nothing)
    except UsageError as error:
        return replace(entry, works=False, tried=error.what)
    if report.verdict is not None:
        return replace(entry, works=False, tried=report.verdict.what)
    records = [outcome.value for outcome in report.outcomes if isinstance(outcome, Returned)]
    right = all(record.verification.ok for record in records)
    did = f"all_reduce on {ranks} rank{'s' if ranks > 1 else ''}"
    return replace(
        entry, works=right, tried=f"{did} {'verified' if right else 'gave a wrong result'}"
    )


def _nothing(rank: int, value: object) -> None:
    """Nobody tells anything here."""
