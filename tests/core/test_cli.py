"""Check every command: one verdict, one document, one line of help per option, refusals."""

from __future__ import annotations

import inspect
import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from benches import document as bench_report
from benches import written
from forked import in_a_child
from json_schema import document_schema
from processes import Command

from distdemo import ops
from distdemo.cli import main as main_module
from distdemo.cli.app import COMMANDS, command_names, function_of, records_of, typer_command

PROGRAM = Path(__file__).parents[1] / "run" / "programs" / "hello.py"
CHEAP = {
    "all-reduce": "-n 2",
    "bench": "-n 2 -b 8 -e 512 --iters 1",
    "bench links": "-n 2",
    "bench compare": "OLD OLD",
    "bench fit": "OLD",
    "trace": "-n 2",
    "trace list": "broadcast",
    "train": "-n 2 --epochs 1 --mode flat",
    "rpc": "-n 2",
    "run": f"{PROGRAM}:run -n 2",
    "postmortem": "NOTES",
    "hello": "-n 2",
    "check": "--op barrier -n 2",
    "backends": "",
    "doctor": "--only torch",
    "ops": "",
    "explain": "scatter",
    "learn": "",
    "shell": "",
    "mistakes": "",
}
"""A command line of each command that takes little time. OLD: a file that bench wrote; NOTES: its
folder, where a rank has left its notes."""


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of bench, measured on a machine that nothing disturbed."""
    file = tmp_path_factory.mktemp("bench") / "old.json"
    written(file, bench_report())
    about = {"rank": 0, "world_size": 1, "host": "here"}
    (file.parent / "rank-0.notes").write_text(f"H {json.dumps(about)}\n")
    return file


LISTS = ("ops", "explain", "trace list")
"""Commands without a verdict: --quiet changes nothing."""


def test_every_command_has_a_line_here() -> None:
    assert {name for name in command_names() if ops.find(name) is None} <= set(CHEAP)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", CHEAP)
def test_one_verdict_on_the_screen_and_one_valid_document_in_the_file(
    name: str, command: Command, measured: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    line = shlex.split(f"{name} {CHEAP[name]}".replace("OLD", str(measured)))
    line = [word.replace("NOTES", str(measured.parent)) for word in line]
    code, out, err = in_a_child(command, *line, "--quiet", "--output", file)  # it may load MPI
    assert name in LISTS or 1 <= len(out.splitlines()) <= 4
    assert err == ""
    document = json.loads(file.read_text())
    assert (document["schema_version"], document["command"]) == (3, name)
    assert (document["ok"], code) in [(True, 0), (False, 1)]
    jsonschema.validate(document, document_schema(records_of(name)[0], name))


@pytest.mark.processes
def test_json_on_the_screen_is_the_document_of_the_file(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    code, out, err = command("explain", "scatter", "--format", "json", "--output", str(file))
    assert (code, err, out) == (0, f"Wrote {file}\n", file.read_text())


def test_the_list_of_commands_has_the_first_line_of_each_docstring() -> None:
    for name, (_, _, line) in COMMANDS.items():
        assert line == (inspect.getdoc(function_of(name)) or "").partition("\n")[0]


def test_help_of_an_option_is_one_short_sentence() -> None:
    for name in command_names():
        for option in typer_command(name).params:
            text = (getattr(option, "help", None) or "").partition(" \\[default")[0]
            assert text.endswith("."), f"{name} {option.opts}: {text!r}"
            assert "\n" not in text
            assert len(text) <= 110, f"{name} {option.opts}: {text!r}"


BAD = {
    "verison": "Did you mean distdemo --version?",
    "trian": "Did you mean distdemo train?",
    "benchmarks": "Did you mean distdemo bench?",
    "demo": "Did you mean distdemo hello or distdemo all-reduce?",
    "links -n 3": "Did you mean distdemo bench links?",
    "ring": "Did you mean distdemo p2p --pattern ring or distdemo trace --algorithm ring?",
    "bench --count 1M": "Did you mean --sizes?",
    "trace --algor ring": "Did you mean --algorithm?",
    "all-reduce --mpi": "Did you mean --backend mpi or --launcher mpi?",
    "p2p rnig": "Did you mean --pattern ring?",
    "all-reduce --pattern ring": "These have one: p2p, explain.",
    "all-reduce --output json": "Try --output result.json.",
    "all-gather --values 1,2,3 -n 3": "try --values 1 --values 2 --values 3.",
    "-n 4 hallo": "Try distdemo COMMAND -n ...",
    "all-gather --size 8": "Did you mean --sizes?",
    "all-reduce --dtpye": "Did you mean --dtype?",
    "run x.py --idle 3": "Did you mean --stall?",
    "run x.py --lr 3": "Try distdemo run FILE.py -n 4 -- --lr ...",
    "rpc --batch-size 4": "These have one: train. Leave it out.",
    "check --junit-xml": "Option '--junit-xml' requires an argument.",
    "all-reduce --nnodes 2": "",
    "all-reduce --launcher torchrun": "",
    "all-reduce -n 100000000": "",
    "all-reduce --output /no/such/folder/x.json": "",
    "all-reduce --output x.pdf": "",
}
"""Command lines that can't be carried out, and what to type instead."""


@pytest.mark.usefixtures("no_rank_starts")
def test_a_bad_command_line_is_refused_in_three_lines(command: Command) -> None:
    for line, hint in BAD.items():
        code, out, err = command(*shlex.split(line))
        assert (code, out) == (2, ""), line
        assert len(err.strip().splitlines()) >= 3, line
        assert "Traceback" not in err
        assert hint in " ".join(err.split()), line
        code, out, err = command(*shlex.split(line), "--format=json")
        document = json.loads(out)
        assert (code, err, document["ok"]) == (2, "", False), line
        assert all(document["errors"][0][part] for part in ("what", "hint"))
    for line in ("--version", "--help", "help all-reduce"):
        code, out, err = command(*line.split())
        assert (code, bool(out), err) == (0, True, "")


@pytest.mark.processes
def test_an_error_of_the_system_is_not_taken_for_a_full_disk(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_temporary_folder(**_: Any) -> None:
        with monkeypatch.context() as within:  # pytest makes temporary files, too
            within.setattr(tempfile, "tempdir", None)
            within.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
            tempfile.mkdtemp()

    monkeypatch.setattr(main_module, "app", without_a_temporary_folder)
    code, out, err = command("hello")
    assert (code, out) == (2, "")
    assert err == (
        "There is no folder for temporary files.\n"
        "No usable temporary directory found in ['/nonexistent'].\n"
        "Set TMPDIR to one.\n"
    )
    monkeypatch.setattr(main_module, "app", lambda **_: Path("/none/such").read_text())
    assert command("hello")[2].startswith("/none/such can't be used.\nNo such file")
