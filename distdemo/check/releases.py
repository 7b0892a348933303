"""What changed from release to release of torch: in what backends take, and in torch's own names.

All of it is data: the maps that the probe wrote on each release, the names of the ops' forms, and
what a backend's class says of its history. No torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from distdemo import backends, ops
from distdemo.backends.capabilities import WRONG, ReleaseMap, at, by_release
from distdemo.check.records import Change, ReleaseChange, ReleaseList
from distdemo.ops.contract import Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.versions import release_of, torch_version

API = "torch.distributed"


def release_list() -> ReleaseList:
    """Every change that is known, the oldest release first."""
    found = list(_names())
    for backend in backends.REGISTRY.values():
        found += [
            ReleaseChange(release, backend.name, "meaning", text=text)
            for release, text in backend.history
        ]
        every = by_release(backend.name)
        found += [] if every is None else changes_of(every)
    gloo = by_release("gloo")
    found.sort(key=lambda each: release_of(each.release))
    return ReleaseList(torch_version(), gloo.releases if gloo else (), tuple(found))


def _names() -> Iterator[ReleaseChange]:
    """The calls that torch got, or calls by another name."""
    for op in ops.REGISTRY.values():
        for form in op.all_forms:
            if form.since:
                forms = (f"{op.name}/{form.name}",)
                kind: Change = "renamed" if form.older else "new"
                yield ReleaseChange(form.since, API, kind, forms, text=form.names)


def changes_of(every: ReleaseMap) -> list[ReleaseChange]:
    """What a backend takes since a release, or no longer; of the oldest what is wrong in it.

    Forms, reduce ops and dtypes that changed alike stand together. What only fails in another way
    is no change, and what has no meaning, like the bits of a float, is left out.
    """
    backend = backends.REGISTRY[every.backend]
    alike: defaultdict[tuple[str, Change, str, str], dict[str, list[str]]]
    alike = defaultdict(lambda: defaultdict(list))
    for row, changes in every.rows.items():
        op, spec = _asked(row)
        for place, dtype in enumerate(every.dtypes):
            if spec.reduce_op and backend.reason(op, replace(spec, dtype=dtype)) is not None:
                continue
            before: str | None = None
            for release in every.releases:
                held = at(changes, release)
                now = every.findings[held[place]] if held else None
                kind = _kind(before, now, first=release == every.releases[0])
                if kind == "wrong" and not _mended(every, row, place):
                    kind = None
                if kind is not None:
                    better = kind in ("works", "mended")
                    note = every.note(row, dtype, release) if better else None
                    text = "" if better or kind == "wrong" else now or ""
                    source = note.source if note else ""
                    alike[release, kind, text, source][row].append(dtype)
                before = now
    links = {note.source: note.link for note in every.notes}
    found = []
    for (release, kind, text, source), rows in alike.items():
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
                    source,
                    links.get(source, ""),
                )
            )
    return found


def _asked(row: str) -> tuple[Op, OpSpec]:
    """The op of a row of a map, and what it is asked for."""
    form_name, reduce_op = _parted(row)
    name, _, chosen = form_name.partition("/")
    op = ops.REGISTRY[name]
    settings = next(form.settings for form in op.all_forms if form.name == chosen)
    return op, OpSpec(name, 2, reduce_op=reduce_op or None, **settings)


def _parted(row: str) -> tuple[str, str]:
    """The op with its form, whose name may have spaces, and the reduce op."""
    form, _, last = row.rpartition(" ")
    return (form, last) if last in REDUCTIONS else (row, "")


def _kind(before: str | None, now: str | None, *, first: bool) -> Change | None:
    """What the change from one finding to the next is; None where it is none."""
    if first:
        return "wrong" if now == WRONG else None
    if before == now or now is None:
        return None
    if now == "":
        return "mended" if before == WRONG else "works"
    if before == WRONG:
        return "raises"
    return "fails" if not before else None


def _mended(every: ReleaseMap, row: str, place: int) -> bool:
    """Whether a later release does it right, or refuses it."""
    return any(
        found and every.findings[found[place]] != WRONG for found in every.rows[row].values()
    )
