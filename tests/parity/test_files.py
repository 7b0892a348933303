"""Files that ranks write: what is read back, and damaged files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sketching import sketch

from distdemo.errors import DistdemoError
from distdemo.parity.notes import Note, RankNotes, read_notes, write_notes
from distdemo.parity.sketches import distance

SKETCH = sketch(np.arange(6.0).reshape(2, 3))
NEGATIVE = json.dumps(
    {
        "rank": 1,
        "steps": 2,
        "notes": [{"kind": "loss", "step": 0, "name": "w", "dims": [0], "lengths": [-3]}],
    }
).encode()
NOTE = Note("gradient", 0, "w", "float32", sketch=SKETCH)


def test_what_a_rank_wrote_is_read_back(tmp_path):
    write_notes(tmp_path, RankNotes(1, 2, (NOTE,)))
    notes = read_notes(tmp_path, 1)
    assert notes is not None
    (note,) = notes.notes
    assert note.key == NOTE.key
    assert (note.dtype, notes.steps) == ("float32", 2)
    assert note.sketch is not None
    assert distance(note.sketch, SKETCH) == (0, 0)
    assert read_notes(tmp_path, 0) is None


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("rank-1.json", b"{", "can't be read"),
        ("rank-1.json", b'{"rank": "1"}', "is not a int"),
        ("rank-1.json", NEGATIVE, "fewer numbers"),
        ("rank-1.f64", b"12345678", "fewer numbers"),
        ("rank-1.f64", b"123", "can't be read"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, name, content, text):
    write_notes(tmp_path, RankNotes(1, 2, (NOTE,)))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DistdemoError, match=text):
        read_notes(tmp_path, 1)
