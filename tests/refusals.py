"""Command lines that are refused before any rank starts: how they are shown."""

from __future__ import annotations

import json
import shlex
from typing import Any


def refused(command: Any, line: str) -> str:
    """What standard error says of this command line, with single blanks: three lines or more."""
    code, out, err = command(*shlex.split(line))
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) >= 3, err
    assert "Traceback" not in err
    return " ".join(err.split())


def refused_as_document(command: Any, line: str) -> Any:
    """The document of this command line, with one error in three parts, which is all there is."""
    code, out, err = command(*shlex.split(line), "--format", "json")
    assert (code, err) == (2, "")
    document = json.loads(out)
    assert (document["schema_version"], document["ok"]) == (1, False)
    (error,) = document["errors"]
    assert all(error[part] for part in ("what", "why", "hint"))
    return document
