"""What holds for every command: one document, one verdict, one file, one line an option."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from distdemo.cli.app import COMMANDS, built, function_of, names, records_of
from distdemo.encoding import document_schema

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "run" / "programs" / "hello.py"
CHEAP = {
    "all-reduce": "-n 2",
    "bench": "-n 2 -b 8 -e 512 --iters 4 --launches 1 --no-limits",
    "bench links": "-n 2 --rounds 1 --iters 2",
    "bench compare": "OLD OLD",
    "bench fit": "OLD",
    "trace": "-n 2",
    "train": "-n 2 --epochs 1 --mode flat",
    "rpc": "-n 2 --steps 2",
    "run": f"{PROGRAM}:run -n 2",
    "hello": "-n 2",
    "check": "--op barrier -n 2",
    "backends": "",
    "doctor": "--only torch",
    "ops": "",
    "explain": "scatter",
}
"""A command line of each command that takes little time. OLD: a file that bench wrote."""
LISTED = [name for name, _, _ in COMMANDS if name in CHEAP]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that bench wrote."""
    from distdemo.cli.main import run

    file = tmp_path_factory.mktemp("bench") / "old.json"
    assert run(shlex.split(f"bench {CHEAP['bench']} -q --output {file}")) == 0
    return file


def line_of(name: str, measured: Path) -> list[str]:
    return shlex.split(f"{name} {CHEAP[name]}".replace("OLD", str(measured)))


def test_every_command_has_a_line_here() -> None:
    from distdemo import ops

    assert {name for name in names() if ops.find(name) is None} <= set(CHEAP)


@pytest.mark.parametrize("name", LISTED)
def test_json_is_one_valid_document_and_so_is_the_file(
    name: str, command: Any, measured: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    code, out, _ = command(*line_of(name, measured), "--format", "json", "--output", str(file))
    document = json.loads(out)
    assert (document["schema_version"], document["command"]) == (2, name)
    assert (document["ok"], code) in [(True, 0), (False, 1)]
    assert json.loads(file.read_text()) == document
    jsonschema.validate(document, document_schema(records_of(name)[0], name))


@pytest.mark.parametrize("name", LISTED)
def test_quiet_prints_the_verdict_alone(name: str, command: Any, measured: Path) -> None:
    _, out, err = command(*line_of(name, measured), "--quiet")
    assert 1 <= len(out.splitlines()) <= 4
    assert err == ""


@pytest.mark.parametrize(
    "name", [name for name in LISTED if ".csv" in function_of(name).traits.outputs]
)
def test_csv_is_plain_csv(name: str, command: Any, measured: Path) -> None:
    _, out, _ = command(*line_of(name, measured), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows
    assert all(None not in row and all(row.keys()) for row in rows)


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_help_is_one_line_an_option_and_says_it_in_a_sentence(name: str) -> None:
    for option in built(name).params:
        text = getattr(option, "help", None) or ""
        assert text.endswith("."), f"{option.opts}: {text!r}"
        assert "\n" not in text
        assert len(text) <= 110, f"{option.opts}: {text!r}"


BAD = {
    "": 2,
    "no-such-command": 2,
    "all-reduce --no-such-option": 2,
    "all-gather --root 1": 2,
    "all-reduce stray": 2,
    "all-reduce -n": 2,
    "all-reduce --nnodes 2": 2,
    "all-reduce --launcher torchrun": 2,
    "all-reduce -n 100000000": 2,
    "all-reduce --output /no/such/folder/x.json": 2,
    "all-reduce --output x.pdf": 2,
    "--version": 0,
    "--help": 0,
    "help all-reduce": 0,
}


@pytest.mark.parametrize("line", BAD)
@pytest.mark.usefixtures("no_rank_starts")
def test_what_can_not_be_carried_out_is_refused_in_three_lines(line: str, command: Any) -> None:
    code, out, err = command(*shlex.split(line))
    if not line:
        assert "Usage" in out + err
        return
    assert code == BAD[line]
    if code:
        assert out == ""
        assert len(err.strip().splitlines()) >= 3
        assert "Traceback" not in err
        code, out, err = command(*shlex.split(line), "--format=json")
        document = json.loads(out)
        assert (code, err, document["ok"]) == (2, "", False)
        assert all(document["errors"][0][part] for part in ("what", "hint"))
