"""``distdemo shell``, as lessons run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import matches
from processes import ESCAPES, Start

from distdemo.interactive.command import meant_command, piped_statements

pytestmark = pytest.mark.processes
HERE = Path(__file__).parent
LESSON = """\
t = torch.arange(3.) + 10 * rank
dist.all_reduce(t); t
rank ** 2
for i in range(2):
    dist.all_reduce(t)

    # a blank line and a comment end no block
else:
    t = t + 1
t.sum()
dist.all_reduce(t)
if rank != 2: dist.barrier()  # fails: rank 2 doesn't call it
%calls
t;
%calls
%ranks --only 0,2
rank / (2 - rank)
dist.barrier()
%ranks --only 9
"""
COMMANDS = {  # what each line is answered with
    "%ranks --only 2": "There is no rank 2: the ranks are 0-1.",
    "%ranks 2 3": "%ranks: unrecognized arguments: 3.\nTry %ranks 4 --backend gloo --only 0,2.",
    "%ranks it's": "%ranks it's: no closing quotation.",
    "%ranks --backend none": "The backend 'none' is not available.",
    "%nothing": "distdemo nothing failed with exit code 2.",
}


def run(start: Start, lines: str, *options: str, **env: str) -> tuple[int, str, str]:
    """Run a shell over these lines."""
    shell = start("distdemo", "shell", *options, env=env, stdin=subprocess.PIPE)
    return shell.finish(typed=lines)


def test_a_lesson_of_standard_input(start: Start) -> None:
    code, out, err = run(start, LESSON, "-n", "4")
    assert (code, err) == (1, "")
    matches(HERE / "golden/lesson.txt", out)
    assert run(start, "", "-q") == (0, "! No line was run.\n", "")


def test_a_session_without_failures_exits_with_0_and_its_document_has_the_values(
    start: Start,
) -> None:
    lines = "1 + rank\n%ranks 3\nworld_size\nexit()\n1 / 0\n"
    code, out, err = run(start, lines, "-n", "2", "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [cell["source"] for cell in found["cells"]] == ["1 + rank", "world_size"]
    assert found["cells"][1]["values"] == [{"ranks": [0, 1, 2], "text": "3"}]


def test_commands_are_strict_and_never_end_the_session(start: Start) -> None:
    lines = "\n".join(["kept = rank", *COMMANDS, "kept", "exit(3)", "1 / 0"])
    code, out, _ = run(start, lines, "-n", "2", "--format", "json")
    found = json.loads(out)
    assert (code, found["ok"]) == (1, False)
    for refused, expected in zip(found["refused"], COMMANDS.values(), strict=True):
        assert refused["what"].startswith(expected)
    _, last = found["cells"]
    assert [each["text"] for each in last["values"]] == ["0", "1"]


@pytest.mark.parametrize("line", ["shell", "learn ring"])
def test_standard_input_that_is_closed(start: Start, line: str) -> None:
    shell = f"exec {sys.executable} -m distdemo {line} <&-"
    code, out, err = start("sh", "-c", shell).finish()
    if line == "learn ring":
        assert (code, err) == (0, "")  # it plays the step without a prediction
        return
    assert (code, out) == (2, "")
    assert err.splitlines()[:2] == ["Standard input can't be read.", "It is closed."]


@pytest.mark.parametrize("line", ["shell", "learn ring"])
def test_standard_input_that_cannot_be_read(start: Start, line: str, tmp_path: Path) -> None:
    with (tmp_path / "written").open("w") as file:
        code, out, err = start("distdemo", *line.split(), stdin=file).finish()
    assert (code, out) == (2, "")
    assert err.splitlines()[:2] == ["Standard input can't be read.", "Bad file descriptor."]


MARKED = """\
1 / 0  # fails
if rank: dist.barrier()  # fails: rank 0 doesn't call it
%ranks --only 9  # fails
%mistakes nothing  # fails: there is no such mistake
'# fails, as a text'
"""


def test_a_line_that_is_meant_to_fail_is_a_failure_only_if_it_does_not_fail(start: Start) -> None:
    code, out, _ = run(start, MARKED, "-n", "2")
    assert (code, out.splitlines()[-1]) == (0, "✓ 5 lines, 4 failed as expected.")
    code, out, _ = run(start, f"{MARKED}rank  # fails\n%ranks  # fails\n", "-n", "2")
    assert code == 1
    assert out.count("This is marked with # fails, but it succeeded.") == 1
    assert out.endswith("✗ 1 line failed, 4 failed as expected.\n")


BROKEN = """\
t = torch.ones(2) * rank
if rank: print("runs")
x = = 3
dist.all_reduce(t)
if rank:
    y = 1
    z = = 2
else:
    y = 3
