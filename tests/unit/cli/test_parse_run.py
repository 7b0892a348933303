"""The flags of ``run``: which program they name, how it is run, and what is refused by reading."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
from distdemo.cli.silence import speaks

from distdemo.cli.main import _rewritten, _wants_json
from distdemo.cli.parse import LONGEST
from distdemo.errors import UsageError
from distdemo.launcher.records import UserProgram
from distdemo.run.parse_run import RunRequest, parse_run
from distdemo.run.run_options import _files

NOTHING: dict[str, Any] = {
    "words": None,
    "module": None,
    "script": False,
    "pdb": None,
    "run_size": None,
    "backend": "auto",
    "device": None,
    "run_timeout": None,
    "idle": None,
    "start_method": "auto",
    "run_launcher": "auto",
    "tee": False,
    "only_ranks": None,
    "format": "table",
    "quiet": False,
    "traceback": False,
}
TUTORIAL = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp

def run(rank, size):
    pass

def init_process(rank, size, fn, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)

if __name__ == "__main__":
    processes = []
    for rank in range(2):
        p = mp.Process(target=init_process, args=(rank, 2, run))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
"""
DDP_TUTORIAL = """
import torch.distributed as dist
import torch.multiprocessing as mp

def setup(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)

def demo_basic(rank, world_size):
    setup(rank, world_size)

def run_demo(demo_fn, world_size):
    mp.spawn(demo_fn, args=(world_size,), nprocs=world_size, join=True)

if __name__ == "__main__":
    run_demo(demo_basic, 2)
"""
TRAINER = """
class Trainer:
    def __init__(self):
        self.setup()

    def setup(self):
        dist.init_process_group()

def main(args):
    Trainer()

if __name__ == "__main__":
    main(1)
"""
MULTI_GPU = """
from torch.distributed import init_process_group
import torch.multiprocessing as mp

def ddp_setup(rank, world_size):
    init_process_group("gloo", rank=rank, world_size=world_size)

def main(rank: int, world_size: int, save_every: int, total_epochs: int):
    ddp_setup(rank, world_size)

if __name__ == "__main__":
    mp.spawn(main, args=(2, 1, 1), nprocs=2)
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parsed(*words: str, **flags: Any) -> RunRequest:
    return parse_run({**NOTHING, "words": list(words), **flags})


def refused(*words: str, **flags: Any) -> str:
    with pytest.raises(UsageError) as caught:
        parsed(*words, **flags)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.hint
    return str(caught.value)


def write(text: str, name: str = "prog.py") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return name


def how(text: str, suffix: str = "", **flags: Any) -> tuple[str, bool]:
    """The function that is called, empty for the whole program; whether its group is made."""
    request = parsed(write(text) + suffix, **flags)
    assert request.world.user_program is not None
    return request.program.function, request.world.user_program.group


# --------------------------------------------------------------------------- a function, or whole


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("def run(rank, size): pass", "run"),
        ("def main(): pass", "main"),
        ("def main(): pass\ndef run(rank): pass", "run"),
        ("run = lambda rank, size: rank", "run"),
        ("try:\n    import x\nexcept ImportError:\n    def run(): pass", "run"),
        (TUTORIAL, "run"),
        ("def main(): print(1)\nif __name__ == '__main__':\n    main()", "main"),
        ("import random\ndef run(rank, size): random.init()", "run"),
        ("async def run(rank, size): pass\ndef main(): pass", "main"),
    ],
)
def test_a_function_is_called_with_its_group_ready(text: str, function: str) -> None:
    assert how(text) == (function, True)


@pytest.mark.parametrize(
    "text",
    [
        "print('hello')",
        "def main(): pass\nmain()",
        "def run(n): pass\nfor n in range(3):\n    run(n)",
        "",
        "class run: pass",
        "async def main(): pass\nimport asyncio\nasyncio.run(main())",
        "import torch.distributed as dist\ndist.init_process_group()",
        "from torch.distributed import init_process_group as start\ndef run(): pass\nstart()",
        "def main():\n    dist.init_process_group('gloo')\nif __name__ == '__main__':\n    main()",
        "def setup():\n    dist.init_process_group()\ndef main():\n    setup()\nmain()",
        "def setup():\n    dist.init_process_group()\ndef main():\n    setup()\nfire.Fire(main)",
        "def main():\n    rpc.init_rpc('a')\nimport sys\nsys.exit(main())",
        TRAINER,
        "def setup():\n    dist.init_process_group()\ndef main(args): pass\nsetup()\nmain(1)",
        "def main():\n    dist.init_process_group()\nrecord(main)()",
    ],
)
def test_a_program_that_makes_its_own_group_runs_whole(text: str) -> None:
    assert how(text) == ("", False)


def test_script_runs_it_whole_whatever_it_has() -> None:
    assert how("def run(rank, size): pass", script=True) == ("", False)
    assert "don't go together" in refused(write("def run(): pass") + ":run", script=True)


def test_a_named_function_may_make_the_group_itself() -> None:
    assert how(DDP_TUTORIAL, ":demo_basic") == ("demo_basic", False)
    assert how(TUTORIAL, ":run") == ("run", True)


def test_a_main_that_takes_a_rank_is_no_script() -> None:
    request = parsed(write(MULTI_GPU), "--", "5", "10")
    assert request.program.function == "main"
    assert request.program.arguments == ("5", "10")
    assert request.world.user_program == UserProgram(group=False)


def test_a_program_that_would_start_ranks_on_every_rank() -> None:
    text = refused(write(DDP_TUTORIAL))
    assert "starts ranks of its own, in line 12" in text
    assert "every rank: prog.py:demo_basic; or" in text
    own_main = DDP_TUTORIAL.replace('if __name__ == "__main__":', "def main():")
    assert "starts ranks of its own" in refused(write(own_main))
    assert how(DDP_TUTORIAL, script=True) == ("", False)
    workers = "def load(): pass\ndef run(): \n    mp.Process(target=load).start()\n"
    assert how(workers + "def other(): dist.init_process_group()") == ("run", True)


# ------------------------------------------------------------------------------- what is no program


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "No program is given"),
        (["--", "prog.py"], "No program is given"),
        (["porg.py"], "Did you mean prog.py"),
        (["nowhere/prog.py"], "folder is missing"),
        (["folder"], "without a __main__.py"),
        (["notes.ipynb"], "is no Python file"),
        (["wrong.py"], "wrong.py, line 2: "),
        (["wrong.py:run"], "wrong.py, line 2: "),
        (["zero.py"], "zero.py"),
        (["latin.py"], "latin.py"),
        (["prog.py:"], "comes the name of a function"),
        (["prog.py:1x"], "comes the name of a function"),
        (["prog.py:urn"], "Did you mean prog.py:run"),
        (["prog.py:Model"], "Model is a class"),
        (["prog.py:later"], "later is async"),
        (["prog.py:yielding"], "yielding is a generator function"),
        (["empty.py:run"], "no function at its top level"),
        (["prog.py", "10"], "Try distdemo run prog.py -- 10"),
        (["prog.py", "--", "10"], "prog.py:run takes no arguments, and 1 was given."),
        (["prog.py:train"], "prog.py:train needs 1 argument, and none was given."),
        (["prog.py:train", "--", "a"], "can't take 'a' as lr"),
    ],
)
def test_what_can_not_be_run(words: list[str], expected: str) -> None:
    write(
        """
        class Model: pass
        async def later(): pass
        def yielding(rank):
            yield rank
        def run(rank, size): pass
        def train(rank, size, lr: float, steps=3): pass
        """
    )
    Path("folder").mkdir()
    write("{}", "notes.ipynb")
    write("x = 1\ndef run(:\n", "wrong.py")
    write("", "empty.py")
    Path("zero.py").write_bytes(b"x = '\0'\n")
    Path("latin.py").write_bytes("x = 'ä'\n".encode("latin-1"))
    assert expected in refused(*words)


def test_other_encodings_and_other_kinds_of_programs() -> None:
    Path("latin.py").write_bytes("# coding: latin-1\ndef run(): return 'ä'\n".encode("latin-1"))
    assert parsed("latin.py").program.function == "run"
    write("print(1)", "folder/__main__.py")
    assert parsed("folder").program.function == ""
    write("def run(): pass", "script")
    assert parsed("script").program.function == "run"
    with zipfile.ZipFile("app.pyz", "w") as archive:
        archive.writestr("__main__.py", "print(1)")
    assert parsed("app.pyz").program.function == ""
    assert "no function of it" in refused("app.pyz:run")
    write("def run(): pass", "a:b.py")
    assert parsed("a:b.py").program.file == "a:b.py"


def test_a_file_is_read_and_not_run() -> None:
    write("import sys\nsys.exit('run!')\ndef run(): pass\n")
    assert parsed("prog.py").program.function == "run"
    assert "prog" not in sys.modules


# ----------------------------------------------------------------------------------------- modules


def test_modules() -> None:
    write("raise SystemExit('imported!')", "pack/__init__.py")
    write("def run(rank, size, lr): pass", "pack/train.py")
    write("print(1)", "pack/__main__.py")
    assert parsed(module="pack.train").program.function == ""
    request = parsed("--", "0.1", module="pack.train:run")
    assert (request.program.module, request.program.function) == ("pack.train", "run")
    assert request.program.arguments == ("0.1",)
    assert request.world.user_program == UserProgram(group=True)
    assert parsed("--", "--lr", "3", module="pack").program.arguments == ("--lr", "3")
    assert parsed(module="pack").world.user_program == UserProgram(group=False)
    assert "pack" not in sys.modules
    assert "Did you mean pack.train:run?" in refused(module="pack.train:rum")
    assert "needs 1 argument" in refused(module="pack.train:run")


@pytest.mark.parametrize(
    ("words", "flags", "expected"),
    [
        ([], {"module": "no_such.thing"}, "There is no module 'no_such'"),
        ([], {"module": "json.thing"}, "There is no module 'json.thing'"),
        ([], {"module": "email"}, "email is a package without a __main__"),
        ([], {"module": "a/b.py"}, "that is no module"),
        ([], {"module": "json:"}, "that is no module"),
        (["x"], {"module": "json.tool"}, "Try distdemo run -m json.tool -- x"),
        ([], {"module": "json.tool", "script": True}, "--script means nothing with -m"),
    ],
)
def test_what_is_no_module(words: list[str], flags: dict[str, Any], expected: str) -> None:
    assert expected in refused(*words, **flags)


# ---------------------------------------------------------------------------------- the world


def test_the_world_by_default() -> None:
    request = parsed(write("def run(rank, size): pass"))
    world = request.world
    assert (world.world_size, world.backend, world.device) == (4, "gloo", "cpu")
    assert (world.deadline, world.stall, world.capture) == (LONGEST, 60.0, True)
    assert request.view.ranks is None


@pytest.mark.parametrize(
    ("idle", "patience"),
    [("0", None), ("never", None), ("2.5", 2.5), ("30s", 30.0)],
)
def test_idle(idle: str, patience: float | None) -> None:
    assert parsed(write("def run(): pass"), idle=idle).world.stall == patience


def test_a_debugged_rank_has_the_terminal_and_all_the_time() -> None:
    request = parsed(write("def run(): pass"), pdb="2")
    assert request.pdb == 2
    assert request.world.user_program == UserProgram(group=True, stdin=2, terminal=2)
    assert request.world.stall is None
    assert parsed("prog.py", pdb="2", idle="9").world.stall == 9


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"run_size": "0"}, "--world-size"),
        ({"only_ranks": "4"}, "--only 4"),
        ({"pdb": "4"}, "--pdb 4"),
        ({"idle": "-1"}, "--idle -1"),
        ({"idle": "soon"}, "--idle soon"),
        ({"run_timeout": "0"}, "--timeout 0"),
        ({"backend": "nope"}, "nope"),
        ({"start_method": "nope"}, "nope"),
        ({"run_launcher": "torchrun"}, "torchrun"),
        ({"tee": True, "format": "json"}, "--tee and --format json"),
        ({"pdb": "0", "format": "json"}, "--pdb and --format json"),
    ],
)
def test_flags_that_make_no_world(flags: dict[str, Any], expected: str) -> None:
    assert expected in refused(write("def run(): pass"), **flags)


def test_a_program_that_makes_its_own_group_chooses_its_own_backend() -> None:
    write("import torch.distributed as dist\ndist.init_process_group()")
    assert parsed("prog.py").world.backend == "gloo"
    assert parsed("prog.py", backend="mpi").world.backend == "mpi"
    assert "no backend 'nope'" in refused("prog.py", backend="nope")
    assert "--device cpu means nothing here" in refused("prog.py", device="cpu")


def test_within_the_world_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TORCHELASTIC_RUN_ID": "none",
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    write("def run(): pass")
    assert "torchrun has started this process" in refused("prog.py")
    assert parsed("prog.py", run_launcher="local").world.world_size == 4


# ------------------------------------------------------------------------- whose words they are


def test_what_comes_after_two_dashes_is_the_programs() -> None:
    line = ["run", "x.py", "-n", "2", "--", "--format", "json", "--", "-q", "--launcher", "mpi"]
    assert _rewritten(line) == [*line[:5], *line[4:]]
    assert not _wants_json(line)
    assert _wants_json(["run", "x.py", "--format", "json", "--", "--format", "table"])
    before = ["-q", "run", "x.py", "--", "all-reduce"]
    assert _rewritten(before) == ["run", "-q", "x.py", "--", "--", "all-reduce"]


def test_a_programs_words_do_not_say_who_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert speaks(["run", "x.py", "--launcher", "local"])
    assert not speaks(["run", "x.py", "--", "--launcher", "local"])
    assert not speaks(["run", "x.py", "--", "--nnodes", "2"])


def test_reading_a_program_imports_no_torch() -> None:
    write("def run(rank, size): pass")
    line = [sys.executable, "-X", "importtime", "-m", "distdemo", "run", "prog.py", "--", "1"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "prog.py:run takes no arguments" in done.stderr
    assert "| torch\n" not in done.stderr


def test_a_shell_offers_python_files_and_the_folders_on_the_way() -> None:
    for name in ("prog.py", "pro.txt", "pack/train.py"):
        write("", name)
    assert _files("p") == ["pack/", "prog.py"]
    assert _files("./pr") == ["./prog.py"]
    assert _files("pack/") == ["pack/train.py"]
    assert _files("nowhere/") == []
