"""Real handwritten digits of 8×8 pixels: the file that scikit-learn brings along.

The file is read without scikit-learn, whose import takes a second and starts threads, after which
ranks could not be forked. Only where the file is elsewhere scikit-learn is asked for the data.

Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository (its test set).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from distdemo.errors import UsageError
from distdemo.train.data import Data, Samples, data_of

FEATURES = 64
CLASSES = 10
LARGEST = 16
EVERY = 5
"""Every fifth sample is a test: the writers come one after the other, and all take part in both."""


def read_digits() -> Data:
    """The digits of the scikit-learn that is installed.

    Raises:
        UsageError: there is none, or its file can't be read.
    """
    rows = list(_rows())
    train = [row for place, row in enumerate(rows) if place % EVERY != EVERY - 1]
    test = rows[EVERY - 1 :: EVERY]
    return data_of("scikit-learn's digits, 8×8", FEATURES, _samples(train), _samples(test))


def _rows() -> Iterator[bytes]:
    """The pixels of a digit, and which it is."""
    file = _file()
    try:
        # A line is 65 small numbers: 0,0,5,...,0
        lines = gzip.decompress(file.read_bytes()).split()
        rows = [bytes(map(int, line.split(b","))) for line in lines]
    except FileNotFoundError:
        rows = _asked()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _broken(file, str(error)) from error
    if not rows or any(not _is_right(row) for row in rows):
        raise _broken(file, "It does not hold 64 pixels from 0 to 16 and a digit in each line.")
    return iter(rows)


def _file() -> Path:
    """Where scikit-learn keeps it; finding its folder does not import it."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "--dataset digits needs scikit-learn.",
            "The images come with it, and it is not installed.",
            "Try pip install 'distdemo[digits]', or leave out --dataset for generated data.",
        )
    return Path(next(iter(found.submodule_search_locations)), "datasets/data/digits.csv.gz")


def _asked() -> list[bytes]:
    """The same from scikit-learn itself."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise _broken(Path("scikit-learn"), str(error)) from error
    images, digits = load_digits(return_X_y=True)
    return [
        bytes([*map(int, image), int(digit)]) for image, digit in zip(images, digits, strict=True)
    ]


def _is_right(row: bytes) -> bool:
    return len(row) == FEATURES + 1 and max(row[:-1]) <= LARGEST and row[-1] < CLASSES


def _samples(rows: list[bytes]) -> Samples:
    return Samples(b"".join(row[:-1] for row in rows), bytes(row[-1] for row in rows))


def _broken(file: Path, why: str) -> UsageError:
    return UsageError(
        f"The digits can't be read from {file}.",
        why,
        "Install scikit-learn anew: pip install --force-reinstall scikit-learn.",
    )
