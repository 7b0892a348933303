"""The table of ✓, ! and ✗ in docs/failures.md: every command, and the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

from distdemo import ops
from distdemo.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
LISTS = {"explain", "trace list", "warm"}
"""Commands whose reports have no mark."""
HELD_BY = {
    "run": "calls/test_levels.py::test_replicas_are_compared_wholly_or_left_out",
    "python -m distdemo.sanitizer": "calls/test_joined.py::test_a_right_program_gets_its_arguments",
    "pytest": "testing/test_plugin.py::test_warnings_of_the_sanitizer",
    "parity": "parity/test_command.py::test_a_verdict_says_what_was_compared",
    "hello": "demo/test_views.py::test_the_table",
    "operations": "demo/test_corrupted.py::test_a_corrupted_result_is_located",
    "trace": "trace/test_ranks.py::test_a_wrong_result_is_reported_by_rank",
    "train": "train/test_ranks.py::test_broken_averages_are_detected",
    "rpc": "rpc/test_rpc.py::test_wrong_values_and_a_wrong_step_are_reported",
    "learn": "learn/test_programs.py::test_a_step_has_the_documented_answer",
    "mistakes": "learn/test_command.py::test_a_mistake_that_differs_from_its_documentation",
    "shell": "interactive/test_shell.py::"
    "test_a_line_that_is_meant_to_fail_is_a_failure_only_if_it_does_not_fail",
    "check": "check/test_views.py::test_a_case_that_did_not_run_never_counts_as_passed",
    "backends": "check/test_views.py::test_a_backend_that_was_not_tried_does_not_count_as_working",
    "bench": "bench/test_judge.py::test_the_answer_comes_first_and_is_in_the_document",
    "bench links": "bench/test_links.py::test_the_report",
    "bench compare": "bench/test_compare.py::test_a_size_that_only_one_file_has_is_no_agreement",
    "bench fit": "bench/test_fit.py::"
    "test_the_reports_without_predictions_from_a_model_that_does_not_fit",
    "doctor": "doctor/test_view.py::test_table_and_summary",
    "postmortem": "postmortem/test_postmortem.py::test_logs_without_a_recorder_are_no_success",
}
"""A test per row of the table."""


def test_the_table_has_every_command() -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `?([a-z. -]+?)`?(?: with `ranks`)? \|.*\|$", page, re.MULTILINE)
    operations = {op.command for op in ops.REGISTRY.values()}
    assert {*COMMANDS} - operations - LISTS <= {*rows}
    assert {*HELD_BY} <= {*rows}


def test_the_test_of_each_row_exists() -> None:
    for test in HELD_BY.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test
