"""A check as GitHub's workflow commands: annotations on the run and on its pull request.

Form and escapes: docs.github.com, "Workflow commands for GitHub Actions", and ``command.ts`` of
actions/toolkit. More than ten of a kind in one step have
been seen to get lost on GitHub's runners without a word.
"""

from __future__ import annotations

from distdemo.check.records import CaseResult, CheckReport
from distdemo.check.view_grid import verdict
from distdemo.view.numbers import plural

LIMIT = 10  # annotations of one kind in a step
LINES = 5  # of a failure's details; the log and the JUnit report have all


def github_annotations(report: CheckReport) -> list[str]:
    """An error for each failed case, or a notice that all is well; never more than are shown.

    The last error sums up where the others don't tell it all: further failures, cases that were
    not run, no case at all.
    """
    where = f"{report.backend} on {report.device}"
    if report.ok:
        return [_command("notice", f"distdemo check: {where}", verdict(report))]
    errors = [_failure(result) for result in report.results if result.status == "failed"]
    if errors and len(errors) <= LIMIT and not report.count("not run"):
        return errors
    shown = errors[: LIMIT - 1]
    return [*shown, _command("error", f"distdemo check: {where}", _summary(report, len(shown)))]


def _failure(result: CaseResult) -> str:
    lines = [result.why or "failed", *result.details[:LINES]]
    if result.command:
        lines.append(f"Run it alone: {result.command}")
    return _command("error", f"distdemo check: {result.id}", "\n".join(lines))


def _summary(report: CheckReport, shown: int) -> str:
    lines = [verdict(report)]
    hidden = report.count("failed") - shown
    if hidden:
        lines.append(f"{plural(hidden, 'more failure')} in the log.")
    reasons = {result.why: None for result in report.results if result.status == "not run"}
    lines += [f"Not run: {why}" for why in reasons if why][:LINES]
    return "\n".join(lines)


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """A message: the per cent sign first, for the other escapes contain it."""
    text = text.encode("utf-8", "replace").decode()  # a file name's stray bytes can't be printed
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property's value, in which a colon or comma would end it."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
