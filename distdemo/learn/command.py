"""``distdemo learn``: a path of short steps; predict, run, compare. ``distdemo mistakes``: bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo import backends, words
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, one_of, unknown
from distdemo.errors import UsageError
from distdemo.learn.catalogue import MISTAKES, STEPS, Example, find
from distdemo.learn.records import ExampleList, Lesson, LessonFolder, PlayedStep, compare
from distdemo.view.blocks import Block
from distdemo.view.console import Signs
from distdemo.view.format import listing, plural

DEADLINE_S = 60.0  # of a program that doesn't hang
QUIT = ("q", "quit", "exit")
BACK = "back"
PROMPT = "Your prediction: "


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
        typer.Option(
            metavar="FOLDER",
            help="Write exercises with tests, a notebook and slides to a new folder: those of "
            "STEP, or all.",
        ),
    ] = None
    solutions: Annotated[
        bool, typer.Option("--solutions", help="With --write: add the solutions, for lecturers.")
    ] = False


@command(
    record="distdemo.learn.records:ExampleList distdemo.learn.records:Lesson "
    "distdemo.learn.records:LessonFolder",
    epilog="Try: distdemo learn; distdemo learn ring; distdemo learn --write class --solutions",
)
def learn(session: Session, options: LearnOptions) -> Result:
    """Learn step by step; write exercises, a notebook, slides.

    Each step shows a program and asks what a rank will hold. Then the program runs on real ranks.
    Without a terminal only STEP runs, with the prediction from standard input, or the steps are
    listed. A wrong prediction is no failure.
    """
    from distdemo.learn import view

    if options.write is not None:
        step = None if options.step is None else [*STEPS.values()][_step_index(options.step)]
        return _write(session, options.write, step, solutions=options.solutions)
    if options.solutions:
        what = "--solutions requires --write FOLDER."
        raise UsageError(what, "They are files.", "Try distdemo learn --write class --solutions.")
    if options.step is None and not session.is_interactive:
        return Result(ExampleList(tuple(STEPS.values())), view.steps_view)
    session.show(view.welcome)
    lesson = _lesson(session, 0 if options.step is None else _step_index(options.step))
    return Result(lesson, view.lesson_view, is_shown=session.is_interactive)


def _lesson(session: Session, first: int) -> Lesson:
    """Play the steps from this index on until the learner stops; without a terminal, only one."""
    from distdemo.learn import view

    steps = [*STEPS.values()]
    if not session.is_interactive:
        steps = steps[: first + 1]
    played: dict[int, PlayedStep] = {}  # by index: a step that is played again counts once
    index = first
    while index < len(steps):
        current = index
        typed = _play(session, steps[current], played)
        if typed not in (None, BACK):
            index += 1
            if index < len(steps):
                go_on = f"Enter continues with step {index + 1}, {steps[index].name}; q stops: "
                typed = _ask(session, go_on, view.go_on_view)
        if typed is None:
            break
        if typed == BACK:
            index = max(current - 1, 0)
    following = steps[index].name if index < len(steps) else ""
    return Lesson(tuple(played[number] for number in sorted(played)), following)


def _step_index(text: str) -> int:
    """Return the position of the step with this name or number."""
    step = find(STEPS, text)
    if step is None:
        raise unknown("step", STEPS, text)
    return step.number - 1


def _write(session: Session, folder: Path, step: Example | None, *, solutions: bool) -> Result:
    """Write the exercises and slides of a step, or all, and the notebook.

    Raises:
        UsageError: The folder can't be written.
    """
    from distdemo.learn.folder import (
        check_new,
        exercise_files,
        exercises_of,
        slide_files,
        write_folder,
    )
    from distdemo.learn.view import folder_view

    check_new(folder)
    exercises = exercises_of(step)
    steps = [*STEPS.values()] if step is None else [step]
    slides = [(each.number, command) for each in steps for command in each.slides]
    files: dict[str, str | bytes] = {**exercise_files(exercises, solutions=solutions)}
    with session.waiting(f"drawing {plural(len(slides), 'slide')}"):
        for number, command in slides:
            files |= slide_files(number, command)
    write_folder(folder, files)
    mistakes = sum(exercise.name in MISTAKES for exercise in exercises)
    counts = (len(exercises) - mistakes, mistakes, len(slides))
    record = LessonFolder(str(folder), tuple(files), *counts, solutions=solutions)
    return Result(record, folder_view)


def _ask(
    session: Session,
    prompt: str,
    help_view: Callable[[Signs], Iterable[Block]],
    is_answer: Callable[[str], bool] = lambda _: False,
) -> str | None:
    """Ask for a line until it is empty, an answer, or `BACK`; without a terminal, return any line.

    Args:
        session: The session.
        prompt: Text before what is typed.
        help_view: View that replies to all other lines.
        is_answer: Function that returns True for an answer.

    Returns:
        The line; None at the end of the input, or if the learner quits.
    """
    typed = session.ask(prompt)
    while session.is_interactive and typed and not is_answer(typed):
        if typed.lower() in QUIT:
            return None
        if typed.lower() == BACK:
            return BACK
        session.show(help_view)
        typed = session.ask(prompt)
    return typed


def _play(session: Session, step: Example, played: dict[int, PlayedStep]) -> str | None:
    """Show a step, ask for a prediction, and run its program unless the learner stops or goes back.

    Args:
        session: The session.
        step: Step to play.
        played: Steps by their index; this one is added.

    Returns:
        What the learner typed, as `_ask` returns it; without a terminal, text.
    """
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.learn import view

    session.show(view.gap)
    session.show(partial(view.step_view, step))
    world = session.world(step.world_size, WorldOptions(backend="gloo", timeout=DEADLINE_S))
    session.prepare(world)  # while the learner reads
    if "DistributedDataParallel" in step.program:
        load_compiler()
    from distdemo.learn.trial import try_example

    prediction = _ask(
        session,
        PROMPT,
        partial(view.help_view, step),
        lambda typed: compare(typed, step.answer) is not None,
    )
    if session.is_interactive and prediction in (None, BACK):
        return prediction
    with session.waiting(f"{step.name} on {step.world_size} ranks", world):
        outcomes = try_example(step, world)
    result = played[step.number - 1] = PlayedStep(step, outcomes, prediction or "")
    session.show(partial(view.result_view, result))
    session.show(view.gap)
    return result.prediction


# ------------------------------------------------------------------------------------- mistakes


@dataclass(frozen=True, kw_only=True)
class MistakesOptions:
    """Options of ``distdemo mistakes``."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the mistake, or its number in the list. [default: list all]",
            autocompletion=offer(MISTAKES),
        ),
    ] = None
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            parser=one_of(backends.REGISTRY),
            help="Backend to run it over, such as mpi.",
            autocompletion=offer(backends.REGISTRY),
        ),
    ] = "gloo"
    explain: Annotated[bool, typer.Option("--explain", help="Explain the cause.")] = False


