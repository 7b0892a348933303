"""The backends and the map of one, as tables, lists and documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from distdemo.demo.reports import BackendEntry, MapReport

from distdemo.backends.capabilities import CapabilityMap
from distdemo.check.view_backend_document import backend_document, map_document
from distdemo.check.view_backend_table import (
    all_well,
    backend_table,
    map_table,
    verdict,
    verdict_line,
)
from distdemo.dtypes import DTYPES
from distdemo.view.console import ASCII_SIGNS, Signs

Draw = Callable[..., str]

GLOO = BackendEntry(
    "gloo", "CPU tensors over TCP.", ("cpu", "cuda"), works=True, tried="all_reduce verified"
)
NCCL = BackendEntry(
    "nccl",
    "GPU tensors.",
    ("cuda",),
    missing="This torch was built without NCCL.",
    get="It is in the CUDA wheels of torch.",
)
BROKEN = BackendEntry(
    "mpi", "Over MPI.", ("cpu",), version="4.1", works=False, tried="Rank 0 raised X: [red]"
)
UNTRIED = BackendEntry("fancy", "Registered by a third party.", ("xpu",))
ENTRIES = [GLOO, NCCL, BROKEN, UNTRIED]


def flat(text: str) -> str:
    """The words, without lines and frames."""
    return " ".join("".join(" " if char in "│╭╮╰╯─├┤┼┬┴|" else char for char in text).split())


# ------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [40, 59, 80, 200])
def test_everything_is_told_at_any_width(draw: Draw, columns: int, encoding: str) -> None:
    text = draw(lambda console: backend_table(ENTRIES, console), encoding, columns)
    words = "" if columns == 40 else flat(text)
    for entry in ENTRIES:
        assert entry.name in text
    if columns >= 80:
        assert "This torch was built without NCCL. It is in the CUDA wheels of torch." in words
        assert "4.1" in text
    assert "[red]" in text.replace("\n", "")
    assert "--probe" in text


def test_at_80_columns_it_is_a_table_with_a_row_a_backend(draw: Draw) -> None:
    text = draw(lambda console: backend_table(ENTRIES, console))
    heads = text.splitlines()[1]
    for name in ("Backend", "Here", "Devices", "Version", "What was found"):
        assert name in heads
    cells = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    found = {row[0].strip(): row[1].strip() for row in cells if row[0].strip()}
    del found["Backend"]
    assert found == {
        "gloo": "✓ works",
        "nccl": "— no",
        "mpi": "✗ fails",
        "fancy": "yes, not tried",
    }


def test_at_40_columns_it_is_a_list(draw: Draw) -> None:
    text = draw(lambda console: backend_table(ENTRIES, console), columns=40)
    assert "│" not in text
    assert "Backend nccl" in text
    assert "This torch was built without NCCL." in flat(text)


def test_without_unicode_the_signs_are_words(draw: Draw) -> None:
    text = draw(lambda console: backend_table(ENTRIES, console), "ascii")
    assert text.isascii()
    assert "?" not in text
    for words in ("ok works", "- no", "WRONG fails"):
        assert words in text


# ----------------------------------------------------------------------------------- the verdict


@pytest.mark.parametrize(
    ("entries", "ok", "words"),
    [
        ([GLOO, NCCL], True, "gloo works."),
        ([GLOO, UNTRIED], True, "gloo works."),
        ([GLOO, GLOO], True, "gloo, gloo work."),
        ([GLOO, BROKEN], False, "gloo works. mpi fails."),
        ([BROKEN, BROKEN], False, "mpi, mpi fail."),
        ([NCCL], False, "No backend is here."),
        ([], False, "No backend is here."),
    ],
)
def test_all_is_well_where_one_works_and_none_fails(
    entries: list[BackendEntry], ok: bool, words: str
) -> None:
    assert all_well(entries) is ok
    assert verdict(entries) == words
    assert verdict_line(entries, Signs()).plain == f"{'✓' if ok else '✗'} {words}"
    assert verdict_line(entries, ASCII_SIGNS).plain.isascii()
    document = backend_document(entries)
    assert document["ok"] is ok
    assert (document["errors"] == []) is ok


def test_the_document_names_the_failing_one_and_why() -> None:
    document = backend_document(ENTRIES)
    assert document["command"] == "backends"
    (error,) = document["errors"]
    assert error["what"] == "mpi fails."
    assert error["why"] == BROKEN.tried
    gloo, nccl, mpi, fancy = document["backends"]
    assert (gloo["here"], gloo["works"], gloo["why_not"], gloo["version"]) == (
        True,
        True,
        None,
        None,
    )
    assert (nccl["here"], nccl["works"], nccl["why_not"]) == (False, None, NCCL.missing)
    assert nccl["how_to_get_it"] == NCCL.get
    assert (mpi["here"], mpi["works"], mpi["version"]) == (True, False, "4.1")
    assert (fancy["here"], fancy["works"], fancy["tried"]) == (True, None, None)


# --------------------------------------------------------------------------------------- the map

ROWS = {
    "broadcast/tensor": [0] * 15 + [1, 2],
    "all_gather/single": [1] * 17,
    "reduce_scatter/single max": [2] + [0] * 16,
}
FOUND = CapabilityMap(
    backend="gloo",
    torch="2.13",
    device="cpu",
    dtypes=tuple(DTYPES),
    findings=("", "raises RuntimeError: [bold]no[/bold]", "gives a wrong result"),
    rows=ROWS,
    shapes={"scalar": {"scatter/list": "hangs"}, "empty": {}},
)
REPORT = MapReport(FOUND, ("all_reduce avg: documented otherwise.",), 909, 900, 31.4)


def mapped(report: MapReport, draw: Draw, columns: int, encoding: str = "utf-8") -> str:
    return draw(lambda console: map_table(report, console), encoding, columns)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [20, 40, 80, 160])
def test_the_map_is_told_at_any_width(draw: Draw, columns: int, encoding: str) -> None:
    text = flat(mapped(REPORT, draw, columns, encoding))
    for words in (
        "raises RuntimeError: [bold]no[/bold]",
        "gives a wrong result",
        "scatter/list with scalar tensors: hangs.",
        "all_reduce avg: documented otherwise.",
        "909 combinations tried in 31.4 s, in 900 worlds.",
    ):
        assert words in text
    if encoding == "ascii":
        assert text.isascii()
        assert "?" not in text


def test_at_80_columns_each_cell_is_a_sign_or_the_letter_of_its_reason(draw: Draw) -> None:
    text = mapped(REPORT, draw, 80)
    cells: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("│"):
            name, *rest = (cell.strip() for cell in line.split("│")[1:-1])
            cells.setdefault(name, []).extend(rest)
    heads = cells.pop("Operation")
    assert heads[:4] == ["f32", "f64", "f16", "bf16"]
    assert len(heads) == len(DTYPES)
    signs = ["✓", "a", "b"]
    assert cells == {
        "broadcast": [signs[number] for number in ROWS["broadcast/tensor"]],
        "all_gather/single": ["a"] * 17,
        "reduce_scatter/single max": ["b"] + ["✓"] * 16,
    }
    assert "a raises RuntimeError" in text
    assert "b gives a wrong result" in text


def test_where_no_table_fits_there_is_a_line_a_row_with_what_works(draw: Draw) -> None:
    text = flat(mapped(REPORT, draw, 30))
    assert "all_gather/single: nothing" in text
    assert "reduce_scatter/single max: f64 f16" in text


def test_the_map_as_a_document() -> None:
    document: dict[str, Any] = map_document(REPORT)
    assert document["ok"] is True
    first = document["operations"][0]
    assert first["operation"] == "broadcast/tensor"
    assert list(first["dtypes"]) == list(DTYPES)
    assert first["dtypes"]["float32"] is None
    assert first["dtypes"]["complex128"] == "gives a wrong result"
    assert document["shapes"] == {"scalar": {"scatter/list": "hangs"}, "empty": {}}
    assert document["documentation_differs"] == list(REPORT.disagreements)
    assert (document["tried"], document["worlds"]) == (909, 900)
