"""Files that ranks write: what is read back, and damaged files."""

from __future__ import annotations

import numpy as np
import pytest
from sketching import sketch

from distdemo.errors import DistdemoError
from distdemo.parity.records import Note, RankNotes
from distdemo.parity.sketches import distance, read_notes, write_notes

SKETCH = sketch(np.arange(6.0).reshape(2, 3))
NOTES = RankNotes(1, 2, (Note("gradient", 0, "w", "float32", (0, 1), (2, 3)),))


def test_what_a_rank_wrote_is_read_back(tmp_path):
    write_notes(tmp_path, NOTES, [SKETCH])
    written = read_notes(tmp_path, 1)
    assert written is not None
    notes, (own,) = written
    assert notes == NOTES
    assert distance(own, SKETCH) == (0, 0)
    assert read_notes(tmp_path, 0) is None


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("rank-1.json", b"{", "can't be read"),
        ("rank-1.json", b'{"rank": "1"}', "is not a int"),
        ("rank-1.f64", b"12345678", "fewer numbers"),
        ("rank-1.f64", b"123", "can't be read"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, name, content, text):
    write_notes(tmp_path, NOTES, [SKETCH])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DistdemoError, match=text):
        read_notes(tmp_path, 1)


def test_a_note_with_a_negative_length_is_an_error(tmp_path):
    note = Note("gradient", 0, "w", "float32", (0, 1), (2, -3))
    write_notes(tmp_path, RankNotes(1, 2, (note,)), [SKETCH])
    with pytest.raises(DistdemoError, match="fewer numbers"):
        read_notes(tmp_path, 1)
