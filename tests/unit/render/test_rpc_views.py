from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from distdemo.launcher.records import Died, Stopped, Verdict, WorldReport
from distdemo.rpc.program import MAINTENANCE
from distdemo.rpc.proofs import proofs
from distdemo.rpc.records import Call, Lesson, RpcReport, RpcSpec, Value, Weights
from distdemo.rpc.view_document import rpc_document
from distdemo.rpc.view_table import rpc_table, verdict_line
from distdemo.view.console import Signs

Make = Callable[..., Any]


def call(kind: str, what: str, value: Value, start: float = 0.001, **more: Any) -> Call:
    fields = {"callee": "worker1", "expected": value, "seconds": 0.002, **more}
    return Call(caller="worker0", kind=kind, what=what, value=value, start=start, **fields)


CALLS = (
    call("rpc_sync", "add([1 2 3], 10)", (11.0, 12.0, 13.0)),
    call("rpc_async", "swap('ping')", "pong", 0.0031),
    call("rpc_async", "swap('pong')", "ping", 0.0032),
    call("rref.rpc_sync", "add(3)", 8, 0.0051),
    call("rpc_sync", "root(-9)", "ValueError('< 0')", 0.0062),
    call("optimizer.step", "", "", 0.0093, callee="worker1, worker2"),
)
WEIGHTS = (
    Weights("hidden.weight", "worker1", (2, 2), (0.5, 1.0, 1.5, -2.25), (0.5, 1.0, 1.5, -2.25)),
    Weights("output.bias", "worker2", (1,), (0.125,), (0.125,)),
)
LOSSES = tuple(1.0 / (step + 1) for step in range(21))


@pytest.fixture
def report(world: Callable[..., WorldReport]) -> Callable[..., RpcReport]:
    def made(size: int = 3, **more: Any) -> RpcReport:
        fields: dict[str, Any] = {
            "calls": CALLS,
            "losses": LOSSES,
            "local_losses": LOSSES,
            "weights": WEIGHTS,
            "seconds": 0.2,
            "local_seconds": 0.004,
        }
        lesson = Lesson(**(fields | more))
        held = proofs(lesson, one_host=True)
        return RpcReport(
            RpcSpec(), world(size), lesson, held, (MAINTENANCE,), {"distdemo": "1.2.3"}
        )

    return made


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [200, 80, 40])
def test_timeline_losses_weights_and_proofs_are_shown(
    report: Make, draw: Make, encoding: str, columns: int
) -> None:
    text = draw(lambda console: rpc_table(report(), console), encoding, columns)
    flat = " ".join(re.sub(r"[│|]", " ", text).split())
    for words in (
        "3 workers",
        "worker0",
        "add([1 2 3], 10)",
        "[11 12 13]",
        "rref.rpc_sync",
        "0.047619",
        "hidden.weight",
        "0.500",
        "-2.250",
        "Weights as in one process, bit for bit.",
        "maintenance mode",
        "distdemo 1.2.3",
    ):
        assert words in flat, words


def test_a_call_to_several_workers_names_them_all(report: Make, draw: Make) -> None:
    text = draw(lambda console: rpc_table(report(), console), columns=200)
    assert re.search(r"worker1, worker2 │ optimizer.step +│ — ", text)


@pytest.mark.parametrize(("columns", "table"), [(80, True), (79, False), (60, False), (40, False)])
def test_a_call_is_a_line_or_where_that_has_no_room_an_entry_of_a_list(
    report: Make, draw: Make, columns: int, table: bool
) -> None:
    longest = call("rref.rpc_sync", "hidden.forward()", "float32[4, 8]", 12.34, callee="worker11")
    shown = report(calls=(*CALLS[:-1], longest))
    text = draw(lambda console: rpc_table(shown, console), columns=columns)
    timeline = text.partition("Training")[0]
    if table:
        assert re.search(r"│ 12340 │ worker11 │ rref.rpc_sync hidden.forward\(\) │ ", timeline)
        assert timeline.count("│ worker1 ") == len(CALLS) - 1
        assert len(timeline.splitlines()) == 2 + 4 + len(CALLS)
    else:
        assert "│" not in timeline
        assert "\n  Call    rref.rpc_sync hidden.forward()\n" in timeline


