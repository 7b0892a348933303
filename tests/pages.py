"""What the tests of the page of a traced run share: runs to show, and what the page says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traces import paper

from distdemo.trace.scheduling import Fault

Page = Any
Open = Callable[..., Page]
RING = paper("all_reduce", "ring", 4, 8, real=True)
SPOILED = paper("all_reduce", "ring", 4, 4, fault=Fault("drop", 2, 1), real=True)


def state(page: Page) -> dict[str, Any]:
    """The round, whether it plays, and the text of the picture and of the table."""
    found: dict[str, Any] = page.evaluate("trace.state()")
    return found


def said(page: Page) -> str:
    """The sentence about the round."""
    return str(page.inner_text("#said"))


def heard(page: Page) -> str:
    """What is said to those who do not see."""
    return str(page.text_content("#heard"))
