"""Read files that a user names: a record or one `UsageError`, whatever is in them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benches import document, one_series, recording
from hostile import JSON, changed, no_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from distdemo.bench.command_files import FitOptions, fit
from distdemo.bench.compare import compare
from distdemo.bench.files import read
from distdemo.bench.fit import make_report
from distdemo.bench.view_files import compare_view, fit_view
from distdemo.calls import note_files, notes
from distdemo.calls.note_files import compare_recordings
from distdemo.calls.notes import (
    Destruction,
    EndNote,
    MisuseNote,
    note_line,
)
from distdemo.calls.records import RankCall, SourceLine
from distdemo.calls.text import calls_text
from distdemo.calls.view import finding_view
from distdemo.cli.runner import envelope
from distdemo.demo.options import read_numbers, read_objects
from distdemo.encoding import dumps, encode, loads
from distdemo.errors import UsageError
from distdemo.files import limited_memory, read_file
from distdemo.view.blocks import Paragraph, show_blocks
from distdemo.view.console import signs

ONE_FILE = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def console() -> Console:
    return Console(width=80, quiet=True)


# ----------------------------------------------------------------------------------------- reading


def test_only_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    for path in no_files(tmp_path):
        with pytest.raises((OSError, ValueError)):
            read_file(path)
        with pytest.raises(UsageError):
            read(path)
        with pytest.raises(UsageError):
            fit(FitOptions(files=[path]))
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_file(file, max_bytes=5) == b"12345"
    with pytest.raises(ValueError, match="the limit is 4"):
        read_file(file, max_bytes=4)


def test_memory_ends_where_it_was_to_end() -> None:
    with pytest.raises(MemoryError), limited_memory(1 << 24):
        loads("[" + "[]," * (1 << 20) + "[]]", max_bytes=1 << 24)
    bytearray(1 << 25)


@settings(max_examples=50)
@given(JSON | st.text(max_size=60))
def test_values_are_numbers_and_objects_or_are_refused(value: Any) -> None:
    for text in (value if isinstance(value, str) else "", json.dumps(value)):
        for parse in (partial(read_numbers, dtype="int8"), read_objects):
            try:
                parse([text, text])
            except UsageError:
                continue


# ------------------------------------------------------------------------------ documents of bench

SMALL = replace(one_series(), rows=one_series().rows[:4])
GOOD = recording("good.json", SMALL)
CONTENT = json.loads(dumps(envelope("bench", encode(document(SMALL)), ok=True, errors=[])))


@pytest.mark.processes
@given(changed(CONTENT))
@ONE_FILE
def test_a_changed_document_is_compared_or_refused(
    tmp_path: Path, console: Console, content: Any
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    try:
        changed_run = read(path)
    except UsageError:
        return
    for pair in ((changed_run, GOOD), (GOOD, changed_run)):
        with suppress(UsageError):
            show_blocks(console, compare_view(compare(*pair, 0.1), signs(console)))
    with suppress(UsageError):
        report = make_report([changed_run, GOOD], ranks=(4,))
        show_blocks(console, fit_view(report, signs(console)))


# ------------------------------------------------------------------------------------------- notes

HERE = SourceLine("train.py", 12, "step")
CALLS = [
    RankCall("all_reduce", HERE, "float32", (8,), 8, "cpu", "sum"),
    RankCall(
        "all_to_all", HERE, "float32", (4,), 4, "cpu", send_counts=(2, 2), receive_counts=(2, 2)
    ),
    RankCall("send", HERE, "float32", (4,), 4, "cpu", peer=1),
    RankCall("recv", HERE, "float32", (4,), 4, "cpu", peer=-1),
    RankCall("broadcast", HERE, "float32", (4,), 4, "cpu", root=0, sync=False),
    RankCall("gather", HERE, "float32", (4,), 4, "cpu", root=1, send_counts=(4, 4)),
    RankCall("new_group", HERE, members=(0, 1)),
]


FAILING = EndNote("raised", "ValueError")


def lines(rank: int) -> list[str]:
    """Return the notes of a rank of two, with every kind of line."""
    return [
        f"H {json.dumps({'rank': rank, 'world_size': 2, 'host': 'h'})}",
        *(f"t{10**15} G 0 0 gloo [0, 1]", "G 1 0 gloo [0, 1]"),
        *(note_line(call, number, 0) for number, call in enumerate(CALLS)),
        *("0", "r", "1", "r", "2" if rank == 0 else "3", "r 0", "4", "w 3", "r", "5", "f"),
        *(f"t{10**15} @1 6", "@1 u", note_line(MisuseNote("x", HERE))),
        *(note_line(Destruction(HERE, FAILING), group) for group in (0, 1)),
        note_line(EndNote("returned", source_line=HERE)),
    ]


@given(st.data())
@ONE_FILE
def test_changed_notes_are_judged_or_refused(
    tmp_path: Path, console: Console, data: st.DataObject
) -> None:
    for rank in (0, 1):
        text = lines(rank)
        for at in data.draw(st.sets(st.integers(0, len(text) - 1), max_size=2)):
            head, brace, rest = text[at].partition("{")
            if brace and data.draw(st.booleans()):
                text[at] = head + json.dumps(data.draw(changed(json.loads(brace + rest))))
            elif data.draw(st.booleans()):
                text[at] = data.draw(st.sampled_from([*text, "9", "@9 0", "w 99", "r 9", ""]))
            else:
                text[at] = data.draw(st.text(max_size=20))
        whole = "\n".join([*text, ""]).encode(errors="replace")
        (tmp_path / f"rank-{rank}.notes").write_bytes(whole)
    try:
        report = compare_recordings(tmp_path.glob("*.notes"))
    except UsageError:
        return
    show_blocks(console, [Paragraph(calls_text(report.calls))])
    for finding in (*report.warnings, *report.findings):
        show_blocks(console, finding_view(finding))


BAD = {
    "a call that is no object": b'C 7 0 "abc"\n',
    "nested too deeply": b"C 7 0 " + b"[" * 100_000 + b"\n",
    "a large number": b"w 1" + b"0" * 400 + b"\n",
    "no end of a line": b"0" * (notes.MAX_LINE_BYTES + notes.MAX_GROUPS),
    "too many members": f"G 2 0 gloo {[0] * (notes.MAX_MEMBERS // 2)}\n".encode() * 3,
}


@pytest.mark.parametrize("why", BAD)
def test_a_rank_whose_notes_can_not_be_read_is_named(why: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        text = "\n".join([*lines(rank)[:10], ""]).encode()
        (tmp_path / f"rank-{rank}.notes").write_bytes(text + BAD[why] * rank)
    report = compare_recordings(tmp_path.glob("*.notes"))
    assert report.stopped == f"rank 1: {notes.UNREADABLE}"


def test_a_rank_that_goes_on_without_end_is_not_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note_files, "MAX_OPEN", 1000)
    monkeypatch.setattr(note_files, "CHUNK", 1000)
    for rank in (0, 1):
        text = "\n".join([*lines(rank)[:11], ""])
        (tmp_path / f"rank-{rank}.notes").write_text(text + "0\nr\n" * (10_000 * rank))
    report = compare_recordings(tmp_path.glob("*.notes"))
    if report.findings:
        assert [finding.kind for finding in report.findings] == ["stuck"]
    else:
        assert report.stopped == "rank 1 made 1,000 calls that other ranks never made"
    assert report.unended == (0,)
