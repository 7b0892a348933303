"""Findings and maps of the probe, and differences between maps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from maps import read
from probe import RANKS, cases, differences, finding_of, map_of, probe, undocumented

from distdemo import ops
from distdemo.backends.capabilities import WRONG, CapabilityMap, capabilities
from distdemo.check.matrix import Case
from distdemo.check.records import CaseResult
from distdemo.dtypes import DTYPES
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

WORLD = WorldSpec(RANKS)


@cache
def pairs() -> tuple[Case, ...]:
    return tuple(cases())


def result(case: Case, why: str = "", *details: str) -> CaseResult:
    """Return a passed result, or a failed one if there is a reason."""
    status: Any = "failed" if why else "passed"
    return CaseResult(
        case.id,
        case.op.name,
        case.form.name,
        case.dtype,
        case.world_size,
        status,
        why=why,
        details=details,
    )


def some(name: str, **more: Any) -> list[Case]:
    """Return the probe's cases of an op with these fields."""
    return [
        case
        for case in pairs()
        if case.op.name == name and all(getattr(case.spec, k) == v for k, v in more.items())
    ]


def mapped(cases: list[Case], why: Mapping[str, str] | None = None) -> CapabilityMap:
    """Return the map of these cases; the IDs in ``why`` fail."""
    reasons = why or {}
    return map_of(WORLD, [(case, result(case, reasons.get(case.id, ""))) for case in cases])


# --------------------------------------------------------------------------------------- findings


FINDINGS: list[tuple[str, list[str], str]] = [
    ("", [], ""),
    ("Rank 1: 3 of 7 elements are wrong.", ["rank 1, index 0: got 1"], "gives a wrong result"),
    ("Rank 2 was killed by SIGSEGV.", [], "kills the process (SIGSEGV)"),
    ("No progress for 5 s: rank 1 is late.", ["rank 1: still in all_reduce"], "hangs"),
    ("Timed out after 5 s.", [], "hangs"),
    ("Rank 0 raised ValueError: Invalid type", [], "raises ValueError: Invalid type"),
    (  # the same error on another rank is the same finding
        "Rank 2 raised what it raised.",
        ["rank 2: ValueError: too small (expected 4, got 3)", "rank 1: ValueError: too small"],
        "raises ValueError: too small",
    ),
    (
        "Rank 0 raised RuntimeError: Connection closed.",
        ["rank 0: RuntimeError: lost its peer: closed", "rank 1: TypeError: no such dtype"],
        "raises TypeError: no such dtype",
    ),
    (
        "Rank 0 raised RuntimeError: Closed",
        ["rank 0: RuntimeError: lost its peer: closed"],
        "raises RuntimeError: Closed",
    ),
    (
        "Rank 0 raised RuntimeError: reduce does not support \x02 here",
        [],
        "raises RuntimeError: reduce does not support  this reduce op  here",
    ),
]


def test_findings_contain_nothing_specific_to_the_run() -> None:
    for why, details, finding in FINDINGS:
        assert finding_of(result(pairs()[0], why, *details)) == finding
    long = finding_of(result(pairs()[0], "Rank 0 raised ValueError: " + "long\n" * 100))
    assert len(long) < 150
    assert "\n" not in long


# -------------------------------------------------------------------------------------- the map


def test_rows_are_in_the_order_of_the_ops_and_zero_if_all_passed() -> None:
    found = mapped(list(reversed(pairs())))
    assert (found.backend, found.device) == ("gloo", "cpu")
    assert found.dtypes == tuple(DTYPES)
    assert found.findings == ("",)
    assert all(list(row) == [0] * len(DTYPES) for row in found.rows.values())
    assert found.shapes == {"scalar": {}, "empty": {}}
    rows = list(found.rows)
    assert rows == list(mapped(list(pairs())).rows)
    names = [name.partition("/")[0] for name in rows]
    assert list(dict.fromkeys(names)) == list(ops.REGISTRY)
    assert [row for row in rows if row.startswith("all_reduce")][:3] == [
        "all_reduce/tensor sum",
        "all_reduce/tensor product",
        "all_reduce/tensor min",
    ]


def test_a_failure_is_an_index_in_the_column_of_its_dtype() -> None:
    cases = some("all_reduce", reduce_op="max", shape=(7,))
    of = {case.dtype: case.id for case in cases}
    wrong, raised = "Rank 0: 1 of 7 elements are wrong.", "Rank 0 raised ValueError: no"
    found = mapped(cases, {of["int16"]: wrong, of["bool"]: raised, of["complex64"]: wrong})
    (row,) = found.rows.values()
    seen = {d: found.findings[n] for d, n in zip(found.dtypes, row, strict=True) if n}
    assert seen == {
        "int16": "gives a wrong result",
        "bool": "raises ValueError: no",
        "complex64": "gives a wrong result",
    }
    assert len(found.findings) == 3, "the same finding has one number"


