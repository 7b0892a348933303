"""MNIST from the user's own files, and whatever else comes in its four files (Fashion-MNIST).

The files are in the IDX format, packed by gzip or not: two zero bytes, the kind of the numbers (8:
bytes), how many dimensions, the length of each as 4 bytes with the high byte first, the numbers.
Source: the description at the end of Yann LeCun's page of MNIST.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

from distdemo.errors import UsageError
from distdemo.train.data import Data, Samples, data_of

IMAGES, LABELS = 3, 1  # dimensions
BYTES = 8  # the kind
GZIP = b"\x1f\x8b"
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Idx:
    """A file that has been read.

    Attributes:
        path: where it was.
        lengths: of the dimensions.
        numbers: all of them.
    """

    path: Path
    lengths: tuple[int, ...]
    numbers: bytes


def read_mnist(folder: str) -> Data:
    """The images of this folder.

    Raises:
        UsageError: a file is missing, is another or ends too soon, or two don't fit together.
    """
    train, shape = _samples(folder, "train")
    test, other = _samples(folder, "t10k")
    if shape != other:
        raise _wrong(
            Path(folder), f"Its images to train on are {_size(shape)}, those to test on are not."
        )
    return data_of(f"MNIST's files, {_size(shape)}", math.prod(shape), train, test)


def _samples(folder: str, part: str) -> tuple[Samples, tuple[int, ...]]:
    """The images and digits of one part, and the rows and columns of an image."""
    images = read_idx(_find(folder, f"{part}-images", IMAGES), IMAGES)
    labels = read_idx(_find(folder, f"{part}-labels", LABELS), LABELS)
    count, *shape = images.lengths
    if count != labels.lengths[0]:
        raise _wrong(labels.path, f"It tells {labels.lengths[0]} classes for {count} images.")
    if 0 in images.lengths:
        raise _wrong(images.path, "It holds no image.")
    if max(labels.numbers) >= CLASSES:
        odd = max(labels.numbers)
        raise _wrong(labels.path, f"It tells class {odd}; there are {CLASSES}, 0 to {CLASSES - 1}.")
    return Samples(images.numbers, labels.numbers), tuple(shape)


def _find(folder: str, name: str, dimensions: int) -> Path:
    """The file of this name, in one of the spellings that are about."""
    kind = f"idx{dimensions}-ubyte"
    names = [f"{name}{dot}{kind}{end}" for dot in "-." for end in ("", ".gz")]
    for path in (Path(folder, each) for each in names):
        if path.is_file():
            return path
    raise UsageError(
        f"{Path(folder, names[0])} is not there, nor is {names[1]}.",
        _why_missing(Path(folder)),
        "Name the folder that holds them, or leave out --dataset for generated data.",
    )


def _why_missing(folder: Path) -> str:
    """Whoever mistyped the folder need not look for a file."""
    if folder.is_dir():
        return "MNIST is four files: train and t10k, images and labels."
    if folder.exists():
        return f"{folder} is a file, not a folder."
    return f"There is no folder {folder}."


def read_idx(path: Path, dimensions: int) -> Idx:
    """A file of bytes with so many dimensions.

    Raises:
        UsageError: it can't be read, is something else, or is too short or too long.
    """
    content = _content(path)
    if not content:
        raise _wrong(path, "It is empty.")
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, BYTES, dimensions]):
        what = "images" if dimensions == IMAGES else "labels"
        raise _wrong(path, f"It is no IDX file of {what}: it begins with {content[:4].hex(' ')}.")
    lengths = tuple(
        int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4)
    )
    found, wanted = len(content) - start, math.prod(lengths)
    if found != wanted:
        raise _wrong(path, f"It should hold {wanted} bytes ({_size(lengths)}), but holds {found}.")
    return Idx(path, lengths, content[start:])


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == GZIP else content
    except (OSError, EOFError, zlib.error) as error:
        raise _wrong(path, f"{str(error).strip() or type(error).__name__}.") from error


def _wrong(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} can't be used.", why, "Get it anew, or leave out --dataset for generated data."
    )


def _size(lengths: tuple[int, ...]) -> str:
    return "×".join(map(str, lengths))
