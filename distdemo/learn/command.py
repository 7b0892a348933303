"""``distdemo learn``: a path of short steps; predict, run, compare. ``distdemo mistakes``: bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdemo import backends, ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, one_of, unknown
from distdemo.errors import UsageError
from distdemo.learn.answers import compare
from distdemo.learn.catalogue import MISTAKES, STEPS, find
from distdemo.learn.records import (
    Lesson,
    Mistake,
    MistakeList,
    MistakeReport,
    PlayedStep,
    Step,
    StepList,
)

if TYPE_CHECKING:
    from distdemo.view.blocks import Block
    from distdemo.view.console import Signs

DEADLINE_S = 60.0  # of a program that doesn't hang
QUIT = ("q", "quit", "exit")
CHOICES = ("", "b", "back")
"""Answers after a step, in addition to those that quit: nothing to continue, or to go back."""


# ---------------------------------------------------------------------------------------- learn


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """Options of ``distdemo learn``."""

    step: Annotated[
        str | None,
        typer.Argument(
            metavar="STEP",
            help="Name or number of the step to start with. [default: the first]",
            autocompletion=offer(STEPS),
        ),
    ] = None
    write: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write exercises with tests to a new folder."),
    ] = None
    hint: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Show the N-th hint of the exercise named STEP."),
    ] = None


@command(
    record="distdemo.learn.records:StepList distdemo.learn.records:Lesson "
    "distdemo.learn.records:ExerciseFolder distdemo.learn.records:Hint",
    epilog="Try: distdemo learn; distdemo learn ring; distdemo learn --write exercises; "
    "distdemo learn ring --hint 1",
)
def learn(session: Session, options: LearnOptions) -> Result:
    """Learn collectives step by step: predict, run, compare.

    Each step shows a program and asks what a rank will hold. Then the program runs on real ranks.
    Without a terminal only STEP runs, with the prediction from standard input, or the steps are
    listed. A wrong prediction is no failure.
    """
    from distdemo.learn import view

    if options.write is not None or options.hint is not None:
        return _exercises(options)
    if options.step is None and not session.is_interactive:
        return Result(StepList(tuple(STEPS.values())), view.steps_view)
    names = list(STEPS)
    index = 0 if options.step is None else names.index(_step_name(options.step))
    end = len(names) if session.is_interactive else index + 1
    played: list[PlayedStep] = []
    interrupted = False
    session.show(view.welcome)
    try:
        while index < end and (result := _play(session, STEPS[names[index]])) is not None:
            played.append(result)
            index += 1
            if index < end:
                go_on = f"Enter continues with step {index + 1}, {names[index]}"
                prompt = f"{go_on}; b goes back, q stops: "
                choice = _ask(session, prompt, lambda typed: typed.lower() in CHOICES, view.choices)
                if choice is None:
                    break
                index = max(index - 2, 0) if choice else index
    except KeyboardInterrupt:
        interrupted = True
    return Result(
        Lesson(tuple(played), names[index] if index < end else ""),
        partial(view.lesson_view, interrupted=interrupted),
        is_shown=session.is_interactive,
        interrupted=interrupted,
        errors=(Error("Interrupted."),) if interrupted else (),
    )


def _step_name(text: str) -> str:
    """Return the name of the step with this name or number."""
    numbers = {str(step.number): name for name, step in STEPS.items()}
    step = find(STEPS, numbers.get(text, text))
    if step is None:
        raise unknown("step", STEPS, text, "distdemo learn")
    return step.name


def _play(session: Session, step: Step) -> PlayedStep | None:
    """Show a step, ask for a prediction, and run its program; None if the learner stops."""
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.learn import view

    session.show(view.gap)
    session.show(partial(view.step_view, step))
    world = session.world(step.world_size, WorldOptions(backend="gloo", timeout=DEADLINE_S))
    session.prepare(world)  # while the learner reads
    if step.needs_compiler:
        load_compiler()
    from distdemo.learn.trial import try_program

    prediction = _ask(
        session,
        "Your prediction: ",
        lambda typed: not typed or compare(typed, step.answer) is not None,
        partial(view.help_view, step),
    )
    if prediction is None:
        return None
    with session.waiting(f"{step.name} on {step.world_size} ranks", world):
        played = PlayedStep(step, try_program(step, world), prediction)
    session.show(partial(view.result_view, played))
    session.show(view.gap)
    return played


def _ask(
    session: Session,
    prompt: str,
    accepts: Callable[[str], bool],
    help_view: Callable[[str, Signs], Iterator[Block]],
) -> str | None:
    """Return what the learner types at a prompt, or None to stop.

    In a terminal, text that isn't accepted is asked for again, with help. Otherwise there may be no
    text; then it is empty.
    """
    while True:
        typed = session.ask(prompt)
        if typed is None and not session.is_interactive:
            return ""
        if typed is None or typed.lower() in QUIT:
            return None
        if accepts(typed) or not session.is_interactive:
            return typed
        session.show(partial(help_view, typed))


def _exercises(options: LearnOptions) -> Result:
    """Write the exercises, or show a hint."""
    from distdemo.learn import exercises, view

    name, folder, number = options.step, options.write, options.hint
    if number is None and folder is not None and name is None:
        return Result(exercises.write_exercises(folder), view.exercises_view)
    if number is not None and folder is None and name is not None:
        return Result(exercises.hint(name, number), view.hint_view)
    raise UsageError(
        "--hint requires the name of an exercise."
        if folder is None
        else "--write writes all exercises.",
        "A hint belongs to one exercise, and --write takes no name and no hint.",
        "Try distdemo learn ring --hint 1, or distdemo learn --write exercises.",
    )


# ------------------------------------------------------------------------------------- mistakes


class Names(tuple[str, ...]):
    """Names of backends."""

    __slots__ = ()


def parse_backends(text: str) -> Names:
    """Parse backends such as ``gloo,mpi``; duplicates count once."""
    parse = one_of(backends.REGISTRY)
    return Names(dict.fromkeys(parse(name) for name in text.split(",")))


@dataclass(frozen=True, kw_only=True)
class MistakesOptions:
    """Options of ``distdemo mistakes``."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Mistake to run, or a word to search for: deadlock. [default: list all]",
            autocompletion=offer(MISTAKES),
        ),
    ] = None
    backend: Annotated[
        Names | None,
        typer.Option(
            metavar="NAME,...",
            parser=parse_backends,
            help="Backends to compare, such as gloo,mpi. [default: gloo]",
            autocompletion=offer(backends.REGISTRY),
        ),
    ] = None
    explain: Annotated[bool, typer.Option("--explain", help="Explain the cause.")] = False


