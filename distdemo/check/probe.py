"""What a backend takes, found out by trying: every form × dtype × reduce op in a world of its own.

Some combinations raise, some give wrong numbers, some abort the process: each is a finding. What
comes out is the map that the commands ask before they start ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from distdemo import backends, ops
from distdemo.backends.capabilities import CapabilityMap, capabilities, form_key, key, release_of
from distdemo.check import matrix
from distdemo.check.cases import Case
from distdemo.check.checker import Plan, Progress, Start, check
from distdemo.check.guilt import LOST
from distdemo.check.records import CaseResult, MapReport
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import WorldSpec
from distdemo.ops.reduction import REDUCTIONS
from distdemo.versions import torch_version

KINDS = {(): "scalar", (0,): "empty"}
"""The shapes that are tried beside the usual one."""


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
        world: the backend, device and size of the worlds; its patience is that of one case.
        start: starts a world.
        progress: called with (cases done, cases failed, the one that runs now).
        isolate: a world for each case; else they share worlds until one fails.
        wanted: which cases to try; None: all.

    Raises:
        KeyboardInterrupt: half a map is none.
    """
    cases = [case for case in matrix.pairs(world.world_size) if wanted is None or wanted(case)]
    plan = Plan(cases, world, "probe", isolate=isolate, skip_refused=False)
    report = check(plan, start, progress)
    if report.interrupted:
        raise KeyboardInterrupt
    found = capabilities_of(world, list(zip(cases, report.results, strict=True)))
    known = capabilities(backends.REGISTRY[world.backend].map_name(world.device))
    return MapReport(
        found,
        tuple(disagreements(found, cases)),
        len(cases),
        report.worlds,
        report.seconds,
        () if known is None else tuple(differences(found, known)),
        "" if known is None else known.torch,
    )


def capabilities_of(world: WorldSpec, tried: Iterable[tuple[Case, CaseResult]]) -> CapabilityMap:
    """The map that these results make."""
    findings = [""]
    rows: dict[str, list[int]] = {}
    shapes: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}
    for case, result in sorted(tried, key=lambda pair: _order(pair[0])):
        finding = finding_of(result)
        if case.spec.shape in KINDS and not _has_no_elements(case):
            if finding:
                shapes[KINDS[case.spec.shape]][form_key(case.op, case.spec)] = finding
            continue
        if finding not in findings:
            findings.append(finding)
        for column in _columns(case):
            row = rows.setdefault(key(case.op, case.spec), [0] * len(DTYPES))
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


def disagreements(found: CapabilityMap, cases: Iterable[Case]) -> list[str]:
    """Where the documentation says something else than what happened, in lines."""
    backend = backends.REGISTRY[found.backend]
    odd: dict[tuple[str, bool], list[str]] = {}
    for case in cases:
        said = backend.documented(case.op, case.spec)
        row = found.rows.get(key(case.op, case.spec))
        if said is None or row is None or case.dtype not in found.dtypes:
            continue
        works = row[found.dtypes.index(case.dtype)] == 0
        if works != said:
            entry = odd.setdefault((key(case.op, case.spec), works), [])
            entry += [case.dtype] if case.dtype not in entry else []
    return [
        f"{name.replace('/tensor', '')}: documented as {'not ' if works else ''}supported, "
        f"{'works' if works else 'does not work'} here for {', '.join(dtypes)}."
        for (name, works), dtypes in odd.items()
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


def _order(case: Case) -> tuple[int, int, int]:
    """As the ops, their forms and the reduce ops are listed."""
    reduce_op = case.spec.reduce_op
    return (
        list(ops.REGISTRY).index(case.op.name),
        case.op.all_forms.index(case.form),
        0 if reduce_op is None else list(REDUCTIONS).index(reduce_op),
    )


def _has_no_elements(case: Case) -> bool:
    return case.op.meets or case.spec.objects


def _columns(case: Case) -> list[int]:
    """The dtypes that a case says something of: all of them where elements don't matter."""
    if case.op.meets or case.spec.objects:
        return list(range(len(DTYPES)))
    return [list(DTYPES).index(case.spec.dtype)]
