"""The commands. Each is: flags → spec → launch → report → view → exit code."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from distdemo import ops
from distdemo.cli import options
from distdemo.cli.execute import run_explain, run_hello, run_op, run_ops
from distdemo.ops.contract import Op

COLLECTIVES = "Collectives: run one, prove it, see it"
POINT_TO_POINT = "Point to point"
AROUND = "Look around"

app = typer.Typer(
    name="distdemo",
    help="Collective communication in PyTorch: run it on real ranks, prove it right, see it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Try: distdemo all-reduce; distdemo explain scatter; distdemo p2p --nonblocking",
)


def _version(wanted: bool) -> None:
    if wanted:
        from distdemo.versions import versions

        found = versions()
        typer.echo(
            f"distdemo {found['distdemo']} (torch {found['torch']}, Python {found['python']})"
        )
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Say the versions.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Collective communication in PyTorch: run it on real ranks, prove it right, see it."""


def _add_op(op: Op) -> None:
    """The command of one op: the shared options, and those that mean something to it."""
    own = sorted(op.takes)
    names = (*own, *options.INPUT, *options.WORLD, *options.VIEW)
    command = options.with_options(partial(run_op, op), names, op.root_is)
    panel = POINT_TO_POINT if "pattern" in op.takes else COLLECTIVES
    example = {
        "reduce_op": f"distdemo {op.command} --reduce-op max",
        "pattern": f"distdemo {op.command} --pattern ring -n 5",
    }
    extra = next((example[name] for name in own if name in example), f"distdemo {op.command} -n 3")
    app.command(
        op.command,
        help=f"{op.words.summary}\n\nCalls {op.words.call.replace('{OP}', 'SUM')}",
        short_help=op.words.summary,
        epilog=f"Try: {extra}; distdemo {op.command} --explain",
        rich_help_panel=panel,
    )(command)


for _op in ops.REGISTRY.values():
    _add_op(_op)

app.command(
    "hello",
    help="Every rank says who it is: the first thing to try.",
    rich_help_panel=AROUND,
)(
    options.with_options(
        run_hello, (*options.WORLD, *(name for name in options.VIEW if name != "explain"))
    )
)

app.command("ops", help="List the operations.", rich_help_panel=AROUND)(
    options.with_options(run_ops, ("format",))
)

app.command(
    "explain",
    help="Draw an operation: who holds what before, which way it moves, who holds what after; "
    "when it is used, what it costs, and the usual mistake with it.",
    rich_help_panel=AROUND,
)(
    options.with_options(
        run_explain,
        ("op", "world_size", "root", "reduce_op", "dtype", "shape", "pattern", "format"),
    )
)
