from __future__ import annotations

import faulthandler
import os
import sysconfig
from pathlib import Path

import distdemo
from distdemo.launcher.records import Where
from distdemo.launcher.stacks import locate

SITE = sysconfig.get_path("purelib")
LIBRARY = sysconfig.get_path("stdlib")
OURS = Path(distdemo.__file__).parent


def stack(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {function}' for file, line, function in frames]
    return "\n".join(["Current thread 0x00007f1c2d3e4f50 (most recent call first):", *lines, ""])


TORCH = f"{SITE}/torch/distributed/distributed_c10d.py"
LOGGER = f"{SITE}/torch/distributed/c10d_logger.py"
LAUNCHER = (
    (f"{OURS}/launcher/api.py", 75, "_call"),
    (f"{OURS}/launcher/rank.py", 165, "_work"),
    (f"{LIBRARY}/multiprocessing/process.py", 108, "run"),
)


def test_a_rank_in_a_collective_is_found_with_the_user_s_line() -> None:
    text = stack(
        (TORCH, 2810, "all_reduce"),
        (LOGGER, 83, "wrapper"),
        ("/home/ada/train.py", 12, "step"),
        ("/home/ada/train.py", 30, "main"),
        *LAUNCHER,
    )
    assert locate(text) == Where("all_reduce", "train.py:12 in step")


def test_the_collective_is_the_one_that_the_user_called() -> None:
    text = stack(
        (TORCH, 3000, "_object_to_tensor"),
        (TORCH, 3100, "all_gather"),
        (LOGGER, 83, "wrapper"),
        (TORCH, 3200, "all_gather_object"),
        (LOGGER, 83, "wrapper"),
        ("/home/ada/train.py", 12, "step"),
    )
    assert locate(text) == Where("all_gather_object", "train.py:12 in step")


def test_a_rank_that_sleeps_is_in_no_collective() -> None:
    text = stack(("/home/ada/train.py", 7, "load"), ("/home/ada/train.py", 30, "main"), *LAUNCHER)
    assert locate(text) == Where("", "train.py:7 in load")


def test_library_code_below_the_user_s_line_is_passed_over() -> None:
    text = stack(
        (f"{LIBRARY}/threading.py", 1000, "wait"),
        (f"{SITE}/torch/utils/data/dataloader.py", 600, "__next__"),
        ("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"),
        ("/home/ada/train.py", 7, "load"),
    )
    assert locate(text) == Where("", "train.py:7 in load")


def test_a_library_is_one_wherever_it_is_installed() -> None:
    mine = "/home/ada/.local/lib/python3.12/site-packages"
    text = stack(
        (f"{mine}/torch/distributed/distributed_c10d.py", 2810, "all_reduce"),
        ("/home/ada/train.py", 7, "step"),
    )
    assert locate(text) == Where("all_reduce", "train.py:7 in step")


def test_the_frames_of_our_own_backend_hide_neither_the_collective_nor_the_user_s_line() -> None:
    text = stack(
        (f"{OURS}/backends/mpi/work.py", 90, "wait"),
        (f"{OURS}/backends/mpi/engine.py", 60, "go"),
        (TORCH, 2810, "all_reduce"),
        (LOGGER, 83, "wrapper"),
        ("/home/ada/train.py", 7, "step"),
        *LAUNCHER,
    )
    assert locate(text) == Where("all_reduce", "train.py:7 in step")


def test_a_collective_of_our_own_has_no_line_of_the_user_s() -> None:
    text = stack(
        (TORCH, 2810, "all_reduce"),
        (LOGGER, 83, "wrapper"),
        (f"{OURS}/ops/all_reduce.py", 50, "run"),
        *LAUNCHER,
    )
    assert locate(text) == Where("all_reduce", "")


def test_a_name_with_spaces_and_quotes_is_read() -> None:
    text = stack(('/home/ada/my "own" work/train it.py', 7, "load"))
    assert locate(text) == Where("", "train it.py:7 in load")


def test_text_without_a_stack_is_no_place() -> None:
    assert locate("") is None
    assert locate("\x00\x00garbage") is None


def test_the_stack_of_this_very_test_is_understood() -> None:
    # What faulthandler writes is its own affair and may change with a Python release.
    reader, writer = os.pipe()
    faulthandler.dump_traceback(writer, all_threads=False)
    os.close(writer)
    with os.fdopen(reader) as text:
        place = locate(text.read())
    assert place is not None
    assert place.collective == ""
    assert place.place.startswith("test_stacks.py:")
    assert place.place.endswith(" in test_the_stack_of_this_very_test_is_understood")
