"""``distdemo learn``: a path of short steps; predict, run, compare. ``distdemo mistakes``: bugs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo import backends
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, one_of, unknown
from distdemo.errors import UsageError
from distdemo.learn.answers import compare
from distdemo.learn.catalogue import EXERCISES, MISTAKES, STEPS, Example, find
from distdemo.learn.records import (
    Hint,
    Lesson,
    MistakeList,
    MistakeReport,
    PlayedStep,
    StepList,
)

DEADLINE_S = 60.0  # of a program that doesn't hang
QUIT = ("q", "quit", "exit")


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
    first = 0 if options.step is None else names.index(_step_name(options.step))
    remaining = names[first:] if session.is_interactive else names[first : first + 1]
    played: list[PlayedStep] = []
    interrupted = False
    session.show(view.welcome)
    try:
        while remaining and (result := _play(session, STEPS[remaining[0]])) is not None:
            played.append(result)
            del remaining[0]
            if remaining:
                following = STEPS[remaining[0]]
                go_on = f"Enter continues with step {following.number}, {following.name}"
                typed = session.ask(f"{go_on}; q stops: ")
                if typed is None or typed.lower() in QUIT:
                    break
    except KeyboardInterrupt:
        interrupted = True
    return Result(
        Lesson(tuple(played), remaining[0] if remaining else ""),
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
        raise unknown("step", STEPS, text)
    return step.name


def _play(session: Session, step: Example) -> PlayedStep | None:
    """Show a step, ask for a prediction, and run its program; None if the learner stops."""
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.learn import view

    session.show(view.gap)
    session.show(partial(view.step_view, step))
    world = session.world(step.world_size, WorldOptions(backend="gloo", timeout=DEADLINE_S))
    session.prepare(world)  # while the learner reads
    if "DistributedDataParallel" in step.program:
        load_compiler()
    from distdemo.learn.trial import try_example

    prediction = session.ask("Your prediction: ")
    if session.is_interactive:
        while prediction and prediction.lower() not in QUIT:
            if compare(prediction, step.answer) is not None:
                break
            session.show(partial(view.help_view, step, prediction))
            prediction = session.ask("Your prediction: ")
        if prediction is None or prediction.lower() in QUIT:
            return None
    with session.waiting(f"{step.name} on {step.world_size} ranks", world):
        played = PlayedStep(step, try_example(step, world), prediction or "")
    session.show(partial(view.result_view, played))
    session.show(view.gap)
    return played


def _exercises(options: LearnOptions) -> Result:
    """Write the exercises, or show a hint."""
    from distdemo.learn import view
    from distdemo.learn.exercises import write_exercises

    name, folder, number = options.step, options.write, options.hint
    if folder is not None and (name, number) == (None, None):
        return Result(write_exercises(folder), view.exercises_view)
    if folder is not None or name is None or number is None:
        raise UsageError(
            "--hint requires the name of an exercise."
            if folder is None
            else "--write writes all exercises.",
            "A hint belongs to one exercise, and --write takes no name and no hint.",
            "Try distdemo learn ring --hint 1, or distdemo learn --write exercises.",
        )
    exercise = find(EXERCISES, name)
    if exercise is None:
        raise unknown("exercise", EXERCISES, name)
    count = len(exercise.hints)
    if number > count:
        raise UsageError(
            f"{exercise.name} has no hint {number}.",
            f"It has {count} hints.",
            f"Try distdemo learn {exercise.name} --hint 1.",
        )
    hint = Hint(exercise.name, number, count, exercise.hints[number - 1])
    return Result(hint, view.hint_view)


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
            help="Mistake to run. [default: list all]",
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

    if options.name is None:
        if options.explain or options.backend:
            raise UsageError(
                f"{'--explain' if options.explain else '--backend'} requires a mistake to run.",
                "The list runs no program.",
                "Try distdemo mistakes shape --backend gloo,mpi --explain.",
            )
        return Result(MistakeList(tuple(MISTAKES.values())), view.mistakes_view)
    mistake = find(MISTAKES, options.name)
    if mistake is None:
        raise unknown("mistake", MISTAKES, options.name)
    report = _run(mistake, options.backend or ("gloo",), session)
    errors = tuple(map(Error, report.problems))
    return Result(report, partial(view.report_view, explain=options.explain), errors=errors)


def _run(mistake: Example, names: tuple[str, ...], session: Session) -> MistakeReport:
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
