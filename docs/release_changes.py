"""Changes between torch releases, as a table of docs/releases.md: backends and names of calls.

The sources are the backends' capability maps and the forms of the ops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from distdemo import backends, ops
from distdemo.backends.contract import FAILURES, CapabilityMap, Status, capability_map, value_in
from distdemo.dtypes import DTYPES, short
from distdemo.ops.contract import Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.versions import release_of

API = "torch.distributed"
Change = Literal["new", "renamed", "works", "fixed", "wrong", "raises", "fails"]
TEXTS: dict[Change, str] = {
    "new": "is new",
    "renamed": "was renamed",
    "works": "works",
    "fixed": "was wrong, is correct",
    "wrong": "is wrong",
    "raises": "was wrong, raises",
    "fails": "doesn't work",
}


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """One change in a torch release.

    Attributes:
        release: First release with the change; for "wrong", the oldest probed one.
        about: Backend, or ``torch.distributed``.
        forms: Forms of ops, such as ``reduce_scatter/single``.
        reduce_ops: Reduce ops; empty if the forms have none.
        text: Behavior of the backend, or names of the call.
    """

    release: str
    about: str
    change: Change
    forms: tuple[str, ...] = ()
    reduce_ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    text: str = ""


def table() -> Iterator[str]:
    """Yield a row per change, or several that differ in reduce ops and dtypes only."""
    yield "| torch | Component | Change | Details |"
    yield "|---|---|---|---|"
    alike: defaultdict[tuple[object, ...], list[ReleaseChange]] = defaultdict(list)
    for each in release_changes():
        key = each.release, each.about, each.change, each.forms, each.text
        alike[key].append(each)
    for together in alike.values():
        first = together[0]
        yield f"| {first.release} | {first.about} | {TEXTS[first.change]} | {_which(together)} |"


def _which(together: Sequence[ReleaseChange]) -> str:
    """Return the forms, reduce ops and dtypes of changes that share a row, or their text."""
    each = together[0]
    if each.about == API or not each.forms:
        return each.text
    reduce_ops = dict.fromkeys(name for one in together for name in one.reduce_ops)
    found = {name for one in together for name in one.dtypes}
    dtypes = [short(name) for name in DTYPES if name in found]
    parts = [
        ", ".join(form.removesuffix("/tensor") for form in each.forms),
        ", ".join(reduce_ops),
        "every dtype" if len(dtypes) == len(DTYPES) else ", ".join(dtypes),
    ]
    return "; ".join(filter(None, parts)) + (f" ({each.text})" if each.text else "")


def release_changes() -> list[ReleaseChange]:
    """Return every known change, the oldest release first."""
    found = list(_names())
    for backend in backends.REGISTRY.values():
        every = capability_map(backend.name)
        found += [] if every is None else changes_of(every)
    return sorted(found, key=lambda each: release_of(each.release))


def _names() -> Iterator[ReleaseChange]:
    """Yield torch's new and renamed calls."""
    for op in ops.REGISTRY.values():
        for form in op.all_forms:
            if form.since:
                forms = (f"{op.name}/{form.name}",)
                kind: Change = "renamed" if form.older else "new"
                yield ReleaseChange(form.since, API, kind, forms, text=form.names)


def changes_of(every: CapabilityMap) -> list[ReleaseChange]:
    """Return a backend's changes: calls that began to work or fail, and the first release's bugs.

    Equal changes of forms, reduce ops and dtypes share an entry. A different failure isn't a
    change. Meaningless combinations, such as bitwise ops on floats, are left out.
    """
    backend = backends.REGISTRY[every.backend]
    alike: defaultdict[tuple[str, Change, str], dict[str, list[str]]]
    alike = defaultdict(lambda: defaultdict(list))
    for row, changes in every.rows.items():
        op, spec = _asked(row)
        for place, dtype in enumerate(every.dtypes):
            if spec.reduce_op and backend.reason(op, replace(spec, dtype=dtype)) is not None:
                continue
            before: Status | None = None
            for release in every.releases:
                held = value_in(changes, release)
                now = every.findings[held[place]] if held else None
                kind = _kind(before, now, first=release == every.releases[0])
                if kind == "wrong" and not _fixed_later(every, row, place):
                    kind = None
                if kind is not None:
                    text = FAILURES[now] if now and now != "works" and kind != "wrong" else ""
                    alike[release, kind, text][row].append(dtype)
                before = now
    found = []
    for (release, kind, text), rows in alike.items():
        by_dtypes: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for row, dtypes in rows.items():
            by_dtypes[tuple(dtypes)].append(row)
        for columns, together in by_dtypes.items():
            forms = dict.fromkeys(_parted(row)[0] for row in together)
            reduce_ops = dict.fromkeys(filter(None, (_parted(row)[1] for row in together)))
            found.append(
                ReleaseChange(
                    release,
                    every.backend,
                    kind,
                    tuple(forms),
                    tuple(reduce_ops),
                    columns,
                    text,
                )
            )
    return found


def _asked(row: str) -> tuple[Op, OpSpec]:
    """Return the op and the settings of a row of a map."""
    form_name, reduce_op = _parted(row)
    name, _, chosen = form_name.partition("/")
    op = ops.REGISTRY[name]
    settings = next(form.settings for form in op.all_forms if form.name == chosen)
    return op, OpSpec(name, 2, reduce_op=reduce_op or None, **settings)


def _parted(row: str) -> tuple[str, str]:
    """Return the op with its form, whose name may have spaces, and the reduce op."""
    form, _, last = row.rpartition(" ")
    return (form, last) if last in REDUCTIONS else (row, "")


def _kind(before: Status | None, now: Status | None, *, first: bool) -> Change | None:
    """Return the kind of change between two findings, or None."""
    if first:
        return "wrong" if now == "wrong" else None
    if before == now or now is None:
        return None
    if now == "works":
        return "fixed" if before == "wrong" else "works"
    if before == "wrong":
        return "raises"
    return "fails" if before in (None, "works") else None


def _fixed_later(every: CapabilityMap, row: str, place: int) -> bool:
    """Return True if a later release gives the correct result or rejects the call."""
    return any(
        found and every.findings[found[place]] != "wrong" for found in every.rows[row].values()
    )