@command(
    record="distdemo.learn.records:MistakeList distdemo.learn.records:MistakeReport",
    epilog="Try: distdemo mistakes; distdemo mistakes shape --explain; distdemo mistakes root "
    "--backend gloo,mpi; distdemo learn --write lesson",
)
def mistakes(session: Session, options: MistakesOptions) -> Result:
    """Run common bugs: what each does, what the sanitizer reports, and the fix.

    Each program runs on real ranks; one that hangs is stopped after two seconds. The exit code is
    0 if it behaves as documented and the repaired program is correct on every rank.
    """
    from distdemo.learn import view

    mistake = find(MISTAKES, options.name or "")
    if mistake is not None:
        report = _run(mistake, options.backend or ("gloo",), session)
        errors = tuple(map(Error, report.problems))
        return Result(report, partial(view.report_view, explain=options.explain), errors=errors)
    listed = tuple(MISTAKES.values() if options.name is None else _search(options.name))
    if not listed:
        raise unknown("mistake", MISTAKES, options.name or "", "distdemo mistakes")
    if options.explain or options.backend:
        raise UsageError(
            f"{'--explain' if options.explain else '--backend'} requires a mistake to run.",
            "The list runs no program.",
            "Try distdemo mistakes shape --backend gloo,mpi --explain.",
        )
    return Result(MistakeList(listed), view.mistakes_view)


def _search(word: str) -> Iterator[Mistake]:
    """Yield the mistakes with this word as finding, outcome or in the title, or with this call."""
    op = ops.find(word)
    for mistake in MISTAKES.values():
        outcomes = " ".join(mistake.outcomes.values())
        words = f"{mistake.finding} {outcomes} {mistake.title}".lower().split()
        if word.lower() in words or (op is not None and f"dist.{op.name}(" in mistake.source()):
            yield mistake


def _run(mistake: Mistake, names: tuple[str, ...], session: Session) -> MistakeReport:
    """Run a mistake over each of these backends."""
    worlds = [
        session.world(mistake.world_size, WorldOptions(backend=name, timeout=DEADLINE_S))
        for name in names
    ]
    with session.waiting(f"{mistake.name} on {mistake.world_size} ranks", *worlds):
        from distdemo.learn.trial import try_mistake
        from distdemo.versions import versions

        worlds = [backends.prepared(world) for world in worlds]
        trials = tuple(try_mistake(mistake, world) for world in worlds)
    libraries = versions()
    for world in worlds:
        libraries |= backends.versions_of(world)
    return MistakeReport(mistake, trials, libraries)
