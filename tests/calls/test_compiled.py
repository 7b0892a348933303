"""A program compiles as it would without the sanitizer, which sees the calls in its graphs."""

from __future__ import annotations

import faulthandler
import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from calls import compiled
from forked import in_a_child
from processes import Start

from distdemo.api import WorldError, launch

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("compiler")]


def document_of(start: Start, *options: str) -> dict[str, Any]:
    """Run the right programs and return the document."""
    line = ["run", f"{compiled.__file__}:measured", "-n", str(compiled.SIZE), "--format", "json"]
    with start("distdemo", *line, *options) as run:
        code, out, errors = run.finish()
    assert code == 0, (out, errors)
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.timeout(300)
def test_programs_compile_as_without_the_sanitizer(start: Start) -> None:
    plain = document_of(start, "--no-sanitize")
    noted = document_of(start, "--strict")  # or not all calls were compared
    for before, after in zip(plain["ranks"], noted["ranks"], strict=True):
        assert after["returned"] == before["returned"]
    made = " ".join(f"{call['did']} {call['source_line']}" for call in noted["calls"])
    for function in ("average", "scattered", "total", "met", "train"):
        assert f" in {function}" in made


def test_mistakes_in_compiled_functions_are_found() -> None:
    reports = in_a_child(reports_of)
    for mistake, texts in compiled.MISTAKES.items():
        for text in texts:
            assert text in reports[mistake.__name__], reports


def reports_of() -> dict[str, str]:
    """Return the reports on the mistakes."""
    warnings.simplefilter("ignore")  # torch's own
    torch.compile(torch.neg, backend="aot_eager")(compiled.X)  # imports once what ranks need
    return {mistake.__name__: report_of(mistake) for mistake in compiled.MISTAKES}


def report_of(mistake: Callable[[int], None]) -> str:
    """Return the report on a mistake."""
    faulthandler.disable()  # pytest enables it, and a backend that aborts would print its stack
    with pytest.raises(WorldError) as caught:
        launch(mistake, (), compiled.SIZE, timeout=60, start_method="fork", sanitize=True)
    return str(caught.value)
