"""Functions of programs that have no file: a prompt, ``python -c`` and a program on stdin."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers import PATIENCE

PROGRAM = """
import torch.distributed as dist
import distdemo

def work():
    return dist.get_rank()

try:
    print(distdemo.launch({fn}, world_size=2, start_method={method!r}))
except distdemo.UsageError as error:
    print(error)
"""


def outcome(kind, method, fn="work"):
    """What the program prints; a traceback of a rank is an error."""
    text = PROGRAM.format(fn=fn, method=method)
    arguments, given = (["-c", text], "") if kind == "-c" else (["-"], text)
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize(("kind", "method"), [("-c", "forkserver"), ("stdin", "spawn")])
def test_a_function_without_a_file_is_refused_before_any_rank_starts(kind, method):
    said = outcome(kind, method)
    assert "module" in said or "file" in said
    assert "start_method='fork'" in said
    assert "__name__ == '__main__'" not in said


@pytest.mark.parametrize("kind", ["-c", "stdin"])
def test_it_works_under_fork(kind):
    assert outcome(kind, "fork") == "[0, 1]\n"


def test_a_function_of_a_module_needs_no_file_of_the_program():
    assert outcome("-c", "forkserver", "dist.get_rank") == "[0, 1]\n"
