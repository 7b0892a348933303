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

from distdemo import words
from distdemo.cli.app import command_names, normalize_argv, typer_command
from distdemo.cli.arguments import Syntax
from distdemo.cli.types import (
    BadValue,
    file_to_write,
    one_of,
    parse_bytes,
    parse_dtype,
    parse_ranks,
    parse_seconds,
    parse_shape,
    parse_share,
    parse_sizes,
    ranks_to_show,
    whole,
)

UNDERSTOOD = (
    # commands
    ("all_reduce -n 2", "all-reduce -n 2"),
    ("torch.distributed.all_reduce", "all-reduce"),
    ("MPI_Allreduce", "all-reduce"),
    ("ncclAllReduce", "all-reduce"),
    ("bcast", "broadcast"),
    ("alltoallv", "all-to-all --splits=auto"),
    ("reduce_scatter_tensor", "reduce-scatter --variant single"),
    ("list", "ops"),
    ("all_reduce_perf -b 8 -e 1M -f 2", "bench all-reduce -b 8 -e 1M -f 2"),
    ("isend -n 2", "p2p --nonblocking -n 2"),
    ("sendrecv", "p2p"),
    ("monitored-barrier", "barrier --monitored"),
    ("gather_single", "gather --variant single"),
    ("broadcast_object_list", "broadcast --objects"),
    ("version", "--version"),
    ("completion zsh", "--show-completion zsh"),
    ("bench links -n 3", "'bench links' -n 3"),
    ("bench -- links", "bench -- links"),
    ("help", "--help"),
    ("help scatter", "scatter --help"),
    ("--format json check --op barrier", "check --format json --op barrier"),
    ("chekc --op all-reduce", "chekc --op all-reduce"),
    ("", ""),
    # run, and the programs that it replaces
    ("x.py", "run x.py"),
    ("torchrun --nproc-per-node 2 x.py:f", "run --world-size 2 x.py:f"),
    ("run python x.py", "run x.py"),
    ("run mpiexec -np 2 python3 -m package", "run --world-size 2 -m package"),
    ("run x.py --nproc-per-node 2", "run x.py --world-size 2"),
    ("run x.py --gpus 2 4 --cpu", "run x.py --gpus 2 4 --cpu"),
    ("run --sanitize x.py", "run --sanitize=calls x.py"),
    ("run --sanitize buffers x.py", "run --sanitize buffers x.py"),
    ("run x.py -- --json --op max", "run x.py -- -- --json --op max"),
    # options
    ("all-reduce --async-op", "all-reduce --async"),
    ("barrier --non-blocking", "barrier --async"),
    ("p2p --non_blocking", "p2p --nonblocking"),
    ("hello -np 4", "hello --world-size 4"),
    ("hello --world 4", "hello --world-size 4"),
    ("doctor --world", "doctor --world"),
    ("hello --ntasks=4", "hello --world-size=4"),
    ("bench --ngpus 2", "bench --device cuda --world-size 2"),
    ("bench --minbytes 8 --maxbytes 1K", "bench --min-bytes 8 --max-bytes 1K"),
    ("all-reduce --count 8", "all-reduce --shape 8"),
    ("all-reduce --op MPI_SUM", "all-reduce --reduce-op MPI_SUM"),
    ("check --op max", "check --op max"),
    ("broadcast --source 1", "broadcast --src 1"),
    ("all-reduce --json", "all-reduce --format json"),
    ("all-reduce -qn 2", "all-reduce -qn 2"),
    ("all-reduce --values -1", "all-reduce --values -1"),
    # names of choices
    ("train --ddp", "train --mode ddp"),
    ("train ddp", "train --mode ddp"),
    ("p2p ring", "p2p --pattern ring"),
    ("trace allreduce ring", "trace allreduce --algorithm ring"),
    ("all-reduce --nccl", "all-reduce --backend nccl"),
    ("all-reduce --gpu", "all-reduce --device cuda"),
    ("all-reduce --mpi", "all-reduce --mpi"),
    ("check allreduce bcast", "check --op all-reduce --op broadcast"),
    # numbers
    ("hello 4", "hello --world-size 4"),
    ("all-reduce 8 -n 4", "all-reduce --world-size 8 -n 4"),
    ("all-reduce -n 4 8", "all-reduce -n 4 8"),
    ("p2p ring 4", "p2p --pattern ring --world-size 4"),
    ("explain scatter 3", "explain scatter --world-size 3"),
    ("bench allreduce 1M", "bench allreduce --sizes 1M"),
    ("bench allreduce 4", "bench allreduce 4"),
    ("all-to-all --splits -n 3", "all-to-all --splits=auto -n 3"),
)


