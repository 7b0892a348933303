"""The commands. Each is: flags → spec → launch → report → view → exit code."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from distdemo import ops
from distdemo.cli import options
from distdemo.cli.execute import run_explain, run_hello, run_op, run_ops
from distdemo.cli.run_backends import run_backends
from distdemo.cli.run_check import run_check
from distdemo.cli.run_doctor import run_doctor
from distdemo.cli.run_program import run_program
from distdemo.cli.run_rpc import run_rpc
from distdemo.cli.run_train import run_train
from distdemo.ops.contract import Op

COLLECTIVES = "Collectives: run one, prove it, see it"
POINT_TO_POINT = "Point to point"
PROGRAMS = "Your code, and what collectives are for"
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


def _plain(text: str) -> str:
    """The text with what typer's help would take for markup of its own."""
    return text.replace("[", "\\[")


def _add_op(op: Op) -> None:
    """The command of one op: the shared options, and those that mean something to it."""
    command = options.with_options(partial(run_op, op), options.of_op(op), op.root_is)
    panel = POINT_TO_POINT if "pattern" in op.takes else COLLECTIVES
    example = {
        "splits": f"distdemo {op.command} -n 3 --splits 1,0,2",
        "straggler": f"distdemo {op.command} --straggler 2:0.5",
        "uneven": f"distdemo {op.command} --uneven --sizes 3,0,7",
        "pattern": f"distdemo {op.command} --pattern ring -n 5",
        "reduce_op": f"distdemo {op.command} --reduce-op max",
        "objects": f"distdemo {op.command} --objects",
    }
    extra = next(text for name, text in example.items() if name in op.takes)
    app.command(
        op.command,
        help=f"{op.words.summary}\n\nCalls {_plain(op.words.call.replace('{OP}', 'SUM'))}",
        short_help=op.words.summary,
        epilog=f"Try: {extra}; distdemo {op.command} --explain",
        rich_help_panel=panel,
    )(command)


for _op in ops.REGISTRY.values():
    _add_op(_op)

app.command(
    "run",
    help="Your own code on N ranks: a function that every rank calls with the group ready, or a "
    "whole script that makes its own group, as under torchrun. Shows what every rank printed and "
    "returned.",
    epilog="Try: distdemo run train.py; distdemo run train.py:run -n 2 -- 10; distdemo run --tee "
    "-m package.module",
    rich_help_panel=PROGRAMS,
)(options.with_options(run_program, options.RUN))

app.command(
    "train",
    help="Data-parallel training of a small classifier: gradients averaged by hand, in one flat "
    "buffer, and by DistributedDataParallel, side by side with one process on the same batches. "
    "Proves that all of them train the same model.",
    epilog="Try: distdemo train; distdemo train --mode ddp --trace trace.json; distdemo train "
    "--dataset digits --epochs 30 --plot curves.svg",
    rich_help_panel=PROGRAMS,
)(options.with_options(run_train, options.TRAIN))

app.command(
    "rpc",
    help="Remote procedure calls between named workers: rpc_sync, rpc_async, remote and RRefs, an "
    "exception that crosses back; then a model that lives on other workers, trained with "
    "distributed autograd, proved equal to the same training in one process.\n\n"
    "PyTorch's documentation calls RPC stable and in maintenance mode: learn it for programs that "
    "use it already.",
    short_help="Remote procedure calls, and a model trained over them (in maintenance mode).",
    epilog="Try: distdemo rpc; distdemo rpc -n 3; distdemo rpc --steps 100 --lr 0.1",
    rich_help_panel=PROGRAMS,
)(options.with_options(run_rpc, options.RPC))

app.command(
    "hello",
    help="Every rank says who it is: the first thing to try.",
    rich_help_panel=AROUND,
)(options.with_options(run_hello, options.HELLO))

app.command(
    "check",
    help="The smoke check for CI: every operation × dtype × reduce op × root × group × world size "
    "× shape, each verified exactly. Exit code 0 only if all that the backend supports passed.",
    epilog="Try: distdemo check; distdemo check --op all-reduce --full; distdemo check "
    "--junit-xml report.xml",
    rich_help_panel=AROUND,
)(options.with_options(run_check, options.CHECK))

app.command(
    "backends",
    help="What is here, by trying it: which backends this torch has, why not, how to get them. "
    "With --probe what a backend can do.",
    epilog="Try: distdemo backends; distdemo backends --probe gloo",
    rich_help_panel=AROUND,
)(options.with_options(run_backends, options.BACKENDS))

app.command(
    "doctor",
    help="What stands between this machine and a working world: names, interfaces, limits, "
    "memory, cores, torch, MPI, GPUs, variables; and the way to another machine. Exit code 1 if "
    "something is broken.",
    epilog="Try: distdemo doctor; distdemo doctor --listen 29600; distdemo doctor --peer "
    "10.0.0.2:29600",
    rich_help_panel=AROUND,
)(options.with_options(run_doctor, options.DOCTOR))

app.command("ops", help="List the operations.", rich_help_panel=AROUND)(
    options.with_options(run_ops, ("format",))
)

app.command(
    "explain",
    help="Draw an operation: who holds what before, which way it moves, who holds what after; "
    "when it is used, what it costs, and the usual mistake with it.",
    rich_help_panel=AROUND,
)(options.with_options(run_explain, options.EXPLAIN))
