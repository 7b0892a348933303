"""Draw the README's pictures from real runs and write them to docs/*.svg.

Run by ``make picture``. A second run only changes the measured times: names in an SVG are fixed.
The files have no external references: text uses the reader's monospace font, and each run of
characters is stretched to the grid.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from distdemo import ops
from distdemo.demo.explain import explain_op
from distdemo.demo.view import op_view
from distdemo.demo.view_picture import picture
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.torch_import import load_torch
from distdemo.measure.records import BenchSpec, SeriesSpec
from distdemo.ops.spec import Call, OpSpec
from distdemo.trace.records import TraceReport, TraceSpec
from distdemo.trace.texts import title
from distdemo.trace.view_picture import Picture
from distdemo.view.blocks import show_blocks
from distdemo.view.console import signs

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
WIDTH = 80  # columns
RANKS = 4
CURVES = ("gloo", "mpi")  # backends with a curve
SIZES = tuple(8 * 8**power for power in range(8))  # bytes, to 16 MiB
ROUNDS = (1, 2, 3)  # drawn rounds of the ring: the reduce-scatter
PATIENCE = 60.0  # seconds without progress of a rank
# Rich's line height is 24.4 units for a font size of 20. At 21 the table borders have no gaps;
# 0.602 is the character width of Menlo and DejaVu Sans Mono.
FONT_SIZE = 21
ASPECT = 0.602 * FONT_SIZE / 20

# Distinguishable colors on the dark background, with lighter bright ones.
THEME = TerminalTheme(
    background=(24, 27, 33),
    foreground=(216, 220, 226),
    normal=[
        (40, 44, 52),
        (240, 113, 120),
        (130, 205, 120),
        (235, 195, 95),
        (95, 155, 245),
        (215, 135, 225),
        (85, 205, 215),
        (200, 204, 210),
    ],
    bright=[
        (110, 116, 128),
        (255, 150, 150),
        (170, 235, 160),
        (255, 225, 150),
        (150, 195, 255),
        (240, 180, 250),
        (150, 235, 240),
        (245, 247, 250),
    ],
)

# Rich's template without its comment and web font. Doubled braces belong to the style sheet;
# ``str.format`` fills in the rest.
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: FONT_SIZEpx;
}}
.{unique_id}-title {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: 16px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
""".replace("FONT_SIZE", str(FONT_SIZE))


def main(folder: Path) -> None:
    """Draw all pictures into this folder."""
    load_torch()
    for spec in (
        OpSpec("all_reduce", RANKS, reduce_op="sum"),
        OpSpec("scatter", RANKS, root=0),
        OpSpec("all_to_all", RANKS, shape=(2,)),
    ):
        command = ops.REGISTRY[spec.op].command
        shown = partial(ran, spec)
        draw(folder / f"{command}.svg", f"distdemo {command} --world-size {RANKS}", shown)
    spec = OpSpec("all_gather", RANKS)
    shown = partial(explained, spec)
    draw(folder / "explain-all-gather.svg", "distdemo explain all-gather", shown)
    draw(folder / "links.svg", f"distdemo bench links --world-size {RANKS}", linked)
    draw(folder / "trace.svg", f"distdemo trace all-reduce --world-size {RANKS}", rounds)
    (folder / "bench.svg").write_text(curves(), encoding="utf-8")


def ran(spec: OpSpec, console: Console) -> None:
    """Run this op on real ranks and print its table.

    Raises:
        SystemExit: The op failed or its result is wrong.
    """
    from distdemo.demo.rank import op_report, run_op

    op = ops.REGISTRY[spec.op]
    world_spec = WorldSpec(spec.group_size, capture=True, lazy=op.lazy)
    world = run_world(world_spec, run_op, (op, (spec,)))
    result = op_report(op, (spec,), world)
    if not result.ok:
        raise SystemExit(f"{spec.op} failed: {world.verdict or 'wrong result'}")
    show_blocks(console, op_view(result, signs(console)))