trace list
help
t
"""


def test_a_line_of_a_pipe_that_is_no_python_leaves_the_others(start: Start) -> None:
    code, out, err = run(start, BROKEN, "-n", "2")
    assert (code, err) == (1, "")
    matches(HERE / "golden/broken.txt", out)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("a\n\n# note\nb", ["a\n\n# note", "b"]),
        ("a\nb b\nc", ["a", "b b", "c"]),
        ("(a\nb\n%calls\nc", ["(a", "b", "%calls", "c"]),
        ("for a in b\n    c\n\nd", ["for a in b\n    c", "d"]),
        ("if a:\n    b\nelse c:\n    d\ne", ["if a:\n    b\nelse c:\n    d", "e"]),
        ("a(\n  b\n) )\nc", ["a(\n  b\n) )", "c"]),
        ("a\n  b\nc", ["a\n  b", "c"]),
        ("  a\nb", ["  a", "b"]),
        ('a b\nc d\n"""e\nf', ["a b", "c d", '"""e', "f"]),
        ("a\nb\0\nc", ["a", "b\0", "c"]),
        ("", []),
    ],
)
def test_a_text_is_parted_into_statements(text: str, statements: list[str]) -> None:
    assert [*piped_statements(text)] == statements


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("trace list", "%trace list"),
        ("distdemo hello -n 2", "%hello -n 2"),
        ("hello", "%hello"),
        ("all-reduce --shape 2", "%all-reduce --shape 2"),
        ("bench p2p --help", "%bench p2p --help"),
        ("explain scatter --root 1", "%explain scatter --root 1"),
        ("all_reduce t", ""),  # the parser refuses it
        ("trace = 1 / 0", ""),
        ("reduce = = 3", ""),
        ("trace list\ntrace list", ""),
        ("nothing at all", ""),
    ],
)
def test_a_command_without_its_sign(line: str, meant: str) -> None:
    assert meant_command(line) == meant


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_line_that_runs_and_its_ranks(start: Start, number: int) -> None:
    with start("distdemo", "shell", "-n", "2", stdin=subprocess.PIPE) as run:
        assert run.process.stdin is not None
        assert run.process.stdout is not None
        run.process.stdin.write("while True: print('runs')\n\n1\n2\n")
        run.process.stdin.close()
        run.process.stdin = None  # the rest is read by `finish`
        assert any(line.endswith("runs\n") for line in run.process.stdout)
        run.process.send_signal(number)
        code, _, err = run.finish()
        assert (code, err.splitlines()[0]) == (1, f"Stopped by {signal.Signals(number).name}.")
        run.leaves_nothing()


def test_other_commands_run_beside_the_ranks(start: Start) -> None:
    lines = "kept = rank\n1 / 0  # fails\n%mistakes order\n%tarce\n%run nothing.py:f\nkept\n"
    lines = lines.replace("%tarce", "%explain scatter -q  # fails: it doesn't\n%tarce")
    code, out, err = run(start, lines, "-n", "2")
    assert code == 1
    assert "Mismatch in call 1 of the default group: the sizes don't match." in out
    assert "Did you mean trace?" in err
    assert out.count("This is marked with # fails, but it succeeded.") == 1
    assert out.endswith(
        "rank 0  0\nrank 1  1\n✗ 1 line failed, 1 failed as expected, 2 commands refused.\n"
    )


def test_lines_are_typed_on_a_terminal(start: Start) -> None:
    terminal = start.terminal("distdemo", "shell", "-n", "2")
    terminal.wait_for(">>>")
    terminal.type("10 * world_size\r")
    terminal.wait_for("ranks 0-1  20")
    terminal.wait_for(">>>")
    terminal.type("if rank:\r    kept = 7\r\r")
    terminal.type("kept\r")
    terminal.wait_for("NameError")
    terminal.wait_for(">>>")
    terminal.type("1 / ")
    terminal.wait_for("1 / ")
    terminal.interrupt()
    terminal.wait_for("KeyboardInterrupt")
    terminal.wait_for(">>>")
    terminal.type("%mistakes recv-recv\r")
    terminal.wait_for("on 2 ranks")
    terminal.type("\x03")
    terminal.wait_for("The line was interrupted.")
    terminal.wait_for(">>>")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "rank 1  7" in ESCAPES.sub("", terminal.raw)
    terminal.run.leaves_nothing()


def test_a_typed_line_is_shown_again_in_its_place_with_colours(start: Start) -> None:
    env = {"NO_COLOR": None, "TERM": "xterm-256color", "COLUMNS": "20"}
    terminal = start.terminal("distdemo", "shell", "-n", "1", env=env)
    terminal.wait_for(">>>")
    terminal.type("if world_size == 1: print('one')\r\r")  # 2 rows of 20 columns
    terminal.wait_for("0 │ one")
    terminal.wait_for(">>>")
    assert "\x1b[2A\x1b[J>>> \x1b[" in terminal.raw
    terminal.type("world_size\r")  # nothing to colour
    terminal.wait_for("rank 0  1")
    terminal.wait_for(">>>")
    assert terminal.raw.count("\x1b[J") == 1
    terminal.type("%tarce\r")
    terminal.wait_for("Did you mean trace?")
    terminal.wait_for(">>>")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert terminal.text.endswith("✓ 2 lines.\n")  # a typo is no failed line