def test_numbers_that_are_none_in_both_trainings_do_not_differ(report: Make, draw: Make) -> None:
    losses = (*LOSSES[:10], *([math.nan] * 11))
    nothing = replace(WEIGHTS[0], remote=(math.nan,) * 4, local=(math.nan,) * 4)
    broken = report(losses=losses, local_losses=losses, weights=(nothing,))
    text = draw(lambda console: rpc_table(broken, console))
    assert re.search(r"│ +20 │ +nan │ +nan │ +0 │", text)
    assert re.search(r"│ \[nan … nan\] +│ \[nan … nan\] +│ +0 │", text)
    assert "inf" not in text
    training = rpc_document(broken)["training"]
    assert training["weights"][0]["difference"] == 0.0


def test_a_wrong_value_stands_beside_the_right_one(report: Make, draw: Make) -> None:
    wrong = report(calls=(replace(CALLS[3], value=9), *CALLS[1:3]))
    text = draw(lambda console: rpc_table(wrong, console), columns=200)
    assert "✗ 9, not 8" in text
    assert "✗ 1 of 5 proofs failed: Every call gave back the right value." in text


def test_of_equal_calls_to_many_workers_the_ends_and_wrong_ones_are_shown(
    report: Make, draw: Make
) -> None:
    many = [
        call("rpc_async", "who()", f"worker{rank}", callee=f"worker{rank}") for rank in range(20)
    ]
    many[9] = replace(many[9], value="nobody")
    text = draw(lambda console: rpc_table(report(calls=(*CALLS, *many)), console), columns=200)
    shown = re.findall(r"│ worker(\d+) +│ rpc_async who", text)
    assert shown == ["0", "1", "9", "19"]
    assert "7 more of these" in text
    assert "9 more of these" in text


def test_of_many_losses_the_ends_and_the_first_that_differs_are_shown(
    report: Make, draw: Make
) -> None:
    local = (*LOSSES[:10], 0.5, *LOSSES[11:])
    text = draw(lambda console: rpc_table(report(local_losses=local), console))
    table = text.partition("After step")[2].partition("Parameter")[0]
    steps = re.findall(r"^│ +(\d+) │", table, re.MULTILINE)
    assert steps == ["0", "1", "2", "10", "18", "19", "20"]
    assert "0.409" in table


def test_one_line_says_it_all(report: Make) -> None:
    assert verdict_line(report(), Signs()).plain == (
        "✓ 6 calls right; trained over RPC as in one process."
    )
    broken = verdict_line(report(losses=(1.0, math.nan), local_losses=(1.0, math.nan)), Signs())
    assert broken.plain.startswith("✗ 1 of 5 proofs failed: The loss fell.")


def test_the_document_has_everything(report: Make) -> None:
    document = rpc_document(report())
    assert document["ok"] is True
    assert document["errors"] == []
    assert document["workers"] == ["worker0", "worker1", "worker2"]
    assert document["calls"][0]["value"] == (11.0, 12.0, 13.0)
    assert document["calls"][0]["ok"] is True
    assert document["training"]["losses"] == list(LOSSES)
    assert document["training"]["weights"][1]["difference"] == 0.0
    assert [proof["held"] for proof in document["proofs"]] == [True] * 5
    assert "maintenance mode" in document["notes"][0]


def test_a_proof_that_failed_is_an_error_of_the_document(report: Make) -> None:
    document = rpc_document(report(losses=LOSSES[:-1]))
    assert document["ok"] is False
    assert "Losses as in one process" in document["errors"][0]["what"]


def test_a_failed_world_has_an_error_and_the_end_of_every_rank(world: Make, draw: Make) -> None:
    outcomes = (Stopped(rank=0), Died(rank=1, signal=9))
    judged = Verdict("worker1 (rank 1) was killed by SIGKILL.", "Why.", "", (1,), (0,))
    failed = RpcReport(RpcSpec(), world(2, outcomes, judged))
    document = rpc_document(failed)
    assert document["ok"] is False
    assert document["calls"] == []
    assert document["training"] is None
    assert document["errors"][0]["ranks"] == [1]
    assert [rank["outcome"] for rank in document["ranks"]] == ["stopped", "died"]
    with pytest.raises(ValueError, match="did not bring back"):
        draw(lambda console: rpc_table(failed, console))
