"""The backends that are here, and the map of what one can do, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.backends.capabilities import CapabilityMap
from distdemo.check.records import BackendEntry, MapReport
from distdemo.dtypes import short
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Column, Grid, fitting, widest
from distdemo.view.numbers import plural

PARTS = 4  # tables below each other at most that a map is cut into


def backend_table(entries: Sequence[BackendEntry], console: Console) -> Group:
    """Which backends are here, why not, and how to get them."""
    sign = signs(console)
    heads = ("Backend", "Here", "Devices", "Version", "What was found")
    grid = Grid([Column(name, folds=name == "What was found") for name in heads])
    for entry in entries:
        grid.rows.append(
            [
                Text(entry.name, style="bold"),
                _here(entry, sign),
                ", ".join(entry.devices),
                entry.version or Text(sign.none, style=colours.QUIET),
                _found(entry),
            ]
        )
    hint = "distdemo backends --probe gloo tries everything that one can do."
    return Group(fitting(console, lambda _: grid), Text(hint, style=colours.QUIET))


def all_well(entries: Sequence[BackendEntry]) -> bool:
    """Whether one works at least, and none that is here fails."""
    works = [entry.works for entry in entries if entry.works is not None]
    return bool(works) and all(works)


def verdict(entries: Sequence[BackendEntry]) -> str:
    """Who works and who fails, in a sentence or two."""
    works = [entry.name for entry in entries if entry.works]
    fails = [entry.name for entry in entries if entry.works is False]
    parts = [_sentence(works, "works", "work"), _sentence(fails, "fails", "fail")]
    return " ".join(filter(None, parts)) or "No backend is here."


def _sentence(names: Sequence[str], one: str, several: str) -> str:
    return f"{', '.join(names)} {one if len(names) == 1 else several}." if names else ""


def verdict_line(entries: Sequence[BackendEntry], sign: Signs) -> Text:
    """Whether all is well, in one line."""
    if all_well(entries):
        return Text(f"{sign.right} {verdict(entries)}", style=colours.RIGHT)
    return Text(f"{sign.wrong} {verdict(entries)}", style=colours.WRONG)


def _here(entry: BackendEntry, sign: Signs) -> Text:
    if entry.missing:
        return Text(f"{sign.none} no", style=colours.QUIET)
    if entry.works is None:
        return Text("yes, not tried")
    if entry.works:
        return Text(f"{sign.right} works", style=colours.RIGHT)
    return Text(f"{sign.wrong} fails", style=colours.WRONG)


def _found(entry: BackendEntry) -> Text:
    if entry.missing:
        return Text(f"{entry.missing} {entry.get}".strip())
    return Text(f"{entry.summary} {entry.tried}.".strip(" ."))


def map_table(report: MapReport, console: Console) -> Group:
    """The map as a grid, what the signs mean, and where the documentation says otherwise."""
    found, sign = report.found, signs(console)
    parts: list[RenderableType] = [
        heading(f"{found.backend} {sign.dot} torch {found.torch} {sign.dot} {found.device}"),
        *_grids(found, console, sign),
    ]
    parts += _legend(found, sign)
    for kind, forms in found.shapes.items():
        for name, finding in forms.items():
            parts.append(Text(f"{name} with {kind} tensors: {finding}.", style=colours.QUIET))
    if report.disagreements:
        parts.append(heading("Where PyTorch's documentation says otherwise"))
        parts += [Text(line) for line in report.disagreements]
    parts += _against_the_built_in(report, sign)
    tried = f"{plural(report.tried, 'combination')} tried in {report.seconds:.1f} s, "
    tried += f"in {plural(report.worlds, 'world')}."
    parts.append(Text(tried, style=colours.QUIET))
    return Group(*parts)


def _against_the_built_in(report: MapReport, sign: Signs) -> Iterator[RenderableType]:
    """Whether the map that the commands ask beforehand says the same."""
    if not report.known:
        yield Text("There is no built-in map of this backend: --write FILE makes one.")
    elif not report.differences:
        same = f"{sign.right} The built-in map, of torch {report.known}, says the same."
        yield Text(same, style=colours.RIGHT)
    else:
        yield heading(f"Where the built-in map, of torch {report.known}, says otherwise")
        yield from (Text(line) for line in report.differences)


def _grids(found: CapabilityMap, console: Console, sign: Signs) -> list[RenderableType]:
    """The map in as few tables below each other as fit the console's width."""
    places = list(range(len(found.dtypes)))
    for parts in range(1, PARTS + 1):
        size = -(-len(places) // parts)
        grids = [
            _grid(found, places[start : start + size], sign)
            for start in range(0, len(places), size)
        ]
        if all(widest(console, grid.table()) <= console.width for grid in grids):
            return [grid.table() for grid in grids]
    return list(_lines(found))


def _grid(found: CapabilityMap, places: Sequence[int], sign: Signs) -> Grid:
    grid = Grid([Column("Operation"), *(Column(short(found.dtypes[at])) for at in places)])
    for name, row in found.rows.items():
        cells = [_sign(row[at], sign) for at in places]
        grid.rows.append([_name(name), *cells])
    return grid


def _lines(found: CapabilityMap) -> Iterator[Text]:
    """For a console too narrow for tables: a line a row, with the dtypes that work."""
    for name, row in found.rows.items():
        works = [short(dtype) for at, dtype in enumerate(found.dtypes) if row[at] == 0]
        yield Text(f"{_name(name)}: {' '.join(works) or 'nothing'}")


def _sign(finding: int, sign: Signs) -> Text:
    if finding == 0:
        return Text(sign.right, style=colours.RIGHT)
    return Text(_letter(finding), style=colours.QUIET)


def _letter(finding: int) -> str:
    """a, b, ..., z, A, B, ...: the reason's place in the legend."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[(finding - 1) % len(letters)]


def _legend(found: CapabilityMap, sign: Signs) -> list[RenderableType]:
    lines = [Text(f"{sign.right} right on every rank", style=colours.QUIET)]
    lines += [
        Text(f"{_letter(place)} {finding}", style=colours.QUIET)
        for place, finding in enumerate(found.findings)
        if place
    ]
    return [*lines]


def _name(key: str) -> str:
    """``all_reduce max``: the form is left out where there is only one."""
    form, _, reduce_op = key.partition(" ")
    return " ".join(each for each in (form.removesuffix("/tensor"), reduce_op) if each)
