"""The built-in maps are true for the torch and the MPI that are installed."""

from __future__ import annotations

import importlib.util
import re

import pytest
from forked import in_a_child
from probe import RANKS, cases

from distdemo.backends.capabilities import capabilities, refusal
from distdemo.backends.starting import run_prepared
from distdemo.check.controller import CheckPlan, check
from distdemo.check.matrix import Case
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.versions import release_of, torch_version


def kind_of(finding: str) -> str:
    """The finding without the names of reduce ops, dtypes and ops."""
    return re.sub(r"[A-Z_]{3,}|(?<=output type )\w+|\w+_\w+|(?<=: )reduce ", "", finding)


def test_the_map_of_the_installed_release_is_true():
    # All that works; of what fails, which takes a world of its own, one of each kind.
    known = capabilities("gloo")
    assert known is not None
    if release_of(known.torch) != release_of(torch_version()):
        pytest.skip(f"nobody has probed torch {torch_version()} yet: the map is of {known.torch}")
    works: list[Case] = []
    fails: dict[str, Case] = {}
    for case in (each for each in cases() if each.form.lacking() is None):
        finding = refusal(known, case.op, case.spec)
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


def test_what_works_by_the_map_of_mpi_works():
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py: pip install 'distdemo[mpi]'")

    def work():
        known = capabilities("mpi")
        assert known is not None
        there = [each for each in cases() if each.form.lacking() is None]
        works = [each for each in there if not refusal(known, each.op, each.spec)]
        assert len(works) > 700
        world = WorldSpec(RANKS, "mpi", stall=30.0)
        # Every fifth: of the 17 dtypes and 9 reduce ops each is met in each form.
        report = check(CheckPlan(works[::5], world, skip_refused=False), run_prepared)
        assert [each.id for each in report.cases if each.status != "passed"] == []

    in_a_child(work)