def explained(spec: OpSpec, console: Console) -> None:
    """Print the drawing of this op."""
    show_blocks(console, picture(explain_op(ops.REGISTRY[spec.op], spec), signs(console)))


def linked(console: Console) -> None:
    """Measure all links between ranks and print their map.

    Raises:
        SystemExit: A link couldn't be measured.
    """
    from distdemo.bench.links.measure import measure_links
    from distdemo.bench.links.records import LinksSpec
    from distdemo.bench.links.view import links_view

    world = WorldSpec(RANKS, capture=True, deadline=PATIENCE)
    report = measure_links(LinksSpec(RANKS, world.backend, world.device), world, run_world)
    if not report.ok:
        raise SystemExit(f"bench links failed: {report.world}")
    show_blocks(console, links_view(report, signs(console)))


def rounds(console: Console) -> None:
    """Run a ring and print its first half."""
    report = traced()
    drawing = Picture(report, console)
    parts = [part for at in ROUNDS for part in (Text(), *drawing.draw_frame(drawing.frames[at]))]
    console.print(Group(Text(title(report, signs(console)), style="bold"), *parts))


def traced() -> TraceReport:
    """Trace a ring all_reduce on real ranks.

    Raises:
        SystemExit: The trace failed or its result is wrong.
    """
    from distdemo.trace.rank import trace
    from distdemo.trace.report import make_report

    spec = TraceSpec(OpSpec("all_reduce", RANKS, reduce_op="sum"), "ring")
    world = run_world(WorldSpec(RANKS, capture=True, lazy=False), trace, (spec,))
    result = make_report(spec, world)
    if not result.ok:
        raise SystemExit(f"the trace failed: {world.verdict or 'wrong result'}")
    return result


def curves() -> str:
    """Measure and return the plot as an SVG without XML header and metadata.

    The environment is left out: the picture is an example rather than a machine's result.

    Raises:
        SystemExit: The measurement failed.
    """
    from distdemo.bench.controller import measure
    from distdemo.bench.view import plot

    worlds = [
        WorldSpec(2, backend, capture=True, stall=PATIENCE, deadline=3600.0) for backend in CURVES
    ]
    report = measure(BenchSpec(tuple(map(series, CURVES))), worlds, alone)
    if not report.ok:
        raise SystemExit(f"the measurement failed: {report.world}")
    svg = plot(replace(report, environment={}), Path("bench.svg")).decode()
    svg = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.strip() for line in svg.splitlines()) + "\n"


def alone(world: WorldSpec, *program: Any, **how: Any) -> WorldReport:  # noqa: ANN401 - the signature of run_world
    """Start a world on this machine only."""
    from distdemo.backends.registry import run_prepared

    return run_prepared(world, *program, on_message=how["on_message"])


def series(backend: str) -> SeriesSpec:
    """Return an all_reduce between two ranks at all sizes."""
    call = Call("all_reduce", call="all_reduce", dtype="float32", reduce_op="sum", in_place=True)
    return SeriesSpec(call, backend, "cpu", world_size=2, sizes_bytes=tuple(SIZES))


def draw(file: Path, command: str, view: Callable[[Console], None]) -> None:
    """Draw the view as in a terminal of ``WIDTH`` columns."""
    console = Console(
        record=True,
        width=WIDTH,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
        highlight=False,
        markup=False,
        emoji=False,
    )
    view(console)
    svg = console.export_svg(
        title=command, theme=THEME, code_format=SVG, unique_id=file.stem, font_aspect_ratio=ASPECT
    )
    # Stretch characters, not only their spacing, so that borders have no gaps.
    svg = svg.replace(" textLength=", ' lengthAdjust="spacingAndGlyphs" textLength=')
    text = "\n".join(line.strip() for line in svg.splitlines() if line.strip())
    file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
