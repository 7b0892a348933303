"""Parts of ``run``: arguments, values, output, and modules imported in the launcher."""

from __future__ import annotations

import enum
import io
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from distdemo.launcher.program import MAX_VALUE_CHARS
from distdemo.run.output import MAX_TOTAL_BYTES, MIN_BYTES, Transcript, transcripts
from distdemo.run.value import MAX_JSON_CHARS, MAX_NUMBERS, plain_value
from distdemo.view.stream import Stream

# ----------------------------------------------------------------------------------------- values


class Level(enum.IntEnum):
    HIGH = 3


class Broken:
    def tolist(self):
        raise OSError("no")


@dataclass
class Point:
    x: int


class Mute:
    def __repr__(self):
        raise RuntimeError("no")


def test_values_as_text_and_as_json_has_them():
    for returned, text, plain in (
        (None, "", None),
        (True, "True", True),
        (0.5, "0.5", 0.5),
        ("text", "'text'", "text"),
        (Level.HIGH, "<Level.HIGH: 3>", 3),
        ((1, [2, None]), "(1, [2, None])", [1, [2, None]]),
        ({1: "a", "b": (2,)}, "{1: 'a', 'b': (2,)}", {"1": "a", "b": [2]}),
        (torch.tensor([[1.0, 2.0]]), "tensor([[1., 2.]])", [[1.0, 2.0]]),
        (np.arange(3), "array([0, 1, 2])", [0, 1, 2]),
        (Point(3), "Point(x=3)", "Point(x=3)"),
    ):
        assert plain_value(returned) == (text, plain)
        json.dumps(plain)


def test_what_json_has_no_form_for_or_too_much_is_text_and_no_error():
    text, plain = plain_value("x" * 100_000)
    assert len(text) <= MAX_VALUE_CHARS
    assert "characters left out" in text
    assert plain == "x" * 100_000
    within: list[object] = []
    within += [within]
    broken = (torch.ones(3, device="meta"), torch.eye(3).to_sparse(), Broken(), Mute())
    huge = ("x" * 2 * MAX_JSON_CHARS, torch.zeros(MAX_NUMBERS + 1))
    for value in (*broken, 10**5000, within, *huge):
        text, plain = plain_value(value)
        assert plain == text


# ----------------------------------------------------------------------------------------- output


def kept(pieces, most=1 << 20):
    transcript = Transcript(most)
    for piece in pieces:
        transcript.add(piece)
    return transcript.finished()


CHATTER = (
    b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
)


def test_output_is_kept_as_text_without_what_the_backend_prints():
    assert kept([b"a\xffb"]) == ("a\ufffdb", 0)
    assert kept(["ü".encode()[:1], "ü".encode()[1:]]) == ("ü", 0)
    assert kept([b"one\n" + CHATTER + b"two\n" + CHATTER]) == ("one\ntwo\n", 0)


def test_of_very_much_the_two_ends_stay():
    text, left_out = kept([b"line %02d\n" % number for number in range(100)], 40)
    assert left_out == 800 - 2 * 16
    assert text == "line 00\nline 01\n[... 768 bytes left out ...]\nline 98\nline 99\n"
    size = MAX_TOTAL_BYTES // MIN_BYTES * 2
    last = transcripts(size)[-1]
    last.add(b"x" * (2 * MIN_BYTES))
    assert last.finished()[1] == MIN_BYTES


@pytest.fixture
def opened():
    def start(ranks=(0, 1), encoding="utf-8"):
        memory = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
        return Stream(frozenset(ranks), memory), lambda: memory.buffer.getvalue().decode(encoding)

    return start


def test_whole_lines_at_once_and_never_two_ranks_in_one(opened):
    stream, shown = opened()
    stream.write(0, b"begin")
    stream.write(1, b"one\ntwo\nthr")
    assert shown() == "1 │ one\n1 │ two\n"
    stream.write(0, b"ning\n" + CHATTER)
    stream.write(1, b"ee\nlast")
    stream.flush()
    stream.flush()
    assert shown() == "1 │ one\n1 │ two\n0 │ beginning\n1 │ three\n1 │ last\n"


def test_characters_in_pieces_ranks_that_are_not_shown_and_lines_without_end(opened):
    stream, shown = opened((3, 11))
    for byte in "grün\n".encode():
        stream.write(3, bytes([byte]))
    stream.write(5, b"x\n")
    stream.write(11, b"\xff\n" + b"x" * 70_000)
    assert shown() == " 3 │ grün\n11 │ \ufffd\n11 │ " + "x" * 70_000 + "\n"
    stream, shown = opened((0,), "ascii")
    stream.write(0, "grün \x1b[31mrot\x1b[0m\n".encode())
    assert shown() == "0 | gr?n rot\n"


# ----------------------------------------------------------------------------------------- preload
