from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

from distdemo.launcher.records import Outcome, Returned, Verdict, WorldReport, WorldSpec
from distdemo.view.console import output, show

Draw = Callable[..., str]


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests changes what is drawn."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def draw() -> Draw:
    """Draws on a stream of this encoding, as on a file: text of 80 columns without colours."""

    def drawn(
        make: Callable[[Console], RenderableType], encoding: str = "utf-8", columns: int = 80
    ) -> str:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
        console = output(stream)
        console.width = columns
        show(console, make(console))
        stream.flush()
        text = stream.buffer.getvalue().decode(encoding)
        assert "\x1b" not in text, "a colour code, though this is no terminal"
        assert max(map(len, text.splitlines())) <= columns
        return str(text)

    return drawn


@pytest.fixture
def world() -> Callable[..., WorldReport]:
    """The report of a world with these outcomes; by default all ranks returned."""

    def made(size: int, outcomes: Any = None, verdict: Verdict | None = None) -> WorldReport:
        each: tuple[Outcome, ...] = outcomes or tuple(Returned(rank=r) for r in range(size))
        return WorldReport(
            WorldSpec(size), each, verdict, 0.25, "fork", "torch is imported once, for all ranks"
        )

    return made
