"""From the flags of ``bench fit`` to a frozen request; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distdemo.bench.fitting import MOST_RANKS
from distdemo.bench.models import ALGORITHMS
from distdemo.bench.parse_compare import parse_output
from distdemo.cli.files import check_distinct, check_named, check_plot, drawable
from distdemo.cli.parse import Flags, View, choose, parse_view, whole
from distdemo.cli.parse_sizes import parse_bytes
from distdemo.errors import UsageError

MOST = 50  # files, sizes or numbers of ranks that are asked for at once
PLOTS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What to fit, and what to predict from it.

    Attributes:
        paths: of the runs to fit.
        against: of those to hold predictions against.
        algorithm: the one to take α and β from; None: the best.
        ranks: of the worlds to predict.
        sizes: to predict, in bytes; empty: those that were measured.
    """

    paths: tuple[Path, ...]
    against: tuple[Path, ...]
    algorithm: str | None
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    view: View
    output: Path | None
    plot: Path | None


def parse_fit(flags: Flags) -> FitRequest:
    """The request.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    paths, against = _files(flags)
    ranks = tuple(dict.fromkeys(map(_ranks, flags["predicted"] or ())))
    sizes = tuple(dict.fromkeys(map(_size, flags["predicted_sizes"] or ())))
    if sizes and not (ranks or against):
        raise UsageError(
            "--size means nothing without --predict.",
            "It is the size of what is predicted.",
            "Add --predict 1000, or leave it out.",
        )
    names = dict.fromkeys(each.name for ways in ALGORITHMS.values() for each in ways)
    algorithm = flags["algorithm"]
    view = parse_view(flags, 1)
    plot, output = flags["fit_plot"], flags["fit_output"]
    check_named("--plot", plot, "fit.svg")
    check_plot(plot, PLOTS)
    check_distinct({"--plot": plot, "--output": output}, ("fit.svg", "result.json"))
    return FitRequest(
        paths=paths,
        against=against,
        algorithm=None if algorithm is None else choose("algorithm", algorithm, names),
        ranks=ranks,
        sizes=sizes,
        view=view,
        output=parse_output(output, tuple(map(str, (*paths, *against)))),
        plot=drawable(plot),
    )


def _files(flags: Flags) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Those to fit, and those to hold predictions against: none in both, none twice."""
    paths = tuple(map(Path, flags["fit_files"] or ()))
    against = tuple(map(Path, flags["against"] or ()))
    if not paths:
        raise UsageError(
            "bench fit needs a file.",
            "It fits what bench has measured and written.",
            "Try: distdemo bench all-reduce --output run.json; distdemo bench fit run.json.",
        )
    if max(map(len, (paths, against))) > MOST:
        raise UsageError(
            "bench fit got too many files.", f"It takes {MOST} at most.", "Take fewer."
        )
    seen: set[Path] = set()
    for path in (*paths, *against):
        if path.resolve() in seen:
            raise UsageError(
                f"{path} is named twice.",
                "Its times would count twice, or the prediction be held against itself.",
                "Name each file once.",
            )
        seen.add(path.resolve())
    return paths, against


def _ranks(text: str) -> int:
    count = whole("--predict", text, "It counts ranks.", "Try --predict 1000.")
    if not 2 <= count <= MOST_RANKS:
        raise UsageError(
            f"--predict {count}: that is out of range.",
            f"It counts ranks, 2 to {MOST_RANKS:,}; one alone sends nothing.",
            "Try --predict 1000.",
        )
    return count


def _size(text: str) -> int:
    size = parse_bytes("--size", text)
    if size < 1:
        raise UsageError(
            f"--size {text}: nothing takes no time to send.",
            "The model speaks of messages with something in them.",
            "Try --size 1M.",
        )
    return size
