from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest
from forked import in_a_child

from distdemo.backends.capabilities import CapabilityMap, capabilities, refusal, release_of
from distdemo.backends.starting import run_prepared
from distdemo.check import matrix
from distdemo.check.controller import Plan, check
from distdemo.check.matrix import PROBE_RANKS, Case
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.versions import torch_version


def sampled(known: CapabilityMap) -> Callable[[Case], bool]:
    """All that works by the map; of what doesn't each finding, and each kind of it in each form.

    What fails needs a world of its own; the whole of it is for ``distdemo backends --probe``.
    """
    seen: set[tuple[str, ...]] = set()

    def wanted(case: Case) -> bool:
        finding = refusal(known, case.op, case.spec)
        if finding is None:
            return True
        keys = {(finding,), (case.op.name, case.form.name, kind_of(finding))}
        new = not keys <= seen
        seen.update(keys)
        return new

    return wanted


def kind_of(finding: str) -> str:
    """The finding without the names of reduce ops and dtypes."""
    return re.sub(r"[A-Z_]{3,}|(?<=output type )\w+", "", finding)


def test_the_map_of_the_installed_release_is_true() -> None:
    known = capabilities("gloo")
    assert known is not None
    if release_of(known.torch) != release_of(torch_version()):
        pytest.skip(f"nobody has probed torch {torch_version()} yet: the map is of {known.torch}")
    world = WorldSpec(PROBE_RANKS, stall=30.0)
    pick = sampled(known)
    cases = [case for case in matrix.pairs(PROBE_RANKS) if pick(case)]
    assert len(cases) > 500
    report = check(Plan(cases, world, skip_refused=False), run_world)
    for case, result in zip(cases, report.cases, strict=True):
        works = refusal(known, case.op, case.spec) is None
        assert (result.status == "passed") is works, (case.id, result.why)


def test_all_that_works_by_the_map_of_mpi_works() -> None:
    def work() -> None:
        known = capabilities("mpi")
        assert known is not None
        works = [
            case for case in matrix.pairs(PROBE_RANKS) if not refusal(known, case.op, case.spec)
        ]
        assert len(works) > 700
        world = WorldSpec(PROBE_RANKS, "mpi", stall=30.0)
        report = check(Plan(works, world, skip_refused=False), run_prepared)
        assert [each.id for each in report.cases if each.status != "passed"] == []

    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py: pip install 'distdemo[mpi]'")
    in_a_child(work)
