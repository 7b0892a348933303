"""Views of exercises: written files, and a hint."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.learn.records import ExerciseFolder, Hint
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural


def exercises_view(record: ExerciseFolder, _: Signs) -> Iterator[Block]:
    """Yield the files that were written."""
    yield Heading(record.folder)
    yield Paragraph("\n".join(f"  {name}" for name in record.files), verbatim=True)
    files = plural(len(record.files), "file")
    yield Summary(f"{files} in {record.folder}: start with README.md.")


def hint_view(record: Hint, sign: Signs) -> Iterator[Block]:
    """Yield the hint, and how to get the next one."""
    yield Heading(f"{record.exercise} {sign.dot} hint {record.number} of {record.count}")
    yield Paragraph(record.text)
    following = f"distdemo learn {record.exercise} --hint {record.number + 1}"
    last = record.number == record.count
    yield Paragraph("This is the last hint." if last else f"Next: {following}", colours.QUIET)
