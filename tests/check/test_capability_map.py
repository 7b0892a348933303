"""The built-in maps match the installed torch and MPI."""

from __future__ import annotations

import importlib.util
import re

import pytest
from forked import in_a_child
from probe import RANKS, cases

from distdemo.backends.capabilities import capabilities, key, probed_finding
from distdemo.backends.registry import run_prepared
from distdemo.check import matrix
from distdemo.check.controller import CheckPlan, check
from distdemo.check.matrix import Case
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.versions import release_of, torch_version

PASSED = ("passed", "not supported")


def kind_of(finding: str) -> str:
    """Return the finding without the names of reduce ops, dtypes and ops."""
    return re.sub(r"[A-Z_]{3,}|(?<=output type )\w+|\w+_\w+|(?<=: )reduce ", "", finding)


def test_the_map_matches_the_installed_release():
    # Every working case, but only one failing case per kind: each failure costs a new world.
    known = capabilities("gloo")
    assert known is not None
    if release_of(known.torch) != release_of(torch_version()):
        pytest.skip(f"torch {torch_version()} isn't probed yet; the map is for {known.torch}")
    works: list[Case] = []
    fails: dict[str, Case] = {}
    for case in cases():
        if case.form.lacking() or key(case.op, case.spec) not in known.rows:
            continue  # this torch lacks it, or nobody has probed it yet
        finding = probed_finding(known, case.op, case.spec)
        if finding is None:
            works.append(case)
        else:
            fails.setdefault(kind_of(finding), case)
    assert len(works) > 300
    assert len(fails) > 5
    world = WorldSpec(RANKS, start_method="fork", stall=30.0)
    report = check(CheckPlan([*works, *fails.values()], world, skip_refused=False), run_world)
    assert [each.id for each in report.cases[: len(works)] if each.status != "passed"] == []
    assert {each.status for each in report.cases[len(works) :]} == {"failed"}


def test_the_matrix_and_the_map_of_mpi():
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py: pip install 'distdemo[mpi]'")

    def work():
        known = capabilities("mpi")
        assert known is not None
        there = [each for each in cases() if each.form.lacking() is None]
        works = [each for each in there if not probed_finding(known, each.op, each.spec)]
        assert len(works) > 700
        # Every fifth case still covers each of the 17 dtypes and 9 reduce ops in each form.
        chosen = {each.id: each for each in (*matrix.quick(sizes=(RANKS,)), *works[::5])}
        world = WorldSpec(RANKS, "mpi", stall=30.0)
        report = check(CheckPlan([*chosen.values()], world), run_prepared)
        failed = [each.id for each in report.cases if each.status not in PASSED]
        assert failed == []
        assert {each.id for each in report.of("passed")} >= {each.id for each in works[::5]}

    in_a_child(work)
