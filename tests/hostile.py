"""Input that nobody should send: JSON of every kind, changed documents, and what is no file."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)
NUMBERS = st.sampled_from([0, -1, 10**9, 2**63, 10**400, 1e308, 1e-320, "NaN", "Infinity"])


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """The document with one or two of its parts removed, or replaced by anything."""
    found = copy.deepcopy(document)
    at = random.Random(draw(st.integers(0, 2**32)))
    for value in draw(st.lists(NUMBERS | JSON, min_size=1, max_size=2)):
        inner, name = at.choice([*_places(found)] or [({"": None}, "")])
        if at.random() < 0.8:
            inner[name] = value
        else:
            del inner[name]
    return found


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in inside:
        yield value, name
        if isinstance(each, dict | list):
            yield from _places(each)


def no_files(folder: Path) -> list[Path]:
    """A pipe, a folder, 3 GiB, a loop of links, nothing at all, and devices without an end."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    with (folder / "large").open("wb") as file:
        file.truncate(3 << 30)  # of a disk it takes nothing
    (folder / "loop").symlink_to("loop")
    names = ("pipe", "folder", "large", "loop", "missing")
    return [*(folder / name for name in names), Path("/dev/zero"), Path("/proc/kmsg")]
