"""Draw the README's pictures: real runs and real drawings, written to docs/*.svg.

Run by ``make picture``. A second run changes nothing but the measured times: every name in an SVG
is fixed. The files refer to nothing outside themselves: the text is set in whatever monospace
font the reader has, and each run of characters is stretched to its place on the grid.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

from distdemo import ops
from distdemo.launchers.local import run_world
from distdemo.model import OpSpec, WorldSpec
from distdemo.programs.explain import explain
from distdemo.render.op_table import op_table
from distdemo.render.picture import picture
from distdemo.torch_import import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
WIDTH = 80  # columns
RANKS = 4
# Rich puts lines 24.4 units apart and takes a character for 20 high. At 21 the frames of tables
# close between the lines; 0.602 is the width of a character of Menlo and DejaVu Sans Mono.
FONT_SIZE = 21
ASPECT = 0.602 * FONT_SIZE / 20

# Colours that can be told apart on the dark ground, the bright ones lighter than the others.
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

# Rich's own template without its comment and its web font. The doubled braces are the style
# sheet's; ``str.format`` fills in the rest.
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
    """Draw every picture into this folder."""
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


def ran(spec: OpSpec, console: Console) -> RenderableType:
    """The table of this op, run just now on real ranks.

    Raises:
        SystemExit: it failed or its result was wrong; nothing is drawn then.
    """
    from distdemo.programs.demo import demo, report

    op = ops.REGISTRY[spec.op]
    world_spec = WorldSpec(spec.world_size, capture=True, lazy=op.lazy)
    world = run_world(world_spec, demo, (op, (spec,)))
    result = report(op, (spec,), world)
    if not result.ok:
        raise SystemExit(f"{spec.op} went wrong: {world.verdict or 'its result differs'}")
    return op_table(result, console)


def explained(spec: OpSpec, console: Console) -> RenderableType:
    """The drawing of this op."""
    return picture(explain(ops.REGISTRY[spec.op], spec), console)


def draw(file: Path, command: str, view: Callable[[Console], RenderableType]) -> None:
    """Print the view as a terminal of ``WIDTH`` columns would show it, as a picture."""
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
    console.print(view(console))
    svg = console.export_svg(
        title=command, theme=THEME, code_format=SVG, unique_id=file.stem, font_aspect_ratio=ASPECT
    )
    # Another font's characters are stretched, not only set wider apart: frames stay closed.
    svg = svg.replace(" textLength=", ' lengthAdjust="spacingAndGlyphs" textLength=')
    text = "\n".join(line.strip() for line in svg.splitlines() if line.strip())
    file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
