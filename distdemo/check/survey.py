"""Try every backend with an all_reduce."""

from __future__ import annotations

from dataclasses import replace

import torch.distributed as dist

from distdemo import backends, ops
from distdemo.check.controller import Start
from distdemo.check.rank import run_once
from distdemo.check.records import BackendEntry, BackendList
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.view.format import plural

BUILT_IN = frozenset({"undefined", "fake", "xccl", "nccl2", "nccl-legacy", *backends.REGISTRY})
"""Backends that torch includes; all others are registered by third parties."""
TRIAL_TIMEOUT_S = 15.0  # for the trial of a backend


def survey(start: Start) -> BackendList:
    """Return one entry per backend of torch and per backend registered by a third party.

    Args:
        start: Function that starts a world.
    """
    entries = []
    for backend in backends.REGISTRY.values():
        missing = backend.missing()
        entry = BackendEntry(
            backend.name,
            backend.summary,
            backend.devices,
            missing=missing or "",
            get=backend.how_to_install if missing else "",
            version="" if missing else backend.version(),
        )
        entries.append(entry if missing else _try_backend(entry, start))
    for name in dist.Backend.backend_list:
        if name not in BUILT_IN:  # registered with ``Backend.register_backend``
            devices = tuple(dist.Backend.backend_capability.get(name, ["cpu"]))
            entry = BackendEntry(name, "Registered by a third party.", devices)
            entries.append(_try_backend(entry, start))
    return BackendList(tuple(entries))


def _try_backend(entry: BackendEntry, start: Start) -> BackendEntry:
    """Return the entry with the outcome of an all_reduce, if it supports a device of ours."""
    known = backends.REGISTRY.get(entry.name)
    device = known.default_device() if known else ""
    if not device:
        device = next((name for name in ("cpu", "cuda") if name in entry.devices), "")
    if not device:
        return entry
    ranks = 2 if device == "cpu" else min(2, backends.count_gpus())
    world = WorldSpec(ranks, entry.name, device, TRIAL_TIMEOUT_S, capture=True)
    specs = (OpSpec("all_reduce", ranks, reduce_op="sum"),)
    try:
        report = start(world, run_once, (ops.REGISTRY["all_reduce"], specs))
    except UsageError as error:
        return replace(entry, tried=error.what)
    if report.verdict is not None:
        return replace(entry, works=False, tried=report.verdict.what)
    works = all(verification.ok for verification in report.values)
    outcome = "verified" if works else "gave a wrong result"
    return replace(entry, works=works, tried=f"all_reduce on {plural(ranks, 'rank')} {outcome}")
