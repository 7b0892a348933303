"""A simulated healthy machine, to which each test adds its own fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdemo.doctor.records import Finding
from distdemo.doctor.system import (
    Answer,
    DiskSpace,
    Interface,
    Lookup,
    System,
    TorchFacts,
)
from distdemo.launcher.limits import Limit

MakeSystem = Callable[..., System]

LO = Interface("lo", ("127.0.0.1", "::1"), loopback=True)
ETH = Interface("eth0", ("10.0.0.1", "fd00::1"))
NAMES = {"node": ("10.0.0.1",), "other": ("10.0.0.2",), "localhost": ("127.0.0.1",)}


@pytest.fixture
def make_system(tmp_path: Path) -> MakeSystem:
    """Return a function that builds a system with the given files, variables and answers."""

    numbers = itertools.count()

    def make(
        files: dict[str, str] | None = None,
        environ: dict[str, str] | None = None,
        **more: Any,
    ) -> System:
        root = tmp_path / f"machine-{next(numbers)}"
        root.mkdir()
        for path, text in (files or {}).items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        healthy: dict[str, Any] = {
            "hostname": "node",
            "root": root,
            "python": root / "bin" / "python",
            "resolve": resolve,
            "interfaces": lambda: (LO, ETH),
            "loopback": lambda: ("", ""),
            "bind": lambda port: "",
            "disk_space": lambda path: DiskSpace(1 << 34, 1 << 33),
            "writable": lambda path: True,
            "rlimit": lambda name: (65536, 65536),
            "limits": lambda method: (Limit(1000, "Memory."), Limit(30000, "Processes.")),
            "cores": lambda: (8, 8),
            "run": lambda command, seconds: Answer(None, error="no such program"),
            "installed": lambda name: False,
            "torch": lambda: TorchFacts("2.13.0"),
        }
        return System(environ or {}, **{**healthy, **more})

    return make


def resolve(name: str) -> Lookup:
    """Resolve three names and any address."""
    if name in NAMES:
        return Lookup(NAMES[name], 0.001)
    if name.replace(".", "").isdigit():
        return Lookup((name,), 0.0)
    return Lookup(seconds=0.001, error="Name or service not known")


@pytest.fixture
def assert_finding() -> Callable[[Any, str, str], None]:
    """Assert a finding's level and words, and an explanation and fix for a problem."""

    def check(found: Any, level: str, words: str = "") -> None:
        assert isinstance(found, Finding)
        assert found.level == level, found
        assert words in found.what
        bad = level in ("warning", "broken")
        assert bool(found.why) is bad, found
        assert bool(found.hint) or not bad
        assert not found.what.endswith(".")
        if bad:
            assert found.why.endswith(".")

    return check
