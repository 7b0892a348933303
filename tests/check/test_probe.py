"""Findings and maps of the probe, and differences between maps."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from maps import read
from probe import RANKS, cases, differences, finding_of, probe, undocumented

from distdemo.backends.capabilities import WRONG, CapabilityMap, capabilities
from distdemo.check.records import CaseResult, Status
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import Call

WORLD = WorldSpec(RANKS)


def result(why: str, *details: str) -> CaseResult:
    """Return a passed result, or a failed one if there is a reason."""
    status: Status = "failed" if why else "passed"
    return CaseResult("id", Call("op", dtype="int8"), 3, status, why=why, details=details)


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
        ["rank 0: RuntimeError: lost its connection: closed", "rank 1: TypeError: no such dtype"],
        "raises TypeError: no such dtype",
    ),
    (
        "Rank 0 raised RuntimeError: Closed",
        ["rank 0: RuntimeError: lost its connection: closed"],
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
        assert finding_of(result(why, *details)) == finding
    long = finding_of(result("Rank 0 raised ValueError: " + "long\n" * 100))
    assert len(long) < 150
    assert "\n" not in long


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
    other = replace(other, shapes={"scalar": {}, "empty": {"scatter/list": "hangs"}})
    assert differences(other, MAP) == [
        "reduce/tensor sum, bool: works; on the map: hangs",
        "scatter/list, float32: gives a wrong result; on the map: works",
        "scatter/list, scalar: works; the map differs",
        "scatter/list, empty: hangs; the map differs",
    ]
    swapped = {"reduce/tensor sum": (1, 0), "scatter/list": (0, 0)}
    for same in (
        replace(MAP, rows={"reduce/tensor sum": (0, 2)}),  # another way to fail
        replace(MAP, rows={**MAP.rows, "broadcast/tensor": (1, 1)}),  # only in one map
        replace(MAP, dtypes=("bool", "float32"), rows=swapped),
    ):
        assert differences(same, MAP) == differences(MAP, same) == []


def test_a_probe_on_real_ranks_finds_a_wrong_entry_of_the_map(tmp_path: Path) -> None:
    known = capabilities("gloo")
    assert known is not None
    written: list[CapabilityMap] = []
    found = probe(
        replace(WORLD, start_method="fork", stall=30.0),
        run_world,
        written.append,
        isolate=False,
        wanted=lambda case: (
            case.id.startswith(("broadcast/tensor/", "barrier/"))
            and case.dtype in ("float32", "int16", "none")
        ),
    )
    assert [len(each.rows) for each in written] == [1, 3]
    assert found == written[-1]
    row = dict(zip(found.dtypes, found.rows["broadcast/tensor"], strict=True))
    assert "Invalid scalar type" in found.findings[row["int16"]]
    nothing = replace(found, rows={"broadcast/tensor": [row["int16"]] * len(row)})
    (line,) = undocumented(nothing, cases())
    assert line == "broadcast: documented as supported, does not work here for float32."
    file = tmp_path / "map.json"
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    assert differences(read(file), found) == []
    planted = list(known.rows["broadcast/tensor"])
    planted[known.dtypes.index("float32")] = known.findings.index(WRONG)
    wrong = replace(known, rows={**known.rows, "broadcast/tensor": planted})
    for built_in, lines in (
        (known, []),
        (wrong, ["broadcast/tensor, float32: works; on the map: gives a wrong result"]),
    ):
        # The other dtypes weren't tried.
        assert [line for line in differences(found, built_in) if ", float32: " in line] == lines
