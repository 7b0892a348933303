"""The page of a traced run as text: sentences, data, and what keeps values in their place."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from traces import paper

from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import Cell, Moment, Played, WrongChunk
from distdemo.trace.view_page import trace_page
from distdemo.trace.view_page_data import data_text
from distdemo.trace.view_page_parts import parts, took
from distdemo.trace.view_page_words import runs, sentences
from distdemo.trace.view_rounds import trace_view
from distdemo.trace.view_words import wrong_words

RING = paper("all_reduce", "ring", 4, 4, real=True)


def test_a_round_in_words() -> None:
    told = sentences(RING)
    assert told[0] == ("Before the first round", "", "Complete now: 0 of 16 wanted chunks.")
    assert told[3] == (
        "Round 3 of 6, reduce-scatter",
        (
            "rank 0 sends chunk 2 to rank 1, which adds it to its own; likewise rank 1 chunk 3 to "
            "rank 2, rank 2 chunk 0 to rank 3 and rank 3 chunk 1 to rank 0."
        ),
        (
            "Complete now: 4 of 16 wanted chunks; new: chunk 1 on rank 0, chunk 2 on rank 1, "
            "chunk 3 on rank 2 and chunk 0 on rank 3."
        ),
    )
    assert told[6][2].endswith(
        "new: chunk 2 on rank 0, chunk 3 on rank 1, chunk 0 on rank 2 and chunk 1 on rank 3."
    )


@pytest.mark.parametrize(
    ("reduce_op", "does"),
    [
        ("max", "combines it with its own"),
        ("product", "multiplies its own by it"),
        ("avg", "adds it to its own"),
    ],
)
def test_each_reduce_op_has_its_verb(reduce_op: str, does: str) -> None:
    spec = replace(RING.spec, op=replace(RING.spec.op, reduce_op=reduce_op))
    assert does in sentences(replace(RING, spec=spec))[1][1]


def test_many_messages_are_counted_and_many_chunks_are_runs() -> None:
    assert "and 8 messages more." in sentences(paper("all_reduce", "ring", 16, 16))[1][1]
    _, halves, quarters = (
        sent for _, sent, _ in sentences(paper("all_reduce", "halving-doubling", 8, 8))[:3]
    )
    assert "rank 0 sends chunks 4–7 to rank 4, which adds them to its own" in halves
    assert "chunks 2 and 3 to rank 2" in quarters
    assert "chunks 0→1 and 0→3 to rank 1" in sentences(paper("all_to_all", "bruck", 4, 1))[1][1]


def test_a_message_of_no_elements_is_not_told() -> None:
    empty = sentences(paper("all_reduce", "ring", 3, 0))[1]
    assert empty[:2] == ("Round 1 of 4, reduce-scatter", "no message carries anything.")


def test_a_fault_is_told_in_its_round() -> None:
    told = sentences(paper("all_reduce", "ring", 4, 4, fault=Fault("twice", 2, 1)))
    assert [at for at, text in enumerate(told) if "on purpose" in text[2]] == [2]


def test_payload_of_nothing_has_nothing_to_verify_and_nothing_that_differs() -> None:
    found = parts(paper("all_reduce", "ring", 3, 0, real=True))
    assert "There is no element to verify." in found["verdict"]
    assert "not 0 B" not in found["misprints"]


def test_wrong_chunks_are_told_as_in_the_terminal(draw: Callable[..., str]) -> None:
    report = paper("all_reduce", "ring", 5, 5, fault=Fault("drop", 3, 1), real=True)
    terminal = " ".join(draw(lambda console: trace_view(report, console)).split())
    told = [wrong_words(each, report.chunk_names) for each in report.wrong]
    page = parts(report)["verdict"]
    assert "; without ranks 0, 1 and 4; wrong since" in told[0]
    assert all(text in page and text in terminal for text in told)
    assert "1 wrong chunk more" in page


def test_ranks_in_words_are_runs_where_they_are_many() -> None:
    wrong = WrongChunk(0, 1, 0, 1, 2, missing=(0, 1, 2, 5), extra=(3,), round=0)
    assert wrong_words(wrong, ("0", "1")) == (
        "rank 0, chunk 1, element 0: got 1, expected 2; without ranks 0–2 and 5; "
        "too much of rank 3; wrong from the start."
    )


def test_runs_keep_what_is_there_twice() -> None:
    assert runs((0, 1, 1, 2, 5)) == [0, 1, 1, 2, 5, 5]
    assert runs(()) == []


def test_data_can_not_end_its_element() -> None:
    nasty = Cell(0, (0,), ("</script><!--&\u2028\ud800",))
    text = data_text(replace(RING, start=((nasty,), *RING.start[1:])))
    assert not set("<>&\u2028\ud800") & set(text)
    assert json.loads(text)["start"][0][0][3] == list(nasty.values)


def test_numbers_that_json_lacks_are_texts() -> None:
    odd = Cell(0, (0,), (float("nan"), float("-inf"), 1e20, 2 + 1j, True))
    text = data_text(replace(RING, start=((odd,), *RING.start[1:])))
    assert json.loads(text)["start"][0][0][3] == ["nan", "-inf", "1e+20", "2+1j", "True"]


def test_the_policy_names_the_very_style_and_script() -> None:
    page = trace_page(RING)
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0]
    for name in ("style", "script"):
        body = re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_a_round_lasts_from_the_first_who_began_to_the_last_who_ended() -> None:
    idle = Moment(0.0, 0.0)
    moments = (Moment(2e-3, 3e-3), idle, Moment(1e-3, 4e-3))
    assert took(Played(RING.rounds[0].step, (), (), moments)) == "3.00 ms"
    assert took(Played(RING.rounds[0].step, (), (), (idle,))) == "—"
