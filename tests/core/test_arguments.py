"""Check how command lines are understood: names, options in other words, and values."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdemo import schedules, words
from distdemo.cli.app import is_accepted, typer_command
from distdemo.cli.commands import COMMANDS, find_command
from distdemo.cli.types import (
    BadValue,
    file_to_write,
    numbers,
    one_of,
    parse_bytes,
    parse_dtype,
    parse_ranks,
    parse_seconds,
    parse_shape,
    parse_sizes,
    whole,
)

UNDERSTOOD = (
    # commands
    ("all_reduce -n 2", "all-reduce -n 2"),
    ("torch.distributed.all_reduce", "all-reduce"),
    ("MPI_Allreduce", "all-reduce"),
    ("ncclAllReduce", "all-reduce"),
    ("bcast", "broadcast"),
    ("alltoallv", "all-to-all --uneven"),
    ("reduce_scatter_tensor", "reduce-scatter --variant single"),
    ("isend -n 2", "p2p --nonblocking -n 2"),
    ("monitored-barrier", "barrier --monitored"),
    ("broadcast_object_list", "broadcast --objects"),
    ("bench links -n 3", "'bench links' -n 3"),
    ("Trace LIST broadcast", "'trace list' broadcast"),
    ("HELLO", "hello"),
    ("post-mortem x", "postmortem x"),
    ("ops", "explain"),
    ("_all_gather_base -n 2", "all-gather --variant single -n 2"),
    ("ring", "p2p --pattern ring"),
    # options
    ("run --nproc-per-node 2 x.py", "run --world-size 2 x.py"),
    ("run --standalone --nproc_per_node=2 x.py", "run --launcher=local --world-size=2 x.py"),
    ("run --sanitize x.py", "run --sanitize=calls x.py"),
    ("run --sanitize=buffers x.py", "run --sanitize=buffers x.py"),
    ("run --sanitize buffers x.py", "run --sanitize buffers x.py"),
    ("run --check-replicas 5 x.py", "run --check-replicas 5 x.py"),
    ("run --check-replicas x.py", "run --check-replicas=1 x.py"),
    ("run x.py -- --json --op max", "run x.py -- -- --json --op max"),
    ("p2p --non_blocking", "p2p --nonblocking"),
    ("hello -np 4", "hello --world-size 4"),
    ("all-reduce --numel 8", "all-reduce --shape 8"),
    ("scatter --size=2,3", "scatter --shape=2,3"),
    ("all-gather --size 2", "all-gather --size 2"),
    ("hello --ntasks=4", "hello --world-size=4"),
    ("all-reduce --op MPI_SUM", "all-reduce --reduce-op MPI_SUM"),
    ("check --op max", "check --op max"),
    ("all-reduce --json", "all-reduce --format=json"),
    ("all-reduce -qn 2", "all-reduce -qn 2"),
    ("all-reduce --values -1", "all-reduce --values -1"),
)


def test_other_names_are_understood() -> None:
    for typed, understood in UNDERSTOOD:
        name, flags, rest = find_command(shlex.split(typed))
        normalized = typer_command(name).normalized([*flags, *rest])
        assert [name, *normalized] == shlex.split(understood)


def test_the_parser_accepts_the_command_line_of_every_hint() -> None:
    for typed in [*words.HINTS, "train.py", "osu_allreduce", "all_reduce_perf"]:
        hint = words.hint(typed)
        if hint is None:
            assert typed == ".py"
            continue
        program, *arguments = shlex.split(hint.instead)
        if program == "distdemo" and arguments:
            assert find_command(arguments)[0] in COMMANDS, hint
            assert is_accepted(arguments), hint


def test_every_topic_is_another_name_and_the_parser_accepts_its_line() -> None:
    for name, topic in words.TOPICS.items():
        assert find_command([name])[0] in COMMANDS, topic
        assert is_accepted(shlex.split(topic.instead)[1:]), topic


def test_every_other_name_of_an_algorithm_means_one() -> None:
    names = {algorithm.name for algorithm in schedules.REGISTRY}
    for typed, name in words.meanings("algorithm").items():
        assert name in names, typed
        assert schedules.find_anywhere(typed) is not None, typed


def test_a_hint_is_no_name_of_a_command_or_an_operation() -> None:
    for name in words.HINTS:
        assert name == ".py" or find_command([name])[0] not in COMMANDS, name


def test_every_name_of_the_table_means_an_option() -> None:
    flags = {
        flag for name in COMMANDS for option in typer_command(name).params for flag in option.opts
    }
    for means in words.meanings("option", "similar").values():
        assert means.partition("=")[0] in flags


@pytest.mark.processes
def test_every_default_is_in_help_and_no_type_of_python(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("", *COMMANDS):
        _, out, _ = command(*name.split(), "--help")
        assert not re.search(r"<\w+>|\\\[", out), name
        text = " ".join(re.sub("[│╭╮╰╯─]", " ", out).split())
        if "Number of ranks." in text:
            assert re.search(r"Number of ranks\. \[default: \d", text), name


@pytest.mark.processes
def test_bash_completes_with_the_script_that_is_shown() -> None:
    program = Path(sys.executable).with_name("distdemo")
    offered = {
        "p": "p2p parity postmortem",
        "allreduce --reduce": "--reduce-op",
        "bench links --siz": "--sizes",
        "all_reduce --backend gl": "gloo",
    }
    lines = [f'eval "$({program} --show-completion)"']
    for typed in offered:
        lines += [
            f"COMP_WORDS=(distdemo {typed}) COMP_CWORD={len(typed.split())}",
            f"_distdemo_completion {program}",
            'echo "${COMPREPLY[@]}"',
        ]
    bash = ["bash", "--norc", "-c", "\n".join(lines)]
    done = subprocess.run(bash, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*offered.values()]


# ------------------------------------------------------------------------------------------ values

GOOD: list[tuple[Callable[[Any], object], str, object]] = [
    (parse_bytes, "64K", 65536),
    (parse_bytes, "1.5 MiB", 3 << 19),
    (parse_sizes, "1K, 16M", (1024, 16 << 20)),
    (parse_seconds, "0.5s", 0.5),
    (parse_ranks, "0,5-7", (0, 5, 6, 7)),
    (parse_ranks, "all", ()),
    (parse_shape, "2,3", (2, 3)),
    (parse_shape, "scalar", ()),
    (parse_dtype, "torch.bfloat16", "bfloat16"),
    (parse_dtype, "F32", "float32"),
    (one_of(("cpu", "cuda")), "CUDA", "cuda"),
    (whole(0), "1000", 1000),
]
BAD: list[tuple[Callable[[Any], object], str, str]] = [
    (parse_bytes, "2Q", "2Q: not a number of bytes."),
    (parse_bytes, "9" * 30, f"{'9' * 30}: not a number of bytes."),
    (parse_sizes, "0", "0: there is no message of 0 bytes."),
    (parse_bytes, "", "'': not a number of bytes."),
    (parse_seconds, "0", "0: not a positive number of seconds."),
    (parse_ranks, "3-1", "3-1: not a list of ranks."),
    (parse_ranks, "1,²", "1,²: not a list of ranks."),
    (numbers("lengths", "2,3", 1), "2,0", "2,0: these are not lengths of at least 1."),
    (one_of(("cpu", "cuda")), "cdua", "cdua: there is no such choice."),
    (whole(1), "2.5", "2.5: not a whole number of at least 1."),
    (whole(1), "0", "0: not a whole number of at least 1."),
    (whole(1, 9), "10", "10: not a whole number from 1 to 9."),
    (file_to_write(".json"), "x.pdf", "x.pdf: unknown suffix."),
    (file_to_write(), "/no/such/x", "/no/such/x: it can't be written."),
]


def test_values_are_parsed_or_refused() -> None:
    for parse, text, value in GOOD:
        assert parse(text) == value, text
        assert parse(value) == value, "defaults pass through the parser, too"
    for parse, text, what in BAD:
        with pytest.raises(BadValue) as caught:
            parse(text)
        assert caught.value.usage_error().what.strip() == what
