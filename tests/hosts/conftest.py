from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hosts.network import Network, missing, network
from processes import Start

Hosts = Callable[[int], Network]


@cache
def why_not() -> str:
    """Why no hosts can be made here, found out once; empty if they can."""
    return missing()


@pytest.fixture
def hosts(start: Start, tmp_path: Path) -> Iterator[Hosts]:
    """Makes hosts, gone at the end of the test; skips it where none can be made."""
    if why_not():
        pytest.skip(why_not())
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(network(count, start, tmp_path))
