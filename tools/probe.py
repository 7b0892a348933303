"""Probe a backend: try every form, dtype and reduce op, and write its capability map.

    python tools/probe.py gloo
    python tools/probe.py nccl --output nccl.json

Every combination runs in its own world: some raise, give wrong numbers, hang or abort the process.
Each of these is a finding. The file is written after each operation, so an interrupted probe leaves
the operations that were tried. ``tools/releases.py --fold`` merges it into the package's maps.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import product
from pathlib import Path

from distdemo import backends, ops
from distdemo.backends.capabilities import CapabilityMap, capabilities, form_key, key
from distdemo.check.controller import LOST, CheckPlan, Start, check
from distdemo.check.matrix import Case, Setting, make_case
from distdemo.check.records import CaseResult
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.reduction import REDUCTIONS
from distdemo.versions import release_of, torch_version
from distdemo.view.progress import Progress

RANKS = 3  # odd, and enough for two ranks with equal data
KINDS = {(): "scalar", (0,): "empty"}
"""Shapes to try in addition to the usual one."""


def main() -> int:
    """Probe one backend; print differences from its documentation and the built-in map."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", choices=[*backends.REGISTRY])
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the backend's first")
    parser.add_argument(
        "--stall", type=float, default=10.0, help="seconds until a hanging case is stopped"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the map")
    asked = parser.parse_args()
    backend = backends.REGISTRY[asked.backend]
    device = asked.device or backend.default_device()

    def write(found: CapabilityMap) -> None:
        if asked.output:
            asked.output.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")

    try:
        ranks = RANKS if device == "cpu" else max(1, min(RANKS, backends.count_gpus()))
        method = "fork" if device == "cpu" else "auto"  # this process makes no computations
        world = WorldSpec(ranks, backend.name, device, start_method=method, stall=asked.stall)
        found = probe(world, backends.run_prepared, write)
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        print(error.what, error.why, error.hint, sep="\n", file=sys.stderr)
        return 2
    known = capabilities(backend.map_name())
    for heading, lines in (
        ("Differences from PyTorch's documentation:", undocumented(found, cases(ranks))),
        ("Differences from the built-in map:", differences(found, known) if known else ()),
    ):
        if lines:
            print(heading, *lines, sep="\n  ")
    return 0


def cases(world_size: int = RANKS) -> list[Case]:
    """Return every form × dtype × reduce op once, and with scalar and empty tensors."""
    settings = [Setting(world_size, dtype, op) for dtype, op in product(DTYPES, REDUCTIONS)]
    settings += [Setting(world_size, shape=shape) for shape in KINDS]
    forms = [(op, form) for op in ops.REGISTRY.values() for form in op.all_forms]
    made = (make_case(op, form, each) for each, (op, form) in product(settings, forms))
    return list({case.id: case for case in made if case is not None}.values())


def probe(
    world: WorldSpec,
    start: Start,
    write: Callable[[CapabilityMap], object] = lambda _: None,
    *,
    isolate: bool = True,
    wanted: Callable[[Case], bool] | None = None,
) -> CapabilityMap:
    """Return the map of this backend on this machine and torch.

    Args:
        world: Backend, device and size of the worlds; its ``stall`` is the limit of one case.
        start: Starts a world.
        write: Called with the map so far after each operation.
        isolate: Use a world per case; otherwise cases share worlds until one fails.
        wanted: Selects cases; None: all.

    Raises:
        KeyboardInterrupt: The probe was interrupted: the last map that was written isn't complete.
    """
    selected = [
        case
        for case in cases(world.world_size)
        if case.form.lacking() is None and (wanted is None or wanted(case))
    ]
    tried: list[tuple[Case, CaseResult]] = []
    found = map_of(world, tried)
    with Progress(len(selected)) as bar:

        def advance(done: int, failed: int, name: str) -> None:
            earlier = sum(result.status == "failed" for _, result in tried)
            bar.advance(len(tried) + done, earlier + failed, name)

        for op in dict.fromkeys(case.op.name for case in selected):
            own = [case for case in selected if case.op.name == op]
            plan = CheckPlan(own, world, "probe", isolate=isolate, skip_refused=False)
            report = check(plan, start, advance)
            if report.interrupted:
                raise KeyboardInterrupt
            tried += zip(own, report.cases, strict=True)
            found = map_of(world, tried)
            write(found)
    return found


def map_of(world: WorldSpec, tried: Iterable[tuple[Case, CaseResult]]) -> CapabilityMap:
    """Return the map of these results, ordered by op, form and reduce op."""
    findings = [""]
    rows: dict[str, list[int]] = {}
    shapes: dict[str, dict[str, str]] = {kind: {} for kind in KINDS.values()}

    def position(pair: tuple[Case, CaseResult]) -> tuple[int, int, int]:
        op, form, spec = pair[0].op, pair[0].form, pair[0].spec
        reduction = list(REDUCTIONS).index(spec.reduce_op) if spec.reduce_op else 0
        return list(ops.REGISTRY).index(op.name), op.all_forms.index(form), reduction

    for case, result in sorted(tried, key=position):
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
    """Return the outcome as text without details that vary between runs; empty if passed."""
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
    # Some of torch's messages contain the reduce op's number as a control character.
    return "raises " + re.sub(r"[\x00-\x1f]", " this reduce op ", text)[:120]


def undocumented(found: CapabilityMap, tried: Iterable[Case]) -> list[str]:
    """Return one line per difference between the documentation and the results."""
    backend = backends.REGISTRY[found.backend]
    different: dict[tuple[str, bool], dict[str, None]] = {}
    for case in tried:
        documented = backend.documented(case.op, case.spec)
        row = found.rows.get(key(case.op, case.spec))
        if documented is None or row is None or case.dtype not in found.dtypes:
            continue
        works = row[found.dtypes.index(case.dtype)] == 0
        if works != documented:
            different.setdefault((key(case.op, case.spec), works), {})[case.dtype] = None
    return [
        f"{form.replace('/tensor', '')}: documented as {'not ' if works else ''}supported, "
        f"{'works' if works else 'does not work'} here for {', '.join(dtypes)}."
        for (form, works), dtypes in different.items()
    ]


def differences(found: CapabilityMap, known: CapabilityMap) -> list[str]:
    """Return one line per difference in what works between two maps of a backend."""
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
        changed = sorted(set(forms) ^ set(known.shapes.get(kind, {})))
        lines += [
            f"{name}, {kind}: {forms.get(name, 'works')}; the map differs" for name in changed
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
