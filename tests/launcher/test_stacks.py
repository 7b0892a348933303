from __future__ import annotations

import sysconfig
from pathlib import Path

import distdemo
from distdemo.launcher.records import CodeLine, Position, ThreadPosition
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
    (f"{OURS}/api.py", 75, "_call"),
    (f"{OURS}/launcher/rank_process.py", 165, "_work"),
    (f"{LIBRARY}/multiprocessing/process.py", 108, "run"),
)


STEP = ("/home/ada/train.py", 12, "step")
STEP_LINE = CodeLine(*STEP)
MINE = "/home/ada/.local/lib/python3.12/site-packages"
STACKS = {
    "in a collective, with the user's line": (
        [(TORCH, 2810, "all_reduce"), (LOGGER, 83, "wrapper"), STEP, *LAUNCHER],
        Position("all_reduce", STEP_LINE),
    ),
    "the collective is the one that the user called": (
        [
            (TORCH, 3000, "_object_to_tensor"),
            (TORCH, 3100, "all_gather"),
            (LOGGER, 83, "wrapper"),
            (TORCH, 3200, "all_gather_object"),
            (LOGGER, 83, "wrapper"),
            STEP,
        ],
        Position("all_gather_object", STEP_LINE),
    ),
    "library code below the user's line is passed over": (
        [
            (f"{LIBRARY}/threading.py", 1000, "wait"),
            (f"{OURS}/mpi/engine.py", 90, "wait"),
            (f"{MINE}/torch/utils/data/dataset.py", 600, "get"),
            (f"{SITE}/torch/utils/data/dataloader.py", 600, "__next__"),
            ("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"),
            STEP,
            *LAUNCHER,
        ],
        Position("", STEP_LINE),
    ),
    "a collective of distdemo has no user frame": (
        [(TORCH, 2810, "all_reduce"), (f"{OURS}/ops/all_reduce.py", 50, "run"), *LAUNCHER],
        Position("all_reduce", CodeLine()),
    ),
    "no stack": ([], None),
}


def test_a_rank_is_found_by_its_stack() -> None:
    for name, (frames, where) in STACKS.items():
        assert locate(stack(*frames)) == where, name
    assert locate("\x00\x00garbage") is None


def test_other_threads_are_located_too() -> None:
    api = f"{SITE}/torch/distributed/rpc/api.py"
    inner = stack((api, 10, "rpc_sync"), ("/home/ada/train.py", 20, "outer"))
    idle = stack((f"{LIBRARY}/threading.py", 1000, "wait"))
    hook = f"{OURS}/calls/record/hooks.py"
    main = stack((hook, 300, "wait"), STEP, *LAUNCHER)
    threads = (text.replace("Current thread", "Thread") for text in (inner, inner, idle))
    where = locate("\n".join((*threads, main)))
    outer = ThreadPosition(2, "rpc_sync", CodeLine("/home/ada/train.py", 20, "outer"))
    assert where == Position("", STEP_LINE, others=(outer,))