@pytest.mark.parametrize(("typed", "understood"), UNDERSTOOD)
def test_names_that_can_mean_one_thing_are_understood(typed: str, understood: str) -> None:
    argv = normalize_argv(shlex.split(typed))
    assert argv == shlex.split(understood)


def test_a_file_with_the_name_of_a_launcher_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").touch()
    words = ["run", "python"]
    assert normalize_argv(words) == words


def test_every_name_of_the_tables_means_something() -> None:
    names = command_names()
    syntaxes = [Syntax(typer_command(name)) for name in names]
    for means in words.COMMANDS.values():
        assert means.startswith("--") or means.split()[0] in names
    for typed, means in words.OPTIONS.items():
        assert any(syntax.meaning(typed) == means.split() for syntax in syntaxes), typed


@pytest.mark.processes
def test_every_default_is_in_help_and_no_type_of_python(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in ("60", "200"):
        monkeypatch.setenv("COLUMNS", width)
        for name in ("", *command_names()):
            _, out, _ = command(*name.split(), "--help")
            assert not re.search(r"<\w+>|\\\[", out), (name, width)
            text = " ".join(re.sub("[│╭╮╰╯─]", " ", out).split())
            if width == "200" and "Number of ranks." in text:
                assert re.search(r"Number of ranks\. \[default: \d", text), name


@pytest.mark.processes
def test_bash_completes_with_the_script_that_is_shown() -> None:
    program = Path(sys.executable).with_name("distdemo")
    lines = f"""
        eval "$({program} --show-completion bash)"
        complete -p distdemo
        COMP_WORDS=(distdemo allreduce --reduce) COMP_CWORD=2
        _distdemo_completion {program}
        echo "${{COMPREPLY[@]}}"
    """
    bash = ["bash", "--norc", "-c", lines]
    done = subprocess.run(bash, capture_output=True, text=True, check=True)
    completes = "complete -o default -F _distdemo_completion distdemo"
    assert done.stdout.splitlines() == [completes, "--reduce-op"]


# ------------------------------------------------------------------------------------------ values

GOOD: list[tuple[Callable[[Any], object], str, object]] = [
    (parse_bytes, "64K", 65536),
    (parse_bytes, "1.5 MiB", 3 << 19),
    (parse_bytes, "2gb", 2 << 30),
    (parse_sizes, "1K, 16M", (1024, 16 << 20)),
    (parse_seconds, "0.5s", 0.5),
    (parse_share, "5%", 0.05),
    (parse_share, "0.05", 0.05),
    (parse_ranks, "0,5-7", (0, 5, 6, 7)),
    (parse_ranks, "all", ()),
    (parse_shape, "4", (4,)),
    (parse_shape, "(2x3,)", (2, 3)),
    (parse_shape, "scalar", ()),
    (parse_dtype, "torch.bfloat16", "bfloat16"),
    (parse_dtype, "F32", "float32"),
    (one_of(("cpu", "cuda")), "CUDA", "cuda"),
    (whole(0), "1_000", 1000),
]
BAD: list[tuple[Callable[[Any], object], str, str]] = [
    (parse_bytes, "2Q", "2Q: not a number of bytes."),
    (parse_bytes, "9" * 30, f"{'9' * 30}: not a number of bytes."),
    (parse_bytes, "", "'': not a number of bytes."),
    (parse_seconds, "0", "0: not a positive number of seconds."),
    (parse_share, "1", "1: not a share between 0 and 1."),
    (parse_ranks, "3-1", "3-1: 3-1 runs backwards."),
    (parse_ranks, "1,²", "1,²: not a list of ranks."),
    (parse_shape, "2,0", "2,0: not a shape."),
    (one_of(("cpu", "cuda")), "cdua", "cdua: there is no such choice."),
    (whole(1), "2.5", "2.5: not a whole number."),
    (whole(1), "0", "0: the minimum is 1."),
    (whole(1, 9), "10", "10: the maximum is 9."),
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


def test_all_ranks_are_those_of_the_world() -> None:
    assert ranks_to_show(parse_ranks("all"), 3) == frozenset({0, 1, 2})
    assert ranks_to_show(None, 3) is None  # the view chooses
