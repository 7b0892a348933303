"""The maps of what a backend takes: found by release, read, asked, and written again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from strategies import example

from distdemo import backends, ops
from distdemo.backends import capabilities as module
from distdemo.backends.capabilities import (
    FOLDER,
    CapabilityMap,
    capabilities,
    form_key,
    key,
    read,
    refusal,
    release_of,
    text,
)
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

DIES, RAISES = "kills the process (SIGSEGV)", 'raises ValueError: "no" \\ ünïcode'
MAP = CapabilityMap(
    backend="gloo",
    torch="2.13",
    device="cpu",
    dtypes=("float32", "int8"),
    findings=("", RAISES, "hangs"),
    rows={
        "broadcast/tensor": (0, 1),
        "broadcast/objects": (2, 2),
        "reduce/tensor max": (1, 0),
        "barrier/plain": (0, 0),
        "barrier/monitored": (2, 2),
        "gather/list": (0, 0),
    },
    shapes={"scalar": {"gather/list": DIES}, "empty": {"broadcast/tensor": "hangs"}},
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the maps of this test lie."""
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    capabilities.cache_clear()
    yield tmp_path
    capabilities.cache_clear()


def asked(name: str, form: str = "", **fields: object) -> tuple[Op, OpSpec]:
    """A request for this form of an op."""
    op = ops.REGISTRY[name]
    chosen = next(each for each in op.all_forms if form in ("", each.name))
    return op, example(op, chosen, 2, **fields)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("request_", "finding"),
    [
        (asked("broadcast"), None),
        (asked("broadcast", dtype="int8"), RAISES),
        (asked("broadcast", "objects"), "hangs"),
        (asked("broadcast", dtype="float32", shape=(0, 3)), "hangs"),
        (asked("broadcast", dtype="int8", shape=(0,)), RAISES),
        (asked("broadcast", dtype="uint64"), None),
        (asked("reduce", reduce_op="max"), RAISES),
        (asked("reduce", reduce_op="max", dtype="int8"), None),
        (asked("reduce", reduce_op="min"), None),
        (asked("barrier", "plain", shape=()), None),
        (asked("barrier", "monitored", shape=()), "hangs"),
        (asked("gather", shape=()), DIES),
        (asked("gather", shape=(2,)), None),
        (asked("gather", "objects", shape=()), None),
        (asked("scatter", shape=()), None),
    ],
    ids=str,
)
def test_a_refusal_is_what_happened_when_it_was_tried(
    request_: tuple[Op, OpSpec], finding: str | None
) -> None:
    assert refusal(MAP, *request_) == finding


def test_a_row_is_named_by_op_form_and_reduce_op() -> None:
    assert key(*asked("all_gather", "single")) == "all_gather/single"
    assert key(*asked("reduce_scatter", "list", reduce_op="bor")) == "reduce_scatter/list bor"
    assert form_key(*asked("reduce_scatter", "list", reduce_op="bor")) == "reduce_scatter/list"


def test_a_backend_gives_the_finding_where_it_has_no_reason_in_words(folder: Path) -> None:
    (folder / "gloo-2.13.json").write_text(text(MAP), encoding="utf-8")
    gloo = backends.REGISTRY["gloo"]
    assert gloo.refuses(*asked("broadcast", dtype="int8")) == f"Tried with torch 2.13: {RAISES}"
    assert gloo.refuses(*asked("broadcast")) is None


def test_a_backend_without_a_map_is_judged_by_its_documentation(folder: Path) -> None:
    gloo = backends.REGISTRY["gloo"]
    assert capabilities("gloo") is None
    assert gloo.refuses(*asked("broadcast", dtype="int8")) is None
    assert gloo.refuses(*asked("broadcast", dtype="int16"))


# -------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0+cpu", (2, 13)),
        ("2.9.1", (2, 9)),
        ("2.14.0a0+git1234", (2, 14)),
        ("10.0", (10, 0)),
        ("not installed", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_a_release_is_the_first_two_numbers_of_a_version(
    version: str, release: tuple[int, int]
) -> None:
    assert release_of(version) == release


@pytest.mark.parametrize(
    ("releases", "installed", "chosen"),
    [
        (["2.13"], "2.8.0", "2.13"),
        (["2.13"], "2.13.0+cpu", "2.13"),
        (["2.8", "2.9", "2.13"], "2.9.1", "2.9"),
        (["2.8", "2.9", "2.13"], "2.12.0", "2.9"),
        (["2.8", "2.9", "2.13"], "3.0.0", "2.13"),
        (["2.9", "2.13"], "2.8.0", "2.9"),
        (["2.9", "2.13"], "not installed", "2.9"),
        (["2.9", "2.10"], "2.10.2", "2.10"),
    ],
)
def test_the_map_is_that_of_the_installed_release_or_of_the_nearest_older_one(
    releases: list[str],
    installed: str,
    chosen: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "torch_version", lambda: installed)
    for release in releases:
        made = CapabilityMap("gloo", release, "cpu", ("float32",), ("",), {}, {})
        (folder / f"gloo-{release}.json").write_text(text(made), encoding="utf-8")
    (folder / "mpi-2.12.json").write_text("not to be read", encoding="utf-8")
    found = capabilities("gloo")
    assert found is not None
    assert found.torch == chosen


# ------------------------------------------------------------------------------ reading and writing


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "gloo-2.13.json"
    file.write_text(text(MAP), encoding="utf-8")
    found = read(file)
    assert text(found) == text(MAP)
    assert found.findings == MAP.findings
    assert {name: tuple(row) for name, row in found.rows.items()} == MAP.rows
    assert found.shapes == MAP.shapes


def test_a_map_without_rows_is_written_too(tmp_path: Path) -> None:
    empty = CapabilityMap("gloo", "2.13", "cpu", (), ("",), {}, {"scalar": {}, "empty": {}})
    file = tmp_path / "gloo-2.13.json"
    file.write_text(text(empty), encoding="utf-8")
    assert read(file) == empty


def test_the_text_has_a_line_a_row_and_says_how_it_was_made() -> None:
    lines = text(MAP).splitlines()
    assert '    "broadcast/tensor": [0, 1],' in lines
    assert '    "gather/list": [0, 0]' in lines
    assert json.loads(text(MAP))["written_by"] == "distdemo backends --probe gloo --output FILE"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_the_maps_of_the_package_are_whole(file: Path) -> None:
    found = read(file)
    assert file.stem == f"{found.backend}-{found.torch}"
    assert file.read_text(encoding="utf-8") == text(found), "it was changed by hand"
    assert found.findings[0] == ""
    assert len(set(found.findings)) == len(found.findings)
    for row in found.rows.values():
        assert len(row) == len(found.dtypes)
        assert all(0 <= number < len(found.findings) for number in row)
    used = {number for row in found.rows.values() for number in row} | {0}
    assert used == set(range(len(found.findings)))


def test_there_is_a_map_of_gloo() -> None:
    assert capabilities("gloo") is not None
    assert capabilities("no-such-backend") is None
