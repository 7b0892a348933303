"""Tables of operations, hello and explanations, compared with golden files."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import Blocks, drawn, golden

from distdemo import ops
from distdemo.demo.explain import data_of, explain_op
from distdemo.demo.rank import op_report
from distdemo.demo.records import (
    Event,
    HelloReport,
    Introduction,
    OpEntry,
    OpList,
    OpReport,
    RankResult,
)
from distdemo.demo.view import hello_view, list_view, op_view
from distdemo.demo.view_picture import picture
from distdemo.encoding import encode
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.contract import Source
from distdemo.ops.run import role_of
from distdemo.ops.spec import Mismatch, OpSpec
from distdemo.view.console import Signs
from distdemo.view.data import data_cells
from distdemo.view.held import Holding, Piece

GOLDEN = Path(__file__).parent / "golden"
WHY = "torch is imported once, for all ranks"


def imagined(*specs: OpSpec, size: int = 0, **more: Any) -> OpReport:
    """Return the report of a successful op, made up without starting ranks."""
    op = ops.REGISTRY[specs[0].op]
    size = size or specs[0].group_size
    results = []
    for rank in range(size):
        role = role_of(rank, op, specs)
        spec = role.spec
        held = data_of(role.op, spec, role.rank)
        start = 0.0001 * (size - 1 - rank)
        result = RankResult(
            rank=rank,
            before=held.before,
            after=held.after,
            checked=0 if held.after.undefined else spec.numel,
            time_s=0.001 * (1 + rank),
            started_s=start,
            ended_s=start + 0.001 * (1 + rank),
            takes_part=role.op.takes_part(role.rank, spec),
            group=role.group,
            group_rank=None if role.group is None or role.rank == rank else role.rank,
        )
        own = {name: values[rank] for name, values in more.items()}
        results.append(Returned(rank=rank, value=replace(result, **own)))
    world = WorldReport(WorldSpec(size), tuple(results), None, 0.25, "fork", WHY)
    return replace(op_report(op, specs[0], world), versions={"torch": "2.13"})


SUM = OpSpec("all_reduce", 4, reduce_op="sum")
BARRIER = OpSpec("barrier", 2, shape=())
BUFFER = Holding((Piece((4,), (0, 1, 2, 3), sources=(0,)),))
WRONG = Mismatch(0, (1,), 65.0, 64.0)
REPORTS = {
    "all-reduce": imagined(SUM),
    "all-to-all-matrix": imagined(OpSpec("all_to_all", 3, shape=(2, 2), async_op=True)),
    "scatter-many": imagined(OpSpec("scatter", 24, root=0, shape=(2, 3))),
    "group": imagined(OpSpec("broadcast", 2, root=1, members=(1, 3)), size=4),
    "wrong": imagined(
        SUM, tolerance=[1e-6] * 4, wrong=[0, 0, 1, 0], mismatches=[(), (), (WRONG,), ()]
    ),
    "nonblocking": imagined(
        OpSpec("p2p", 2, src=0, dst=1, pattern="pair", async_op=True),
        events=[
            (Event(0, 0.001, 0.0012, "isend", BUFFER, "not to be changed yet"),),
            (
                Event(1, 0.0, 0.0005, "irecv", BUFFER, "not to be read yet"),
                Event(1, 0.002, 0.0025, "wait", BUFFER, "free to be used"),
            ),
        ],
    ),
    "uneven": imagined(OpSpec("all_gather", 2, shape=(2,), variant="uneven", sizes=(2, 1))),
    "barrier": imagined(BARRIER, started_s=[0.0, 0.5], ended_s=[0.5, 0.51], present=[2, 2]),
    "open-barrier": imagined(
        BARRIER, started_s=[0.0, 0.5], ended_s=[0.1, 0.5], present=[1, 2], wrong=[1, 0]
    ),
}
HELLO = HelloReport(
    WorldReport(WorldSpec(2), (), None, 0.25, "fork", WHY),
    tuple(Introduction(rank, 2, 4000 + rank, "host", "gloo", "cpu", 0.02, 2) for rank in range(2)),
    {"distdemo": "0.1.0", "torch": "2.13"},
)
OPS = OpList((OpEntry("scatter", "", "scatter", "Parts."), OpEntry("p2p", "--x", "c", "It.")))


def explained(spec: OpSpec) -> Blocks:
    return partial(picture, explain_op(ops.REGISTRY[spec.op], spec))


VIEWS: dict[str, Blocks] = {
    **{name: partial(op_view, report) for name, report in REPORTS.items()},
    "hello": partial(hello_view, HELLO),
    "ops": partial(list_view, OPS),
    "explain-all-reduce": explained(replace(SUM, dtype="int8")),
    "explain-barrier": explained(OpSpec("barrier", 3, shape=())),
    "explain-objects": explained(OpSpec("broadcast", 12, shape=(), root=9, objects=True)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_table(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", VIEWS[name])


def test_no_line_is_wider_than_the_terminal() -> None:
    for name, view in VIEWS.items():  # wider terminals have the golden files
        assert max(map(len, drawn(view, 30).splitlines())) <= 30, name


def test_a_bus_joins_the_ranks_that_exchange_data_and_others_keep_theirs() -> None:
    def arms(spec: OpSpec) -> list[str]:
        lines = drawn(explained(spec)).splitlines()
        rows = [line for line in lines if line.startswith(" rank ")]
        return ["".join(re.findall("[─-╿▶]", row)) for row in rows]

    assert arms(OpSpec("p2p", 4, src=3, dst=1)) == ["─────▶", "┌──▶", "──│──▶", "──┴──▶"]
    assert arms(OpSpec("broadcast", 3, root=1)) == ["┌──▶", "──┼──▶", "└──▶"]
    assert arms(OpSpec("broadcast", 1, root=0)) == ["─────▶"]


PIECE = Piece((2, 3), tuple(range(6)), sources=(1,))
LONG = Piece((100,), tuple(range(16)), tuple(range(84, 100)))


def test_cells_fit_their_width() -> None:
    for holding, room, lines in (
        (Holding((PIECE,)), 60, ["[[0 1 2] [3 4 5]]"]),
        (Holding((PIECE,)), 14, ["[[0 1 2]", " [3 4 5]]"]),
        (Holding((PIECE,)), 7, ["[[0 … 5]]"]),
        (Holding((Piece((2, 2, 1), (0, 1, 2, 3)),)), 7, ["[[[0]", "  [1]]", " [[2]", "  [3]]]"]),
        (Holding((LONG,)), 60, ["[0 1 … 98 99]"]),
        (Holding((Piece((), (1.5,)),)), 60, ["1.5"]),
        (Holding((PIECE,) * 9), 60, [*["[[0 1 2] [3 4 5]]"] * 2, "… 6 more", "[[0 1 2] [3 4 5]]"]),
        (Holding((Piece.of_object({"a": "ü"}, (0,)),)), 60, ['{"a": "ü"}']),
        (Holding((Piece.of_object([1, "a b"], (0,)),)), 6, ['[1, "a b"]']),
        (Holding((Piece.of_object({"a": [1, 2, 3]}, (0,)),)), 12, ['{"a": [1, 2,', "3]}"]),
        (Holding((Piece.of_object("x" * 999, (0,)),)), 20, ['"' + "x" * 19, *["x" * 20] * 7, "…"]),
    ):
        cells = data_cells(holding, Signs(), room)
        assert cells.data.plain.split("\n") == lines
        assert {cell.plain.count("\n") for cell in cells} == {len(lines) - 1}


class Scan(AllReduce):
    """An op that reduces over this rank and the ones before it."""

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        return (Source(tuple(range(rank + 1)), reduced=True),)


def test_a_value_comes_from_the_ranks_that_it_was_reduced_over() -> None:
    def names(spec: OpSpec) -> list[str]:
        ranks = explain_op(Scan(), spec).ranks
        return [data_cells(rank.after, Signs()).source.plain for rank in ranks]

    assert names(replace(SUM, group_size=3)) == ["rank 0", "ranks 0-1", "ranks 0-2"]
    spread = replace(SUM, group_size=5, members=(1, 3, 5, 7, 9))
    assert names(spread)[2:] == ["ranks 1, 3, 5", "4 ranks", "5 ranks"]


def test_the_document_has_numbers_and_no_display_texts() -> None:
    document = encode(REPORTS["wrong"])
    mismatch = {"piece": 0, "index": [1], "got": 65.0, "expected": 64.0}
    assert document["ranks"][2]["mismatches"] == [mismatch]
    assert document["ranks"][1]["before"] == [[10.0, 11.0, 12.0, 13.0]]
    assert document["traffic"]["payload_bytes"] == 16
