"""``distdemo learn``: a path of short steps; predict, run, compare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, unknown
from distdemo.errors import UsageError
from distdemo.learn.answers import fits
from distdemo.learn.catalogue import NAMES, STEPS
from distdemo.learn.records import Lesson, PlayedStep, Step, StepList

DEADLINE_S = 60.0  # of a step's program
QUIT = ("q", "quit", "exit")
BACK = ("b", "back")


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """Options of ``distdemo learn``."""

    step: Annotated[
        str | None,
        typer.Argument(
            metavar="STEP",
            help="Name or number of the step to start with. [default: the first]",
            show_default=False,
            autocompletion=offer(NAMES),
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
    start = 0 if options.step is None else find_step(options.step).number - 1
    if options.step is None and not session.is_interactive:
        return Result(StepList(tuple(STEPS.values())), view.list_view)
    index, last = start, len(STEPS) if session.is_interactive else start + 1
    played: list[PlayedStep] = []
    interrupted, stopped = False, False
    session.show(view.welcome)
    try:
        while index < last and not stopped:
            result = _play(session, STEPS[NAMES[index]])
            if result is None:
                break
            played.append(result)
            index += 1
            if index < last:
                choice = _choice(session, index)
                stopped = choice in QUIT
                index = max(index - 2, 0) if choice in BACK else index
    except KeyboardInterrupt:
        interrupted = True
    return Result(
        Lesson(tuple(played), NAMES[index] if index < last else ""),
        partial(view.lesson_view, interrupted=interrupted),
        is_shown=session.is_interactive,
        interrupted=interrupted,
        errors=(Error("Interrupted."),) if interrupted else (),
    )


def _exercises(options: LearnOptions) -> Result:
    """Write the exercises, or show a hint."""
    from distdemo.learn import exercises, exercises_view

    name, folder, number = options.step, options.write, options.hint
    if number is None and folder is not None and name is None:
        return Result(exercises.write_exercises(folder), exercises_view.exercises_view)
    if number is not None and folder is None and name is not None:
        return Result(exercises.hint(name, number), exercises_view.hint_view)
    raise UsageError(
        "--hint requires the name of an exercise."
        if folder is None
        else "--write writes all exercises.",
        "A hint belongs to one exercise, and --write takes no name and no hint.",
        "Try distdemo learn ring --hint 1, or distdemo learn --write exercises.",
    )


def find_step(text: str) -> Step:
    """Return a step by its name or number.

    Raises:
        UsageError: There is no such step.
    """
    name = text.lower().replace("_", "-")
    if name.isdecimal() and 1 <= int(name) <= len(NAMES):
        name = NAMES[int(name) - 1]
    if name not in STEPS:
        raise unknown("step", NAMES, text, "distdemo learn")
    return STEPS[name]


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
    from distdemo.learn.trial import play_step

    prediction = _prediction(session, step)
    if prediction is None:
        return None
    with session.waiting(f"{step.name} on {step.world_size} ranks", world):
        played = play_step(step, world, prediction)
    session.show(partial(view.result_view, played))
    session.show(view.gap)
    return played


def _prediction(session: Session, step: Step) -> str | None:
    """Return the learner's prediction, empty for none, or None to stop.

    In a terminal, an answer that doesn't have the form of a prediction is asked for again.
    """
    from distdemo.learn import view

    while True:
        typed = session.ask("Your prediction: ")
        if typed is None:
            return None if session.is_interactive else ""
        if typed.lower() in QUIT:
            return None
        if not (typed and session.is_interactive) or fits(typed, step.answer):
            return typed
        session.show(partial(view.help_view, step, typed))


def _choice(session: Session, index: int) -> str:
    """Return what the learner wants after a step: nothing to continue, or one of BACK or QUIT.

    Args:
        session: Session, which is interactive.
        index: Index of the following step.
    """
    from distdemo.learn import view

    while True:
        typed = session.ask(
            f"Enter continues with step {index + 1}, {NAMES[index]}; b goes back, q stops: "
        )
        choice = QUIT[0] if typed is None else typed.lower()
        if choice in ("", *BACK, *QUIT):
            return choice
        session.show(view.choices_view)
