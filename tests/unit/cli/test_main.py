from __future__ import annotations

import pytest

from distdemo.cli.main import _command, _wants_json, _with_dashes


@pytest.mark.parametrize(
    "arguments",
    [
        ["all-reduce", "--format", "json"],
        ["all-reduce", "--format=json", "-n", "3"],
        ["--format", "JSON", "all-reduce"],
    ],
)
def test_json_is_wanted_in_either_form_of_the_flag(arguments: list[str]) -> None:
    assert _wants_json(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["all-reduce"],
        ["all-reduce", "--format", "table"],
        ["all-reduce", "--format"],
        ["all-reduce", "json"],
        ["all-reduce", "--values", "json"],
        ["all-reduce", "--format=jsonl"],
    ],
)
def test_otherwise_it_is_not(arguments: list[str]) -> None:
    assert not _wants_json(arguments)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["all-reduce", "-n", "3"], "all-reduce"),
        (["bench", "links", "-n", "3"], "bench links"),
        (["bench", "scatter"], "bench"),
        (["--version"], ""),
        ([], ""),
    ],
)
def test_the_command_is_the_first_that_is_no_option(arguments: list[str], command: str) -> None:
    assert _command(arguments) == command


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        (["all_reduce", "-n", "3"], ["all-reduce", "-n", "3"]),
        (["all-reduce", "--values", "my_file"], ["all-reduce", "--values", "my_file"]),
        (["explain", "all_reduce"], ["explain", "all_reduce"]),
        (["--no_such_flag"], ["--no_such_flag"]),
        ([], []),
    ],
)
def test_torch_s_spelling_of_a_command_is_turned_into_ours_and_nothing_else(
    arguments: list[str], same: list[str]
) -> None:
    assert _with_dashes(arguments) == same
