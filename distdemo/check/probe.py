"""Which backends are here, and what one of them takes: both found out by trying.

The survey runs an all_reduce over each. The probe runs every form × dtype × reduce op in a world of
its own: some combinations raise, some give wrong numbers, some abort the process, and each is a
finding. What comes out is the map that the commands ask before they start ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch.distributed as dist

from distdemo import backends, ops
from distdemo.backends.capabilities import CapabilityMap, capabilities, form_key, key
from distdemo.check import matrix
from distdemo.check.controller import LOST, CheckPlan, Progress, Start, check
from distdemo.check.matrix import Case
from distdemo.check.records import BackendEntry, BackendList, CaseResult, MapReport
from distdemo.demo.rank import run_op
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.versions import release_of, torch_version

BUILT_IN = frozenset({"undefined", "fake", "xccl", "nccl2", "nccl-legacy", *backends.REGISTRY})
"""What torch brings itself; any other was registered by a third party."""
PATIENCE = 15.0  # seconds that a backend gets to show that it works
KINDS = {(): "scalar", (0,): "empty"}
"""The shapes that are tried beside the usual one."""


def survey(start: Start) -> BackendList:
    """An entry for each backend that torch knows, and for each that a third party registered.

    Args:
        start: starts a world.
    """
    found = []
    for backend in backends.REGISTRY.values():
        missing = backend.missing()
        entry = BackendEntry(
            backend.name,
            backend.summary,
            backend.devices,
            implementation=backend.implementation(),
        )
        if missing:
            found.append(replace(entry, missing=missing, get=backend.get))
        else:
            summary = f"{backend.summary} {backend.choice()}".strip()
            entry = replace(entry, summary=summary, version=backend.version())
            found.append(_tried(entry, backend.default_device(), start))
    for name in dist.Backend.backend_list:
        if name not in BUILT_IN:  # registered with ``Backend.register_backend``
            devices = tuple(dist.Backend.backend_capability.get(name, ["cpu"]))
            entry = BackendEntry(name, "Registered by a third party.", devices)
            device = next((each for each in ("cpu", "cuda") if each in devices), None)
            found.append(entry if device is None else _tried(entry, device, start))
    return BackendList(tuple(found))


def _tried(entry: BackendEntry, device: str, start: Start) -> BackendEntry:
    """The same with what came of an all_reduce over it."""
    ranks = 2 if device == "cpu" else min(2, backends.count_gpus())
    world = WorldSpec(ranks, entry.name, device, PATIENCE, capture=True)
    specs = (OpSpec("all_reduce", ranks, reduce_op="sum"),)
    try:
        report = start(world, run_op, (ops.REGISTRY["all_reduce"], specs))
    except UsageError as error:
        return replace(entry, tried=error.what)
    if report.verdict is not None:
        return replace(entry, works=False, tried=report.verdict.what)
    right = all(result.verification.ok for result in report.values)
    did = f"all_reduce on {ranks} rank{'s' if ranks > 1 else ''}"
    how = "verified" if right else "gave a wrong result"
    return replace(entry, works=right, tried=f"{did} {how}")


# -------------------------------------------------------------------------------------- the probe


def probe(
    world: WorldSpec,
    start: Start,
    progress: Progress | None = None,
    *,
    isolate: bool = True,
    wanted: Callable[[Case], bool] | None = None,
) -> MapReport:
    """The map of this backend on this machine and torch.

    Args:
        world: the backend, device and size of the worlds; its ``stall`` is that of one case.
        start: starts a world.
        progress: called with (cases done, cases failed, the one that ended last).
        isolate: a world for each case; else they share worlds until one fails.
        wanted: which cases to try; None: all.

    Raises:
        KeyboardInterrupt: half a map is none.
    """
    cases = [
        case
        for case in matrix.pairs(world.world_size)
        if case.form.lacking() is None and (wanted is None or wanted(case))
    ]
    plan = CheckPlan(cases, world, "probe", isolate=isolate, skip_refused=False)
    report = check(plan, start, progress)
    if report.interrupted:
        raise KeyboardInterrupt
    found = map_of(world, zip(cases, report.cases, strict=True))
    known = capabilities(backends.REGISTRY[world.backend].map_name(world.device))
    return MapReport(
        map=found,
        documentation_differs=tuple(undocumented(found, cases)),
        built_in_differs=() if known is None else tuple(differences(found, known)),
        built_in_torch="" if known is None else known.torch,
        tried=len(cases),
        worlds=report.worlds,
        time_s=report.time_s,
    )


def map_of(world: WorldSpec, tried: Iterable[tuple[Case, CaseResult]]) -> CapabilityMap:
    """The map that these results make, in the order of the ops, forms and reduce ops."""
    findings = [""]
    rows: dict[str, list[int]] = {}
    shapes: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}

    def place(pair: tuple[Case, CaseResult]) -> tuple[int, int, int]:
        op, form, spec = pair[0].op, pair[0].form, pair[0].spec
        reduction = list(REDUCTIONS).index(spec.reduce_op) if spec.reduce_op else 0
        return list(ops.REGISTRY).index(op.name), op.all_forms.index(form), reduction

    for case, result in sorted(tried, key=place):
        finding = finding_of(result)
        has_elements = case.dtype in DTYPES
        if has_elements and case.spec.shape in KINDS:
            if finding:
                shapes[KINDS[case.spec.shape]][form_key(case.op, case.spec)] = finding
            continue
        if finding not in findings:
            findings.append(finding)
        row = rows.setdefault(key(case.op, case.spec), [0] * len(DTYPES))
        for column, dtype in enumerate(DTYPES):
            if dtype == case.dtype or not has_elements:
                row[column] = findings.index(finding)
    release = ".".join(map(str, release_of(torch_version())))
    return CapabilityMap(
        world.backend, release, world.device, tuple(DTYPES), tuple(findings), rows, shapes
    )


def finding_of(result: CaseResult) -> str:
    """What happened, in words without anything that differs from run to run; empty for right."""
    if result.status == "passed":
        return ""
    if "elements are wrong" in result.why:
        return "gives a wrong result"
    dead = re.search(r"was killed by (\w+)", result.why)
    if dead:
        return f"kills the process ({dead[1]})"
    if result.why.startswith(("No progress", "Timed out")):
        return "hangs"
    raised = [line for line in result.details if re.match(r"rank \d+: \w+: ", line)]
    text = min((line for line in raised if LOST not in line), default=result.why)
    text = re.sub(r"^(rank \d+: |Rank \d+ raised )", "", text)
    text = re.sub(r" \(expected .*", "", text)
    # torch writes the reduce op's number as a control character into some of its messages.
    return "raises " + re.sub(r"[\x00-\x1f]", " this reduce op ", text)[:120]


def undocumented(found: CapabilityMap, cases: Iterable[Case]) -> list[str]:
    """Where the documentation says something else than what happened, in lines."""
    backend = backends.REGISTRY[found.backend]
    odd: dict[tuple[str, bool], dict[str, None]] = {}
    for case in cases:
        said = backend.documented(case.op, case.spec)
        row = found.rows.get(key(case.op, case.spec))
        if said is None or row is None or case.dtype not in found.dtypes:
            continue
        works = row[found.dtypes.index(case.dtype)] == 0
        if works != said:
            odd.setdefault((key(case.op, case.spec), works), {})[case.dtype] = None
    return [
        f"{form.replace('/tensor', '')}: documented as {'not ' if works else ''}supported, "
        f"{'works' if works else 'does not work'} here for {', '.join(dtypes)}."
        for (form, works), dtypes in odd.items()
    ]


def differences(found: CapabilityMap, known: CapabilityMap) -> list[str]:
    """Where two maps of one backend differ in what works, in lines."""
    lines = []
    for name, row in found.rows.items():
        other = known.rows.get(name)
        for place, dtype in enumerate(found.dtypes):
            if other is None or dtype not in known.dtypes:
                continue
            here = found.findings[row[place]]
            there = known.findings[other[known.dtypes.index(dtype)]]
            if bool(here) != bool(there):
                lines.append(f"{name}, {dtype}: {here or 'works'}; on the map: {there or 'works'}")
    for kind, forms in found.shapes.items():
        odd = sorted(set(forms) ^ set(known.shapes.get(kind, {})))
        lines += [f"{name}, {kind}: {forms.get(name, 'works')}; the map differs" for name in odd]
    return lines
