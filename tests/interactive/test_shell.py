"""``distdemo shell``, as lessons run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import matches
from helpers import distdemo

from distdemo.interactive.command import is_incomplete, last_name

HERE = Path(__file__).parent
LESSON = """\
t = torch.arange(3.) + 10 * rank
dist.all_reduce(t); t
rank ** 2
for i in range(2):
    dist.all_reduce(t)
else:
    t = t + 1
t.sum()
if rank != 2: dist.barrier()
%only 0,2
rank / (2 - rank)
%only 9
%calls
"""


def test_a_lesson_of_standard_input() -> None:
    done = distdemo("shell", "-n", "4", input=LESSON)
    assert (done.returncode, done.stderr) == (1, "")
    matches(HERE / "golden/lesson.txt", done.stdout)


def test_a_session_without_failures_exits_with_0_and_its_document_has_the_values() -> None:
    lines = "1 + rank\n%world 3\nworld_size\nexit()\n1 / 0\n"
    done = distdemo("shell", "-n", "2", "--format", "json", input=lines)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [cell["source"] for cell in found["cells"]] == ["1 + rank", "world_size"]
    assert found["cells"][1]["values"] == [{"ranks": [0, 1, 2], "text": "3"}]


def test_mistakes_in_one_session() -> None:
    kinds = {
        "shape": "the sizes don't match",
        "rank-0-only": "rank 0 waits",
        "recv-recv": "Deadlock",
        "early-read": "a tensor is read while a call is filling it",
        "dead-rank": "Rank 2 raised an error",
    }
    lines = "".join(f"%mistake {name}\n" for name in kinds)
    done = distdemo("shell", "--format", "json", input=lines)
    assert done.returncode == 1
    cells = json.loads(done.stdout)["cells"]
    for (name, what), cell in zip(kinds.items(), cells, strict=True):
        assert what in cell["what"], name
        assert cell["rows"][0]["source_line"].startswith(f"{name.replace('-', '_')}.py:")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", False),
        ("if rank: x = 1", False),
        ("if rank:", True),
        ("if rank:\n    x = 1", True),
        ("if rank:\n    x = 1\n    ", False),
        ("print(", True),
        ("x = '''", True),
        ("x = )", False),
    ],
)
def test_what_needs_more_lines(source: str, expected: bool) -> None:
    assert is_incomplete(source) == expected


def test_the_name_to_complete() -> None:
    assert last_name("dist.all_reduce(t.sh") == "t.sh"
    assert last_name("%wor") == "%wor"
    assert last_name("f(") == ""