def test_a_failure_without_a_dtype_fills_the_row() -> None:
    for name, row in (("barrier", "barrier/monitored"), ("gather", "gather/objects")):
        cases = [case for case in some(name) if case.id.startswith(row)]
        found = mapped(cases, {cases[0].id: "No progress for 1 s."})
        assert set(found.rows[row]) == {1}
        assert found.findings == ("", "hangs")


def test_failing_shapes_are_keyed_by_form() -> None:
    cases = some("all_gather", shape=()) + some("all_gather", shape=(0,))
    cases = [case for case in cases if not case.spec.objects]
    failing = {case.id: "Rank 1 was killed by SIGSEGV." for case in cases if case.spec.shape == ()}
    found = mapped(cases, failing)
    assert found.rows == {}
    assert found.shapes["empty"] == {}
    assert set(found.shapes["scalar"]) == {"all_gather/list", "all_gather/single"}
    assert set(found.shapes["scalar"].values()) == {"kills the process (SIGSEGV)"}


def test_a_map_can_be_written_and_read(tmp_path: Any) -> None:
    cases = some("reduce")
    found = mapped(cases, {cases[3].id: 'Rank 0 raised ValueError: "quoted", ünïcode, \\'})
    file = tmp_path / "map.json"
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    assert read(file) == replace(found, rows=dict(found.rows), shapes=dict(found.shapes))
    assert differences(read(file), found) == []


# ----------------------------------------------------------------------------------- differences

MAP = CapabilityMap(
    backend="gloo",
    torch="2.13",
    device="cpu",
    dtypes=("float32", "bool"),
    findings=("", "hangs", "gives a wrong result"),
    rows={"reduce/tensor sum": (0, 1), "scatter/list": (0, 0)},
    shapes={"scalar": {"scatter/list": "hangs"}, "empty": {}},
)


def test_differences_are_matched_by_row_and_column_names() -> None:
    other = replace(MAP, rows={"reduce/tensor sum": (0, 0), "scatter/list": (2, 0)})
    assert differences(other, MAP) == [
        "reduce/tensor sum, bool: works; on the map: hangs",
        "scatter/list, float32: gives a wrong result; on the map: works",
    ]
    other = replace(MAP, shapes={"scalar": {}, "empty": {"scatter/list": "hangs"}})
    assert differences(other, MAP) == [
        "scatter/list, scalar: works; the map differs",
        "scatter/list, empty: hangs; the map differs",
    ]
    for same in (
        MAP,
        replace(MAP, rows={"reduce/tensor sum": (0, 2)}),  # another way to fail
        replace(MAP, rows={**MAP.rows, "broadcast/tensor": (1, 1)}),  # only in one map
        replace(MAP, dtypes=("float32", "bool", "int8"), rows={"scatter/list": (0, 0, 1)}),
        replace(
            MAP,
            dtypes=("bool", "float32"),
            rows={"reduce/tensor sum": (1, 0), "scatter/list": (0, 0)},
        ),
    ):
        assert differences(same, MAP) == differences(MAP, same) == []


def test_differences_from_the_documentation() -> None:
    lines = undocumented(mapped(list(pairs())), [*pairs(), *pairs()])
    (avg,) = [line for line in lines if line.startswith("all_reduce avg")]
    assert "documented as not supported, works here for float32, float64" in avg
    assert avg.count("float64") == 1
    assert not [line for line in lines if "sum" in line and "premul" not in line]
    assert all("/tensor" not in line for line in lines)
    nothing = mapped(list(pairs()), {case.id: "No progress for 1 s." for case in pairs()})
    lines = undocumented(nothing, pairs())
    assert "broadcast: documented as supported, does not work here for float32." in lines
    assert not [line for line in lines if "avg" in line], "not documented as supported"
    assert undocumented(mapped([]), pairs()) == []


def test_a_probe_runs_the_wanted_cases_on_real_ranks() -> None:
    found = probe(
        replace(WORLD, start_method="fork", stall=30.0),
        run_world,
        isolate=False,
        wanted=lambda case: (
            case.id.startswith("broadcast/tensor/") and case.dtype in ("float32", "int16")
        ),
    )
    row = dict(zip(found.dtypes, found.rows["broadcast/tensor"], strict=True))
    assert row["float32"] == 0
    assert "Invalid scalar type" in found.findings[row["int16"]]


def test_the_probe_finds_a_wrong_entry_of_the_map() -> None:
    known = capabilities("gloo")
    assert known is not None
    float32 = known.dtypes.index("float32")
    row = list(known.rows["broadcast/tensor"])
    row[float32] = known.findings.index(WRONG)
    planted = replace(known, rows={**known.rows, "broadcast/tensor": row})
    found = probe(
        replace(WORLD, start_method="fork", stall=30.0),
        run_world,
        isolate=False,
        wanted=lambda case: case.id.startswith("broadcast/tensor/float32"),
    )
    for built_in, lines in (
        (known, []),
        (planted, ["broadcast/tensor, float32: works; on the map: gives a wrong result"]),
    ):
        # The other dtypes weren't tried.
        assert [line for line in differences(found, built_in) if ", float32: " in line] == lines
