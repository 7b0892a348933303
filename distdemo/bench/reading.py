"""A JSON file of ``bench``, read and looked through: nothing in it is taken on trust."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from distdemo.bench.reading_setups import blocks, gauges, limits, starters
from distdemo.bench.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey
from distdemo.bench.values import LONGEST, is_mapping, listed, text, texts, times_of, whole, word
from distdemo.errors import UsageError

SCHEMA_VERSION = 1
"""Of the documents that are understood; a later one may mean other things by the same names."""
LARGEST = 256 << 20  # bytes of a file: its numbers take ten times as much memory
MOST_SERIES = 1000
MOST_ROWS = 1000  # of a series
MAKE_ONE = "Make one: distdemo bench all-reduce --output run.json."


def read(path: Path) -> Recording:
    """What the file says.

    Raises:
        UsageError: it can't be read, or is nothing that can be compared.
    """
    document = _document(path)
    notes: list[str] = []
    series = tuple(_series(path, document, notes))
    if not series:
        raise _unfit(
            path,
            "it has no times",
            _said(document) or "No size of any series was measured.",
            "Measure again, and look at what that run says.",
        )
    ok, setups = document.get("ok") is True, document.get("setups")
    return Recording(
        path=_shown(path),
        series=series,
        environment=texts(document.get("environment")) | starters(setups),
        versions=texts(document.get("versions")),
        limits=tuple(limits(setups)),
        gauges=tuple(gauges(setups)),
        ok=ok,
        blocks=tuple(blocks(series, setups)),
        notes=(*_end(path, document, ok=ok), *notes),
    )


# ---------------------------------------------------------------------------------------- the file


def _document(path: Path) -> dict[str, Any]:
    """The document in the file, if it is one of ``bench``."""
    try:
        found = json.loads(_content(path))
    except (ValueError, RecursionError) as error:
        why = str(error) or "It is nested too deeply."
        raise _unfit(path, "that is no JSON", f"{why[:LONGEST].rstrip('.')}.", MAKE_ONE) from error
    if not isinstance(found, dict) or not {"schema_version", "command"} <= found.keys():
        raise _unfit(
            path, "that is no document of distdemo's", "It names no command and version.", MAKE_ONE
        )
    command = text(found["command"])
    if command != "bench":
        raise _unfit(
            path, f"that is a document of {command!r}", "It has no times of a benchmark.", MAKE_ONE
        )
    version = found["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise _unfit(
            path,
            f"it is written in version {text(version)} of the format",
            f"This release of distdemo knows version {SCHEMA_VERSION}.",
            "Read it with the release that wrote it, or a later one.",
        )
    return found


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():  # opening a pipe would wait for whoever writes to it
            kind = "That is a folder." if path.is_dir() else "That is no file."
            why = kind if path.exists() else "There is no such file."
            raise _unfit(path, "it can't be read", why, MAKE_ONE)
        if path.stat().st_size > LARGEST:
            raise _unfit(
                path,
                "it is too large",
                f"It has {path.stat().st_size / 1e6:,.0f} MB, {LARGEST / 1e6:,.0f} are the most.",
                "Measure with fewer --iters.",
            )
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        why = getattr(error, "strerror", None) or str(error)
        raise _unfit(path, "it can't be read", f"{why}.", MAKE_ONE) from error


def _unfit(path: Path, what: str, why: str, hint: str) -> UsageError:
    return UsageError(f"{_shown(path)}: {what}.", why, hint)


def _shown(path: Path) -> str:
    return text(str(path))


def _end(path: Path, document: Mapping[str, Any], *, ok: bool) -> list[str]:
    """That the run did not go well, if so."""
    if document.get("interrupted") is True:
        return [f"{_shown(path)} was interrupted: it has what was measured by then."]
    if ok:
        return []
    said = _said(document)
    return [f"{_shown(path)} is of a run that failed{f': {said}' if said else '.'}"]


def _said(document: Mapping[str, Any]) -> str:
    """The first error that the run told."""
    errors = listed(document.get("errors"))
    first = errors[0] if errors and isinstance(errors[0], dict) else {}
    return text(first.get("what", ""))


# --------------------------------------------------------------------------------------- the times


def _series(path: Path, document: Mapping[str, Any], notes: list[str]) -> list[RecordedSeries]:
    """Those with rows, each once."""
    found: dict[SeriesKey, RecordedSeries] = {}
    entries = listed(document.get("series"))
    for entry in islice(filter(is_mapping, entries), MOST_SERIES):
        series = _one_series(entry)
        if series is None or not series.rows:
            continue
        if series.key in found:
            notes.append(f"{_shown(path)} has {series.key.command} twice: the first one counts.")
        found.setdefault(series.key, series)
    if len(entries) > MOST_SERIES:
        notes.append(f"{_shown(path)} has more than {MOST_SERIES} series: the others are left out.")
    return list(found.values())


def _one_series(entry: Mapping[str, Any]) -> RecordedSeries | None:
    """None where it does not say what was measured."""
    n, world = whole(entry.get("group_size")), whole(entry.get("world_size"))
    command, backend = entry.get("command"), entry.get("backend")
    if n is None or not isinstance(command, str) or not isinstance(backend, str):
        return None
    pair = entry.get("pattern") not in ("ring", "exchange")
    key = SeriesKey(
        backend=text(backend),
        command=text(command),
        form=text(entry.get("form") or ""),
        in_place=entry.get("in_place") is True,
        asynchronous=entry.get("async") is True,
        n=n,
        dtype=text(entry.get("dtype") or ""),
        reduce_op=word(entry.get("reduce_op")),
        root=whole(entry.get("root"), least=0),
        pattern=word(entry.get("pattern")),
        src=whole(entry.get("src"), least=0) if pair else None,
        dst=whole(entry.get("dst"), least=0) if pair else None,
    )
    op = text(entry.get("op") or command.replace("-", "_"))
    device = text(entry.get("device") or "")
    groups = whole(entry.get("groups")) or 1
    return RecordedSeries(key, op, device, world or n, groups, _rows(entry.get("rows")))


def _rows(entries: object) -> tuple[RecordedRow, ...]:
    """The rows with times, the smallest size first; of two of one size the first."""
    found: dict[int, RecordedRow] = {}
    for entry in islice(filter(is_mapping, listed(entries)), MOST_ROWS):
        size = whole(entry.get("bytes"), least=0)
        times = times_of(entry.get("times_seconds"))
        if size is not None and any(times):
            found.setdefault(size, RecordedRow(size, times))
    return tuple(found[size] for size in sorted(found))
