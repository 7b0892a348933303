"""What people type becomes what the parser knows."""

from __future__ import annotations

import shlex

from distdemo.cli.app import command_names
from distdemo.cli.arguments import last_value, normalize_argv

ARRANGED = (
    ("all-reduce -n 2", "all-reduce -n 2"),
    ("all_reduce -n 2", "all-reduce -n 2"),
    ("allreduce", "all-reduce"),
    ("isend -n 2", "p2p --nonblocking -n 2"),
    ("send", "p2p"),
    ("--format json check --op barrier", "check --format json --op barrier"),
    ("help", "--help"),
    ("help scatter", "scatter --help"),
    ("all-reduce --json", "all-reduce --format json"),
    ("all-reduce --op max", "all-reduce --reduce-op max"),
    ("check --op max", "check --op max"),
    ("all-reduce --world_size=2", "all-reduce --world-size=2"),
    ("run x.py --nproc-per-node 2", "run x.py --world-size 2"),
    ("run x.py --nproc_per_node=2", "run x.py --world-size=2"),
    ("run x.py -- --json --op max", "run x.py -- -- --json --op max"),
    ("bench links -n 3", "'bench links' -n 3"),
    ("bench -n 3 links", "'bench links' -n 3"),
    ("bench all-reduce links", "bench all-reduce links"),
    ("bench -- links", "bench -- links"),
    ("run bench links", "run bench links"),
    ("all-gather --uneven 3,0,7", "all-gather --uneven --sizes 3,0,7"),
    ("all-gather --uneven -n 3", "all-gather --uneven -n 3"),
    ("all-reduce --values my_file", "all-reduce --values my_file"),
    ("chekc --op x", "chekc --op x"),
    ("--version", "--version"),
    ("", ""),
)
LAST = (
    ("all-reduce --format json", "json"),
    ("all-reduce --format=JSON -n 3", "json"),
    ("all-reduce --format json --format table", "table"),
    ("all-reduce --format", ""),
    ("run x.py -- --format json", ""),
)


def test_arrange() -> None:
    for typed, arranged in ARRANGED:
        assert normalize_argv(shlex.split(typed), command_names()) == shlex.split(arranged), typed


def test_last_value() -> None:
    for typed, value in LAST:
        assert last_value(typed.split(), "--format") == value, typed