@command(
    record="distdemo.learn.records:ExampleList distdemo.learn.records:MistakeReport",
    epilog="Try: distdemo mistakes; distdemo mistakes shape --explain; distdemo mistakes root "
    "--backend mpi; distdemo learn --write lesson",
)
def mistakes(session: Session, options: MistakesOptions) -> Result:
    """Run common bugs: what each does, the report, and the fix.

    Each program runs on real ranks; one that hangs is stopped after two seconds. The exit code is
    0 if it behaves as documented and the repaired program is correct on every rank.
    """
    from distdemo.learn import view

    if options.name is None:
        return Result(ExampleList(tuple(MISTAKES.values())), view.mistakes_view)
    mistake = find(MISTAKES, options.name)
    if mistake is None:
        raise _unknown_mistake(options.name)
    session.understood(options.name, mistake.name)
    asked = WorldOptions(backend=options.backend, timeout=DEADLINE_S)
    world = session.world(mistake.world_size, asked)
    with session.waiting(f"{mistake.name} on {mistake.world_size} ranks", world):
        from distdemo.learn.trial import try_mistake

        report = try_mistake(mistake, backends.prepared(world))
    errors = tuple(map(Error, report.problems))
    return Result(report, partial(view.report_view, explain=options.explain), errors=errors)


def _unknown_mistake(text: str) -> UsageError:
    """Return the error for an unknown mistake; those with a finding of this kind are meant."""
    error = unknown("mistake", MISTAKES, text)
    kind = words.letters(text)
    found = [each.name for each in MISTAKES.values() if words.letters(each.finding) == kind]
    if not (error.why and kind and found):  # without a reason, a name is close
        return error
    names = f"The sanitizer's finding is {kind} in {listing(found)}."
    return UsageError(error.what, names, f"Try distdemo mistakes {found[0]}.")
