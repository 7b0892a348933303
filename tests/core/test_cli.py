"""Check every command: one verdict, one document, one line of help per option, refusals."""

from __future__ import annotations

import inspect
import json
import shlex
from pathlib import Path

import jsonschema
import pytest
from benches import document as bench_report
from benches import written
from forked import in_a_child
from json_schema import document_schema
from processes import Command

from distdemo import ops
from distdemo.cli import main as main_module
from distdemo.cli.app import function_of, records_of, typer_command
from distdemo.cli.commands import COMMANDS, MORE

PROGRAM = Path(__file__).parents[1] / "run" / "programs" / "hello.py"
TRAINING = Path(__file__).parents[2] / "examples/parity/ddp.py"
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
    "parity": f"{TRAINING} -n 2",
    "postmortem": "NOTES",
    "hello": "-n 2",
    "check": "--op barrier -n 2",
    "backends": "",
    "doctor": "--only torch",
    "warm": "--status",
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


def test_every_command_has_a_line_here() -> None:
    assert {name for name in COMMANDS if ops.find(name) is None} <= set(CHEAP)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", CHEAP)
def test_one_verdict_on_the_screen_and_one_valid_document_in_the_file(
    name: str,
    command: Command,
    measured: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # which has no warm process
    file = tmp_path / "result.json"
    line = shlex.split(f"{name} {CHEAP[name]}".replace("OLD", str(measured)))
    line = [word.replace("NOTES", str(measured.parent)) for word in line]
    code, out, err = in_a_child(command, *line, "--quiet", "--output", file)  # it may load MPI
    assert 1 <= len(out.splitlines()) <= 4
    assert err == ""
    document = json.loads(file.read_text())
    assert (document["schema_version"], document["command"]) == (4, name)
    assert (document["ok"], code) in [(True, 0), (False, 1)]
    jsonschema.validate(document, document_schema(records_of(name)[0], name))


@pytest.mark.processes
def test_json_on_the_screen_is_the_document_of_the_file(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    code, out, err = command("explain", "scatter", "--format", "json", "--output", str(file))
    assert (code, err, out) == (0, f"Wrote {file}\n", file.read_text())


def test_the_list_of_commands_has_the_first_line_of_each_docstring() -> None:
    for name, (_, line) in COMMANDS.items():
        assert line == (inspect.getdoc(function_of(name)) or "").partition("\n")[0]


def test_the_first_screen_names_every_command_in_one_line_each(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = command()
    lines = [" ".join(line.strip("│").split()) for line in out.splitlines()]
    for name, (panel, line) in COMMANDS.items():
        assert panel == MORE or f"{name} {line}" in lines
    more = [name for name, (panel, _) in COMMANDS.items() if panel == MORE]
    assert f"More: {', '.join(more)}; COMMAND --help" in lines
    assert "First: distdemo hello." in out
    for words in ("help", "help bench", "Version"):
        assert command(*words.split())[0] == 0
    assert "distdemo bench links: Measure every pair" in " ".join(
        command("help", "bench")[1].split()
    )


def test_every_option_has_a_sentence_of_help() -> None:
    for name in COMMANDS:
        for option in typer_command(name).params:
            text = (getattr(option, "help", None) or "").partition(" \\[default")[0]
            assert text.endswith("."), f"{name} {option.opts}: {text!r}"
            assert "\n" not in text


BAD = {
    "trian": "Did you mean train?",
    "isned": "Did you mean isend?",
    "all_gather_into_tenosr": "Did you mean all_gather_into_tensor?",
    "all": "Did you mean all-reduce, all-gather or all-to-all?",
    "all_reduce_coalesced": "Did you mean all-reduce?",
    "xyzzy": "Learn: learn, explain, shell, mistakes, trace, train. Operations: hello, broadcast,",
    "quiz": "Try distdemo learn --write exercises.",
    "excercises": "Try distdemo learn --write exercises.",
    "what is a ring": "Try distdemo trace ring.",
    "'What is a ring?'": "Try distdemo trace ring.",
    "what does all_reduce do": "Try distdemo explain all_reduce.",
    "how many bytes does a ring send": "Try distdemo trace ring.",
    "why does it hang?": "Try distdemo postmortem --live.",
    "attach 4711": "Try distdemo postmortem --live.",
    "postmortem 4711": "Try distdemo postmortem --live --job 4711.",
    "how does bench measure": "Try distdemo bench --help.",
    "when would I use zero-3": "Try distdemo learn fsdp.",
    "which rank is first": "Try distdemo learn.",
    "what": "Try distdemo learn.",
    "show slides": "Try distdemo learn --write class.",
    "notebook": "Try distdemo learn --write class.",
    "hint all-reduce": "hints/ lead to a solution. Try distdemo learn --write exercises.",
    "solution latency": "hints/ lead to a solution. Try distdemo learn --write exercises.",
    "quit": "There is nothing to quit:",
    "test": "For tests of your own programs, and those of exercises: pytest,",
    "scatter-gather": "Try distdemo learn scatter-gather.",
    "explain P": "S(0) sharded, P partial. Try distdemo parity train.py -n 4.",
    "hello -P": "distdemo hello --help lists its options.",
    "learn scater": "Did you mean scatter-gather?",
    "learn send": "Try distdemo explain send.",
    "learn tp": "Did you mean tensor-parallel?",
    "learn dpp": "Did you mean ddp?",
    "learn zero3": "the steps fsdp (ZeRO-3) and zero-1; run and parity take your own program. Did",
    "learn zero-3": "Did you mean fsdp?",
    "learn 19": "Choices: hello, broadcast,",
    "ReduceOp.SUM": "Try distdemo all-reduce --reduce-op sum.",
    "train.py": "Try distdemo run train.py.",
    "all_reduce_perf -b 8": "Try distdemo bench all_reduce.",
    "osu_latency": "Try distdemo bench p2p.",
    "explain fsdp": "Try distdemo learn fsdp.",
    "explain zero-1": "Try distdemo learn zero-1.",
    "list": "Try distdemo explain.",
    "trace all-reduce -a rign": "Did you mean --algorithm ring?",
    "trace -a bruck": "Operations that have it: all-gather, all-to-all.",
    "bench isend": "It is p2p --nonblocking.",
    "-n 4 hello": "Try distdemo hello -n 4.",
    "--ranks 4": "Try distdemo hello --ranks 4.",
    "all-reduce --animate": "Try distdemo trace all-reduce --animate.",
    "all-reduce --max": "Try distdemo all-reduce --reduce-op max.",
    "all-reduce --root 2 -q": "Try distdemo reduce --root 2 -q.",
    "all-reduce --algorithm ring": "Try distdemo trace all-reduce --algorithm ring.",
    "all-reduce -n 2 --straggler=1:1": "Try distdemo barrier -n 2 --straggler 1:1.",
    "all-reduce --group 0,1 --iters 5": "Try distdemo bench all-reduce --iters 5.",
    "all-reduce --record x.json": "Try distdemo run train.py --record x.json.",
    "all-reduce --sizes x": "distdemo all-gather --help describes it.",
    "scatter --dst 2": "Try distdemo scatter --root 2.",
    "all-gather --dst 2": "Try distdemo gather --root 2.",
    "all-gather --size 3,0,7": "Did you mean --shape or --sizes?",
    "hello --ranks=3 -q": "Try distdemo hello -n 3 -q.",
    "scatter --ranks 0,2": "Try distdemo scatter --group 0,2.",
    "bench links --ranks": "Did you mean -n?",
    "parity x.py --processes 2": "Try distdemo parity x.py -n 2.",
    "doctor --ranks 4": "doctor: Check what worlds need",
    "barrier --shape 4": "barrier: No rank continues until all have arrived.",
    "train --lr 0.1": "train's model, data and optimizer are fixed;",
    "train --model resnet": "train's model, data and optimizer are fixed;",
    "train --ddp": "Try distdemo train --mode ddp.",
    "train ddp": "Try distdemo train --mode ddp.",
    "train --mode dpp": "Did you mean --mode ddp?",
    "train --mode fsdp": "Choices: compare, manual, flat, ddp. Try distdemo learn fsdp.",
    "train --mode pipeline": "Try distdemo learn pipeline.",
    "explain all reduce": "distdemo explain reduce --help lists its options.",
    "all-reduce max": "Try distdemo all-reduce --reduce-op max.",
    "hello --gloo": "Try distdemo hello --backend gloo.",
    "bench all-reduce --algorithm ring doubling": "Try --algorithm ring,doubling.",
    "all-reduce --shape 2 3": "Try --shape 2,3.",
    "all-reduce --dtype float32 float64": "Unexpected argument 'float64'.",
    "train --sanitize": "Try distdemo run train.py --sanitize",
    "p2p --tag 3": "Try distdemo shell.",
    "explain --root 2": "Try distdemo explain broadcast --root 2.",
    "explain -n 3": "explain: List the operations, or draw one",
    "explain scatter --dst 2": "Try distdemo explain scatter --root 2.",
    "explain barrier --straggler 1:1": "Try distdemo barrier --straggler 1:1.",
    "mistakes deadlock": "Try distdemo mistakes recv-recv.",
    "mistakes uneven": "Did you mean uneven-batches?",
    "all-reduce --dtpye": "Did you mean --dtype?",
    "run x.py --check-replica": "Did you mean --check-replicas?",
    "all-reduce --dtype flaot32": "Did you mean --dtype float32?",
    "all-reduce --pattern ring": "Try distdemo p2p --pattern ring.",
    "all-reduce --frobnicate": "distdemo all-reduce --help lists its options.",
    "all-reduce 4": "Try distdemo all-reduce -n 4.",
    "explain scatter gather": "Unexpected argument 'gather'.",
    "run x.py --lr 3": 'Put your program\'s options after "--".',
    "check --junit-xml": "Option '--junit-xml' requires an argument.",
    "all-reduce --nnodes 2": "--nnodes, --node-rank and --master are required together.",
    "all-reduce --launcher torchrun": "",
    "all-reduce -n 1000000": "This machine can't hold",
    "all-reduce --output /no/such/folder/x.json": "There is no folder /no/such/folder.",
    "all-reduce --output x.pdf": "The suffix chooses the format: .json",
}
"""Command lines that can't be carried out, and a part of the answer."""


@pytest.mark.usefixtures("no_rank_starts")
def test_a_bad_command_line_is_refused_in_two_or_three_lines(command: Command) -> None:
    for line, hint in BAD.items():
        code, out, err = command(*shlex.split(line))
        assert (code, out) == (2, ""), line
        assert len(err.strip().splitlines()) >= (2 if hint.startswith("Did you mean") else 3), line
        assert "Traceback" not in err
        assert hint in " ".join(err.split()), line
        code, out, err = command("--format=json", *shlex.split(line))
        document = json.loads(out)
        assert (code, err, document["ok"]) == (2, "", False), line
        assert all(document["errors"][0][part] for part in ("what", "hint"))
    _, out, _ = command("bench", "fit", "--format=json")
    assert json.loads(out)["command"] == "bench fit"
    for line in ("--version", "--help", "all-reduce --help"):
        code, out, err = command(*line.split())
        assert (code, bool(out), err) == (0, True, "")


def test_an_error_of_the_system_is_reported(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "app", lambda **_: Path("/none/such").read_text())
    code, out, err = command("hello")
    assert (code, out) == (1, "")
    assert err.startswith("/none/such could not be read or written.\nNo such file")
