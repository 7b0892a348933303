"""Functions of programs that have no file: a prompt, ``python -c`` and a program on stdin."""

from __future__ import annotations

import pytest
from helpers import warmed

PROGRAM = """
import torch.distributed as dist
import distdemo

def work():
    return dist.get_rank()

try:
    distdemo.launch(work, world_size=2, start_method={method!r})
except distdemo.UsageError as error:
    print(error)
print(distdemo.launch(work, world_size=2, start_method="fork"))
print(distdemo.launch(dist.get_rank, world_size=2, start_method={other!r}))
"""


def outcome(kind, text, temporary):
    """The lines that the program prints; a traceback of a rank is an error."""
    program = temporary / "program"
    program.write_text(text if kind == "-" else "")
    with program.open() as stdin:
        words = ["-c", text] if kind == "-c" else ["-"]
        with warmed(words, temporary, stdin=stdin) as run:
            code, out, err = run.finish()
    assert code == 0, err
    assert "Traceback" not in err
    return out.splitlines()


@pytest.mark.parametrize(
    ("kind", "method", "other"), [("-c", "forkserver", "forkserver"), ("-", "spawn", "fork")]
)
def test_a_function_without_a_file_is_refused_or_forked_and_one_of_a_module_needs_none(
    kind, method, other, tmp_path
):
    *said, forked, of_a_module = outcome(kind, PROGRAM.format(method=method, other=other), tmp_path)
    refusal = "\n".join(said)
    assert "module" in refusal or "file" in refusal
    assert "start_method='fork'" in refusal
    assert "__name__ == '__main__'" not in refusal
    assert forked == of_a_module == "[0, 1]"
