"""Capability maps: what a probe finds, how maps are merged, and that the built-in ones hold."""

from __future__ import annotations

import importlib.util
import json

import pytest
from forked import in_a_child
from maps import merged, outcomes, written

from distdemo.backends import prepared
from distdemo.backends.contract import capability_map, read_map
from distdemo.check import matrix
from distdemo.check.controller import CheckRun
from distdemo.check.matrix import Case
from distdemo.dtypes import DTYPES
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.versions import release_of, torch_version

WORLD = WorldSpec(3, start_method="fork", stall=30.0)


@pytest.mark.processes
def test_a_probe_on_real_ranks_becomes_a_map(command, tmp_path):
    file = tmp_path / "probe.json"
    words = "check --probe --op broadcast/tensor --dtype float32 --dtype int16 -q --output"
    code, _, _ = command(*words.split(), str(file))
    assert code == 1  # int16 fails
    document = json.loads(file.read_text())
    assert len(document["cases"]) == 4
    rows, shapes = outcomes(document)
    findings = dict(zip(DTYPES, rows["broadcast/tensor"], strict=True))
    assert (findings["float32"], findings["int16"]) == ("works", "raised")
    assert shapes == {"scalar": {}, "empty": {}}
    known = merged(None, document)
    file.write_text(written(known), encoding="utf-8")
    assert read_map(file) == known == merged(known, document)
    assert known.findings == ("works", "raised")


# ------------------------------------------------------------------------------ the built-in maps


@pytest.mark.processes
def test_the_map_of_gloo_holds_in_the_installed_release():
    # Every working case, but one failing case per form and failure: each costs a new world.
    known = capability_map("gloo")
    assert known is not None
    release = known.closest(torch_version())
    if release_of(release) != release_of(torch_version()):
        pytest.skip(f"torch {torch_version()} isn't probed yet; the map is for {release}")
    works: list[Case] = []
    fails: dict[tuple[str, str, str], Case] = {}
    for case in matrix.probe():
        finding = known.finding(case.op, case.spec, release)
        if finding != "works":
            fails.setdefault((finding, case.op.name, case.form_name), case)
        else:
            works.append(case)
    assert len(works) > 300
    assert len(fails) > 5
    report = CheckRun([*works, *fails.values()], WORLD, "probe").run(run_world)
    assert [case.id for case in report.cases[: len(works)] if case.status != "passed"] == []
    assert {case.status for case in report.cases[len(works) :]} == {"failed"}


@pytest.mark.processes
def test_the_matrix_and_the_map_of_mpi():
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py: pip install 'distdemo[mpi]'")

    def work():
        known = capability_map("mpi")
        assert known is not None
        release = known.closest(torch_version())
        works = [
            case for case in matrix.probe() if known.finding(case.op, case.spec, release) == "works"
        ]
        assert len(works) > 700
        # Every fifth case still covers each of the 17 dtypes and 9 reduce ops in each form.
        chosen = {case.id: case for case in (*matrix.quick(sizes=(3,)), *works[::5])}
        world = prepared(WorldSpec(3, "mpi", stall=30.0))
        report = CheckRun([*chosen.values()], world).run(run_world)
        assert {case.status for case in report.cases} <= {"passed", "not supported"}
        assert {case.id for case in report.of("passed")} >= {case.id for case in works[::5]}

    in_a_child(work)
