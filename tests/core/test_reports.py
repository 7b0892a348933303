"""Guards over the hand-built records of the golden files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import pytest
from check.test_views import FOUND, MIXED
from doctor.test_view import REPORT

ROWS = {
    "check": MIXED.cases,
    "backends": FOUND.backends,
    "doctor": REPORT.findings,
}
"""The rows of the golden files. A field that none of them sets could be lost unnoticed."""


@pytest.mark.parametrize("command", ROWS)
def test_every_field_of_a_row_has_a_value_that_is_not_its_default(command: str) -> None:
    rows: Sequence[Any] = ROWS[command]
    unset = {
        field.name
        for field in fields(rows[0])
        for default in [field.default if field.default_factory is MISSING else {}]
        if all(getattr(row, field.name) == default for row in rows)
    }
    assert unset == set(), f"set it in the records of {command}, and look at the golden file"
