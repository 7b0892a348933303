"""Files that a stranger may have written: each parser ends, and so do the worker processes."""

from __future__ import annotations

import json
import pickle
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import in_a_child
from hostile import JSON, changed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postmortem.test_postmortem import BEHIND, FILES, FIRST, RAS, STACK, dump, entry
from processes import Start

from distdemo.calls.flight.pickles import PROTOCOLS, load_plain
from distdemo.calls.notes import EndNote, Samples, TensorNote, note_line
from distdemo.calls.records import RankCall, SourceLine
from distdemo.errors import UsageError
from distdemo.postmortem import files

pytestmark = pytest.mark.processes
Command = Callable[..., tuple[int, str, str]]
SOME = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])

# ------------------------------------------------------------------------------------- recordings


def record(path: Path, rank: int, reduce_op: str, size: int = 2) -> None:
    """Write the notes of a rank that makes one call and returns."""
    call = RankCall("all_reduce", SourceLine("train.py", 3), "float32", (4,), 4, "cpu", reduce_op)
    header = json.dumps({"rank": rank, "world_size": size, "host": path.parent.name})
    group = f"G 0 0 gloo {[*range(size)]}"
    notes = [f"H {header}", group, note_line(call, 0, 0), "0", "a", "r"]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*notes, note_line(EndNote("returned")), ""]), encoding="utf-8")


def test_recordings_in_several_folders_are_judged_together(
    tmp_path: Path, command: Command
) -> None:
    record(tmp_path / "host0" / "rank-0.notes", 0, "sum")
    record(tmp_path / "host1" / "rank-1.notes", 1, "product")
    code, out, _ = command("postmortem", str(tmp_path))
    assert (code, "different ReduceOps" in out, "2 recordings" in out) == (1, True, True)


TENSOR = TensorNote(0, "0.weight", "Sequential", (1,), "float32")


def test_parameters_can_be_left_out(tmp_path: Path, command: Command) -> None:
    for rank in (0, 1):
        file = tmp_path / f"rank-{rank}.notes"
        record(file, rank, "sum")
        sampled = Samples("step", 0, (0,), (rank,), (0.0,), ((),), (0,))
        notes = (replace(TENSOR, groups=(0,)), sampled)
        lines = "".join(f"{note_line(note)}\n" for note in notes)
        file.write_text(file.read_text().replace("E {", f"{lines}E {{"))
    assert "0.weight differs" in command("postmortem", str(tmp_path))[1]
    code, out, _ = command("postmortem", "--except", "0.*", str(tmp_path))
    assert (code, "0.weight" in out) == (0, False)
    code, _, err = command("postmortem", "--except", "1.*", str(tmp_path))
    assert (code, "--except matches no parameter: 1.*." in err) == (2, True)


def test_an_incomplete_recording_is_no_success(tmp_path: Path, command: Command) -> None:
    for rank in (0, 1):
        record(tmp_path / f"rank-{rank}.notes", rank, "sum")
    assert command("postmortem", str(tmp_path))[0] == 0
    code, out, _ = command("postmortem", str(tmp_path / "rank-0.notes"))
    assert (code, "in 1 call, but rank 1 left no notes." in out) == (1, True)
    whole = (tmp_path / "rank-0.notes").read_text()
    (tmp_path / "rank-0.notes").write_text(whole.partition("E ")[0])
    code, out, _ = command("postmortem", str(tmp_path))
    assert (code, "rank 0 did not end" in out) == (1, True)


def test_a_rank_whose_file_is_missing_is_unknown_and_not_at_fault(
    tmp_path: Path, command: Command
) -> None:
    for rank in (0, 2):  # they wait in the call
        file = tmp_path / f"rank-{rank}.notes"
        record(file, rank, "sum", size=3)
        file.write_text(file.read_text().partition("\na\nr\n")[0] + "\n")
    code, out, _ = command("postmortem", str(tmp_path))
    verdict = "! So far no errors in 2 calls, but rank 1 left no notes."
    assert (code, out.splitlines()[-1]) == (1, verdict)
    record(tmp_path / "rank-2.notes", 2, "product", size=3)
    _, out, _ = command("postmortem", str(tmp_path))
    assert "✗ So far: mismatch in call 1" in out


def test_two_recordings_of_a_rank_are_of_two_jobs(tmp_path: Path, command: Command) -> None:
    for host in ("host0", "host1"):
        record(tmp_path / host / "rank-0.notes", 0, "sum")
    code, _, err = command("postmortem", str(tmp_path))
    assert (code, "is of rank 0 of" in " ".join(err.split())) == (2, True)
    record(tmp_path / "host0" / "rank-0.notes", 0, "sum", size=1)
    (tmp_path / "host1" / "rank-0.notes").write_text("no notes")
    code, out, _ = command("postmortem", str(tmp_path))
    assert (code, "its notes can't be read" in " ".join(out.split())) == (1, True)


# ---------------------------------------------------------------------------------------- workers


