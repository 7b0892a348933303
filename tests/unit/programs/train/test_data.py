from __future__ import annotations

import gzip
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from distdemo.errors import UsageError
from distdemo.train import digits
from distdemo.train.data import Samples, data_of
from distdemo.train.generated import generate
from distdemo.train.mnist import read_mnist
from distdemo.train.prepare import prepare
from distdemo.train.records import TrainSpec

needs_digits = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="needs scikit-learn: pip install 'distdemo[digits]'"
)


def test_the_spread_of_the_numbers_is_told():
    data = data_of("w", 2, Samples(bytes([0, 2, 4, 6]), bytes([0, 2])), Samples(b"", bytes([1])))
    assert (data.mean, data.spread) == (3, 5**0.5)
    assert data.classes == 3
    assert len(data.train) == 2
    assert data_of("w", 1, Samples(bytes(4), bytes(4)), Samples(b"", b"\1")).spread == 1.0


# ------------------------------------------------------------------------------------ generated


def test_generated_data_is_that_of_its_seed():
    data = generate(7)
    assert data == generate(7)
    assert data.train.inputs != generate(8).train.inputs
    assert data.train.inputs != data.test.inputs
    assert set(data.train.labels) == set(range(10))
    assert len(data.train.inputs) == len(data.train) * data.features


# --------------------------------------------------------------------------------------- digits


@needs_digits
def test_digits_are_those_of_scikit_learn_and_no_sample_is_in_both_parts():
    data = digits.read_digits()
    assert len(data.train) == 1438
    assert len(data.test) == 359
    assert data.features == 64
    assert data.classes == 10
    train, test = (
        {part.inputs[start : start + 64] for start in range(0, len(part.inputs), 64)}
        for part in (data.train, data.test)
    )
    assert len(train) == 1438
    assert not train & test


def test_without_scikit_learn_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as error:
        prepare(TrainSpec(dataset="digits"), 2)
    assert "pip install 'distdemo[digits]'" in error.value.hint


ROW = b",".join([b"3"] * 64) + b",7\n"


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(ROW)[:-9],
        gzip.compress(b"1,2,3\n"),
        gzip.compress(ROW.replace(b"3", b"17")),
        gzip.compress(ROW.replace(b"7", b"10")),
        gzip.compress(ROW.replace(b"3", b"x")),
        gzip.compress(b""),
    ],
)
def test_a_file_of_digits_that_is_broken_is_named(content, tmp_path, monkeypatch):
    file = tmp_path / "digits.csv.gz"
    file.write_bytes(content)
    monkeypatch.setattr(digits, "_file", lambda: file)
    with pytest.raises(UsageError) as error:
        digits.read_digits()
    assert str(file) in error.value.what
    assert error.value.why


def test_scikit_learn_is_asked_where_its_file_is_elsewhere(tmp_path, monkeypatch):
    asked = ModuleType("sklearn.datasets")
    rows = ([[float(n)] * 64 for n in range(10)], list(range(10)))
    asked.load_digits = lambda *, return_X_y: rows  # type: ignore[attr-defined]  # noqa: N803 - theirs
    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", asked)
    monkeypatch.setattr(digits, "_file", lambda: tmp_path / "absent")
    data = digits.read_digits()
    assert data.test.labels == bytes([4, 9])
    assert data.test.inputs == bytes([4] * 64 + [9] * 64)


# ---------------------------------------------------------------------------------------- mnist

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(*lengths: int, numbers: bytes | None = None) -> bytes:
    head = bytes([0, 0, 8, len(lengths)]) + b"".join(n.to_bytes(4, "big") for n in lengths)
    total = 1
    for length in lengths:
        total *= length
    return head + (bytes(n % 10 for n in range(total)) if numbers is None else numbers)


@pytest.fixture
def folder(tmp_path):
    contents = (idx(30, 4, 3), idx(30), idx(10, 4, 3), idx(10))
    for name, content in zip(NAMES, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_mnist_is_read(folder):
    data = prepare(TrainSpec(dataset="mnist", data_dir=str(folder), batch_size=8), 4)
    assert (len(data.train), len(data.test), data.features, data.classes) == (30, 10, 12, 10)
    assert data.words == "MNIST's files, 4×3"
    assert data.train.inputs[:12] == bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])


def test_files_may_be_packed_and_spelled_with_a_dot(folder):
    wanted = read_mnist(str(folder))
    for name in NAMES:
        path = folder / name
        packed = folder / (name.replace("-idx", ".idx") + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read_mnist(str(folder)) == wanted


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (NAMES[0], None, "is not there"),
        (NAMES[0], b"", "It is empty"),
        (NAMES[0], gzip.compress(b""), "It is empty"),
        (NAMES[1], idx(30, numbers=bytes([1] * 29 + [10])), "tells class 10; there are 10, 0 to 9"),
        (NAMES[3], idx(10, numbers=bytes([255] * 10)), "tells class 255"),
        (NAMES[0], idx(30), "no IDX file of images"),
        (NAMES[1], idx(30, 4, 3), "no IDX file of labels"),
        (NAMES[0], idx(30, 4, 3)[:-1], "should hold 360 bytes (30×4×3), but holds 359"),
        (NAMES[0], idx(30, 4, 3) + b"x", "but holds 361"),
        (NAMES[0], idx(30, 4, 3)[:9], "should hold"),
        (NAMES[1], idx(29), "29 classes for 30 images"),
        (NAMES[2], idx(10, 3, 4), "those to test on are not"),
        (NAMES[2], gzip.compress(idx(10, 4, 3))[:-4], "ended before"),
        (NAMES[2], b"\x1f\x8bnonsense", "Unknown compression"),
    ],
)
def test_a_file_that_is_wrong_is_named(folder, name, content, said):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_mnist(str(folder))
    assert said in str(error.value)
    assert name in str(error.value) or "those to test on" in said
    assert error.value.hint


def test_no_images_are_refused(folder):
    (folder / NAMES[0]).write_bytes(idx(0, 4, 3))
    (folder / NAMES[1]).write_bytes(idx(0))
    with pytest.raises(UsageError, match="holds no image"):
        read_mnist(str(folder))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        read_mnist(str(tmp_path / "absent"))


def test_a_file_instead_of_the_folder_is_said_to_be_one(folder):
    with pytest.raises(UsageError, match="is a file, not a folder"):
        read_mnist(str(folder / NAMES[0]))
