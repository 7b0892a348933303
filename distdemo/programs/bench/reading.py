"""A JSON file of ``bench``, read and looked through: nothing in it is taken on trust."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from distdemo.errors import UsageError
from distdemo.recorded import (
    RecordedLimit,
    RecordedRow,
    RecordedSeries,
    Recording,
    SeriesKey,
)

SCHEMA_VERSION = 1
"""Of the documents that are understood; a later one may mean other things by the same names."""
LARGEST = 256 << 20  # bytes of a file: its numbers take ten times as much memory
MOST_SERIES = 1000
MOST_ROWS = 1000  # of a series
MOST_LAUNCHES = 200  # of a row: more are put together, neighbours with neighbours
LONGEST = 200  # characters of a text
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
        environment=_texts(document.get("environment")) | _starters(setups),
        versions=_texts(document.get("versions")),
        limits=tuple(_limits(setups)),
        ok=ok,
        blocks=tuple(_blocks(series, setups)),
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
    command = _text(found["command"])
    if command != "bench":
        raise _unfit(
            path, f"that is a document of {command!r}", "It has no times of a benchmark.", MAKE_ONE
        )
    version = found["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise _unfit(
            path,
            f"it is written in version {_text(version)} of the format",
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
    return _text(str(path))


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
    errors = _list(document.get("errors"))
    first = errors[0] if errors and isinstance(errors[0], dict) else {}
    return _text(first.get("what", ""))


# --------------------------------------------------------------------------------------- the times


def _series(path: Path, document: Mapping[str, Any], notes: list[str]) -> list[RecordedSeries]:
    """Those with rows, each once."""
    found: dict[SeriesKey, RecordedSeries] = {}
    entries = _list(document.get("series"))
    for entry in islice(filter(_is_mapping, entries), MOST_SERIES):
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
    n, world = _count(entry.get("group_size")), _count(entry.get("world_size"))
    command, backend = entry.get("command"), entry.get("backend")
    if n is None or not isinstance(command, str) or not isinstance(backend, str):
        return None
    pair = entry.get("pattern") not in ("ring", "exchange")
    key = SeriesKey(
        backend=_text(backend),
        command=_text(command),
        form=_text(entry.get("form") or ""),
        in_place=entry.get("in_place") is True,
        asynchronous=entry.get("async") is True,
        n=n,
        dtype=_text(entry.get("dtype") or ""),
        reduce_op=_word(entry.get("reduce_op")),
        root=_count(entry.get("root"), least=0),
        pattern=_word(entry.get("pattern")),
        src=_count(entry.get("src"), least=0) if pair else None,
        dst=_count(entry.get("dst"), least=0) if pair else None,
    )
    op = _text(entry.get("op") or command.replace("-", "_"))
    device = _text(entry.get("device") or "")
    groups = _count(entry.get("groups")) or 1
    return RecordedSeries(key, op, device, world or n, groups, _rows(entry.get("rows")))


def _rows(entries: object) -> tuple[RecordedRow, ...]:
    """The rows with times, the smallest size first; of two of one size the first."""
    found: dict[int, RecordedRow] = {}
    for entry in islice(filter(_is_mapping, _list(entries)), MOST_ROWS):
        size = _count(entry.get("bytes"), least=0)
        times = _times(entry.get("times_seconds"))
        if size is not None and any(times):
            found.setdefault(size, RecordedRow(size, times))
    return tuple(found[size] for size in sorted(found))


def _times(launches: object) -> tuple[tuple[float, ...], ...]:
    """A row a launch; what is no time is dropped."""
    rows = [
        tuple(time for each in _list(launch) if (time := _time(each)) is not None)
        for launch in _list(launches)
    ]
    each = math.ceil(len(rows) / MOST_LAUNCHES) or 1
    if each == 1:
        return tuple(rows)
    return tuple(
        tuple(time for row in rows[first : first + each] for time in row)
        for first in range(0, len(rows), each)
    )


def _limits(setups: object) -> list[RecordedLimit]:
    """What the machine did by itself, of every backend's world."""
    found = []
    for backend, setup in setups.items() if isinstance(setups, dict) else ():
        limits = _list(setup.get("limits")) if isinstance(setup, dict) else []
        for entry in islice(filter(_is_mapping, limits), MOST_ROWS):
            bandwidth = _time(entry.get("bandwidth_bytes_per_second"))
            if bandwidth is not None:
                ranks = len(_list(entry.get("ranks"))) or 1
                kind, at_once = _text(entry.get("kind") or ""), entry.get("at_once") is True
                found.append(RecordedLimit(_text(backend), kind, ranks, at_once, bandwidth))
    return found


def _blocks(series: Sequence[RecordedSeries], setups: object) -> Iterator[str]:
    """The backends whose ranks came to life less often than there are rows of times.

    A launch verifies, and each row of times has one of its own; but where a world can begin only
    once, its blocks stand for launches.
    """
    for backend, setup in setups.items() if isinstance(setups, dict) else ():
        launches = _count(setup.get("launches")) if isinstance(setup, dict) else None
        mine = [each for each in series if each.key.backend == _text(backend)]
        most = max((len(row.times) for each in mine for row in each.rows), default=0)
        if launches is not None and most > 1 and most >= launches:
            yield _text(backend)


def _starters(setups: object) -> dict[str, str]:
    """What started the ranks, and how, of every backend's world."""
    found = {}
    for backend, setup in setups.items() if isinstance(setups, dict) else ():
        if isinstance(setup, dict):
            how = (_text(setup.get(name) or "") for name in ("engine", "start_method"))
            found[f"start of {_text(backend)} ranks"] = " ".join(filter(None, how)) or "unknown"
    return found


# --------------------------------------------------------------------------------- single values


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _time(value: object) -> float | None:
    """A number above 0 that is one; NaN, infinities and words are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e300 else None


def _count(value: object, least: int = 1) -> int | None:
    """A whole number that isn't beyond all measure."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value < 1 << 63 else None


def _texts(value: object) -> dict[str, str]:
    """Names and values as text; what is neither text nor number is left out."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {_text(name): _text(each) for name, each in pairs if isinstance(each, str | int | float)}


def _word(value: object) -> str | None:
    return None if value is None else _text(value)


def _text(value: object) -> str:
    """One short line that a terminal can show."""
    flat = " ".join(str(value)[: 4 * LONGEST].split())[:LONGEST]
    return "".join(char for char in flat if char.isprintable())