ENDLESS = """
import sys
from distdemo.__main__ import main
from distdemo.postmortem import files

def read(data):
    while True:
        pass

files.read_dump = read
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_workers(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "rank_0").write_bytes(pickle.dumps(BEHIND[0]))
    with start("python", "-c", ENDLESS, "postmortem", str(folder)) as run:
        run.ranks(1)
        run.process.send_signal(number)
        code, _, err = run.finish()
        run.leaves_nothing()
    assert code == {signal.SIGINT: 130, signal.SIGKILL: -9}.get(number, 1)
    assert "Traceback" not in err


def test_a_file_that_takes_too_long_is_named(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(data: bytes | str) -> None:
        while True:
            pass

    monkeypatch.setattr(files, "CPU_S", 1)
    monkeypatch.setattr(files, "read_dump", read)
    (tmp_path / "rank_2").write_bytes(pickle.dumps(BEHIND[2]))
    code, out, err = command("postmortem", str(tmp_path))
    message = " ".join(err.split())
    assert (code, out) == (2, "")
    assert "rank_2 can't be read. It takes more than 1 s of processor time." in message


# ---------------------------------------------------------------------------------------- pickles

PAIRS = b"".join((b"h" + bytes([depth])) * 2 + b"\x86q" + bytes([depth + 1]) for depth in range(99))
SHAPES = [[8] * 60] * 100_000
RANKS = str([*range(50_000)])
SHARED = {"name": "tp", "desc": "", "ranks": RANKS}
HOSTILE = {
    "a key of tuples in tuples": b"\x80\x02}K\x01q\x00" + PAIRS + b"K\x01s.",
    "a set of tuples in tuples": b"\x80\x04(K\x01q\x00" + PAIRS + b"\x91.",
    "keys with the same hash": b"\x80\x04}("
    + b"".join(b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"N" for n in range(10**5))
    + b"u.",
    "shapes of many calls": pickle.dumps(
        dump(*[{**FIRST, "collective_seq_id": n, "input_sizes": SHAPES} for n in range(1, 9000)])
    ),
    "a shape of many dimensions": pickle.dumps(
        dump({**FIRST, "input_sizes": [[8] * 10**6] * 10**6})
    ),
    "ranks of many groups": pickle.dumps(
        {**dump(FIRST), "pg_config": {str(n): SHARED for n in range(10**5)}}
    ),
    "a long text that is cut off": b"\x80\x04\x8d" + b"\xff" * 8 + b"x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_takes_no_more_time_than_its_size(tmp_path: Path, name: str) -> None:
    (tmp_path / "rank_0").write_bytes(HOSTILE[name])

    def judged() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        with suppress(UsageError):
            files.judge_files([str(tmp_path)])

    in_a_child(judged)


def test_a_pickle_of_plain_data_is_read_as_pickle_does() -> None:
    plain: dict[str, Any] = {
        "": [None, True, False, 0, 255, 256, 65536, -1, 1 << 62, -1 << 62, 0.5],
        "é": (), "1": (1,), "2": (1, 2), "3": (1, 2, 3), "4": (1, 2, 3, 4),
        "long": "x" * 300, "many": [str(number) for number in range(300)], "one": ["a"],
    }  # fmt: skip
    plain["twice"] = [plain["many"], plain["many"], *plain["many"]]
    for protocol in PROTOCOLS:
        assert load_plain(pickle.dumps(plain, protocol)) == plain


def test_values_are_checked_before_they_are_hashed_or_formatted(
    tmp_path: Path, command: Command
) -> None:
    pair: Any = ("x", "y")
    for _ in range(60):
        pair = (pair, pair)
    shapes: Any = [8]
    for _ in range(60):
        shapes = [shapes, shapes]
    for rank, change in enumerate(
        (
            {"process_group": (pair, "")},
            {"profiling_name": pair},
            {"input_sizes": shapes},
            {"input_dtypes": [pair]},
            {"collective_seq_id": pair},
            {"frames": [{"name": "f", "filename": pair, "line": 1}]},
            {"frames": [{"name": "f", "filename": "f", "line": pair}]},
        )
    ):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump({**FIRST, **change})))
    for rank, change in enumerate(({"version": pair}, {"pg_config": {"0": pair}}), 20):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps({**dump(FIRST), **change}))
    group = {"name": "0", "desc": "", "ranks": shapes}
    (tmp_path / "rank_30").write_bytes(pickle.dumps({**dump(FIRST), "pg_config": {"0": group}}))
    code, out, err = command("postmortem", str(tmp_path))
    assert (code, out, "not a flight recorder's dump" in " ".join(err.split())) == (2, "", True)


# ------------------------------------------------------------------------------------- any content


def judge(command: Command, folder: Path, **contents: bytes) -> int:
    """Judge these files, which may be anything; return the exit code."""
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    code, out, err = command("postmortem", str(folder), "--calls")
    assert "Traceback" not in out + err
    assert code in (0, 1, 2)
    assert code != 2 or len(" ".join(err.split()).split(". ")) >= 2
    return code


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=9) | st.tuples(st.integers(), st.text()), inner)
    ),
    max_leaves=20,
)


@given(PLAIN | changed(dump(FIRST, entry("all_gather", 2))))
@SOME
def test_any_pickle(tmp_path: Path, command: Command, value: Any) -> None:
    judge(command, tmp_path, rank_0=pickle.dumps(value), rank_1=pickle.dumps(BEHIND[1]))


@given(
    JSON
    | changed(dump(FIRST, entry("all_gather", 2)))
    | changed({"one": 1, **json.loads(RAS.replace("5\n", "5,\n"))})
)
@SOME
def test_any_json(tmp_path: Path, command: Command, value: Any) -> None:
    judge(command, tmp_path, rank_0=json.dumps(value).encode())


ERROR = """Traceback (most recent call last):
  File "/home/me/train.py", line 4, in step
ValueError: bad sample
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at a.cc:1] a. 1 vs 2. no
Root Cause (first observed failure):
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 5)
"""
TEXTS = [file.read_text(encoding="utf-8") for file in sorted(FILES.glob("*.*g"))]
TEXTS += [STACK, ERROR]
LINES = sorted({line for text in TEXTS for line in text.splitlines()})


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=9), max_size=30))
@SOME
def test_any_log_report_or_stack(tmp_path: Path, command: Command, lines: list[str]) -> None:
    judge(command, tmp_path, rank_0="\n".join(lines).encode(errors="replace"))
