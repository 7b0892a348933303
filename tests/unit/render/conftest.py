from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

from distdemo import ops
from distdemo.demo.explain import explain
from distdemo.demo.holdings import Attendance, Holding, Piece, RankRecord, Verification
from distdemo.demo.reports import OpReport
from distdemo.launcher.records import Outcome, Returned, Verdict, WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec
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


@pytest.fixture
def record() -> Callable[..., RankRecord]:
    """The record of one rank that holds these numbers, right unless told otherwise."""

    def made(rank: int, **more: Any) -> RankRecord:
        fields: dict[str, Any] = {
            "rank": rank,
            "takes_part": True,
            "before": Holding((Piece((2,), (1.0, 2.0), source=rank),)),
            "after": Holding((Piece((2,), (3.0, 4.0)),)),
            "verification": Verification(ok=True, checked=2),
            "seconds": 0.00085,
            "group_rank": rank,
            **more,
        }
        return RankRecord(**{"expected": fields["after"], **fields})

    return made


@pytest.fixture
def report(world: Callable[..., WorldReport]) -> Callable[..., OpReport]:
    """The report of a run with these records."""

    def made(spec: OpSpec, records: Any, **more: Any) -> OpReport:
        fields: dict[str, Any] = {"world": world(spec.group_size), **more}
        op = ops.REGISTRY[spec.op]
        form = op.form(spec)
        fields = {"specs": (spec,), "form": form.name, "calls": form.calls, **fields}
        return OpReport(
            spec=spec,
            traffic=op.traffic(spec),
            ranks=tuple(records),
            notes=op.notes(spec),
            versions={"distdemo": "1.2.3"},
            **fields,
        )

    return made


@pytest.fixture
def imagined(
    record: Callable[..., RankRecord], report: Callable[..., OpReport]
) -> Callable[[OpSpec], OpReport]:
    """The report of a run that never was: everybody holds what the explanation says."""

    def made(spec: OpSpec) -> OpReport:
        op = ops.REGISTRY[spec.op]
        drawn = explain(op, spec)
        records = [
            record(
                rank,
                before=before,
                after=after,
                takes_part=op.takes_part(rank, spec),
                verification=Verification(ok=True, checked=0 if after.undefined else 4),
                attendance=Attendance(0.001 * rank, 0.5, spec.group_size) if op.meets else None,
            )
            for rank, (before, after) in enumerate(zip(drawn.before, drawn.after, strict=True))
        ]
        return report(spec, records)

    return made
