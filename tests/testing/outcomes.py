"""Outcomes of the samples, which every run of them must have."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

SAMPLES = Path(__file__).parent / "samples"
FILES = ("test_ways.py", "test_faults.py")
OUTCOMES = {
    "skipped": {"test_skipped_by_all", "test_skipped_by_its_mark", "test_backend_that_is_not_here"},
    "expected": {
        "test_expected_on_all",
        "test_expected_on_one",
        "test_expected_to_hang",
        "test_strictly_expected_on_one",
    },
    "failed": {
        "test_asserts_on_two",
        "test_raises_on_one",
        "test_leaves_the_others_alone",
        "test_hangs",
        "test_set_up",
        "test_clean_up",
        "test_backend_that_nobody_knows",
        "test_is_killed",
        "test_passes_unexpectedly",
        "test_unexpected_error_on_one",
        "test_subtests_fail_on_one",
        "test_example_fails_on_one",
    },
    "error": {"test_rank_without_ranks"},
}
"""Tests by outcome; all other samples pass."""


def copy_samples(folder: Path) -> None:
    """Copy the samples into a folder, under names that pytest collects."""
    for name in FILES:
        shutil.copy(SAMPLES / name.removeprefix("test_"), folder / name)


def outcomes(file: Path) -> dict[str, set[str]]:
    """Return the tests with each outcome, from a JUnit report."""
    found: dict[str, set[str]] = {"passed": set()}
    for case in ET.parse(file).getroot().iter("testcase"):  # noqa: S314 - our own file
        what = "passed"
        for child in case:
            if child.tag == "skipped":
                what = "expected" if child.get("type") == "pytest.xfail" else "skipped"
            elif child.tag in ("failure", "error"):
                what = child.tag.replace("failure", "failed")
        found.setdefault(what, set()).add(re.sub(r"\[.*", "", case.get("name", "")))
    return found
