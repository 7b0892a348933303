"""Capability maps: what a probe finds, how maps are merged, and that the built-in ones hold."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from forked import in_a_child
from hypothesis import given
from hypothesis import strategies as st
from maps import FORMS, finding_of, merged, outcomes, written

from distdemo.backends import run_prepared
from distdemo.backends.capabilities import CapabilityMap, capability_map, read_map, value_in
from distdemo.check import matrix
from distdemo.check.controller import CheckRun
from distdemo.check.matrix import Case
from distdemo.dtypes import DTYPES
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.versions import release_of, torch_version

WORLD = WorldSpec(3, start_method="fork", stall=30.0)

# --------------------------------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("why", "details", "finding"),
    [
        ("Rank 1: 3 of 7 elements are wrong.", ["rank 1: got 1"], "gives a wrong result"),
        ("Rank 2 was killed by SIGSEGV.", [], "kills the process (SIGSEGV)"),
        ("No progress for 5 s: rank 1 is late.", ["rank 1: still in all_reduce"], "hangs"),
        ("Timed out after 5 s.", [], "hangs"),
        ("Rank 0 raised ValueError: Invalid type", [], "raises ValueError: Invalid type"),
        (  # the same error on another rank is the same finding
            "Rank 2 raised what it raised.",
            ["rank 2: ValueError: too small (expected 4)", "rank 1: ValueError: too small"],
            "raises ValueError: too small",
        ),
        (
            "Rank 0 raised RuntimeError: Connection closed.",
            ["rank 0: RuntimeError: lost its connection: closed", "rank 1: TypeError: no dtype"],
            "raises TypeError: no dtype",
        ),
        (
            r"Rank 0 raised RuntimeError: reduce does not support \x02 here",
            [],
            "raises RuntimeError: reduce does not support  this reduce op  here",
        ),
    ],
)
def test_findings_contain_nothing_specific_to_the_run(why, details, finding):
    assert finding_of({"status": "failed", "why": why, "details": details}) == finding


@pytest.mark.processes
def test_a_probe_on_real_ranks(command, tmp_path):
    file = tmp_path / "probe.json"
    words = "check --probe --op broadcast/tensor --dtype float32 --dtype int16 -q --output"
    code, _, _ = command(*words.split(), str(file))
    assert code == 1  # int16 fails
    document = json.loads(file.read_text())
    assert document["worlds"] == len(document["cases"]) == 4
    rows, shapes = outcomes(document)
    findings = dict(zip(DTYPES, rows["broadcast/tensor"], strict=True))
    assert findings["float32"] == ""
    assert "Invalid scalar type" in findings["int16"]
    assert shapes == {"scalar": {}, "empty": {}}


# ---------------------------------------------------------------------------------------- merging


def document(release: str, results: dict[str, str], kind: str = "7") -> dict[str, Any]:
    """Return a probe in which float32 has these results, by form."""
    shape = {"scalar": [], "empty": [0]}.get(kind, [7])
    cases = [
        {
            "id": f"{form}/float32".replace(" ", "-"),
            "op": {"dtype": "float32", "shape": shape},
            "status": "failed" if why else "passed",
            "why": why,
        }
        for form, why in results.items()
    ]
    return {
        "backend": "gloo",
        "device": "cpu",
        "versions": {"torch": f"{release}.0+cpu"},
        "cases": cases,
    }


RESULTS = st.dictionaries(st.sampled_from(FORMS), st.sampled_from(["", "odd", "No progress"]))


@given(st.lists(st.tuples(RESULTS, st.sampled_from(["7", "scalar"])), min_size=1, max_size=5))
def test_a_map_gives_back_the_probe_of_every_release(results):
    probes = {
        f"2.{minor}": document(f"2.{minor}", *result) for minor, result in enumerate(results, 8)
    }
    known: CapabilityMap | None = None
    for probe in [*reversed(probes.values()), *probes.values()]:  # the second time replaces
        known = merged(known, probe)
    assert known is not None
    assert known.releases == tuple(probes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "gloo.json"
        file.write_text(written(known), encoding="utf-8")
        assert read_map(file) == known
    for release, probe in probes.items():
        rows, shapes = outcomes(probe)
        numbers = {row: value_in(changes, release) or () for row, changes in known.rows.items()}
        assert rows == {
            row: [known.findings[number] for number in own] for row, own in numbers.items() if own
        }
        for kind, forms in known.shapes.items():
            findings = {form: value_in(changes, release) for form, changes in forms.items()}
            assert shapes[kind] == {form: text for form, text in findings.items() if text}
    for changes in known.rows.values():
        assert all(one != other for one, other in pairwise(changes.values()))


# ------------------------------------------------------------------------------ the built-in maps


def kind_of(finding: str) -> str:
    """Return the finding without the names of reduce ops, dtypes and ops."""
    return re.sub(r"[A-Z_]{3,}|(?<=output type )\w+|\w+_\w+|(?<=: )reduce ", "", finding)


@pytest.mark.processes
def test_the_map_of_gloo_holds_in_the_installed_release():
    # Every working case, but only one failing case per kind: each failure costs a new world.
    known = capability_map("gloo")
    assert known is not None
    release = known.closest(torch_version())
    if release_of(release) != release_of(torch_version()):
        pytest.skip(f"torch {torch_version()} isn't probed yet; the map is for {release}")
    works: list[Case] = []
    fails: dict[str, Case] = {}
    for case in matrix.probe():
        finding = known.finding(case.op, case.spec, release)
        if finding:
            fails.setdefault(kind_of(finding), case)
        else:
            works.append(case)
    assert len(works) > 300
    assert len(fails) > 5
    report = CheckRun([*works, *fails.values()], WORLD, skip_refused=False).run(run_world)
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
        works = [case for case in matrix.probe() if not known.finding(case.op, case.spec, release)]
        assert len(works) > 700
        # Every fifth case still covers each of the 17 dtypes and 9 reduce ops in each form.
        chosen = {case.id: case for case in (*matrix.quick(sizes=(3,)), *works[::5])}
        world = WorldSpec(3, "mpi", stall=30.0)
        report = CheckRun([*chosen.values()], world).run(run_prepared)
        assert {case.status for case in report.cases} <= {"passed", "not supported"}
        assert {case.id for case in report.of("passed")} >= {case.id for case in works[::5]}

    in_a_child(work)
