"""Output of real gloo jobs that ended badly: more files never make a verdict worse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distdemo.postmortem.files import judge_files
from distdemo.postmortem.records import Postmortem

JOBS = Path(__file__).parent / "files" / "jobs"
PREFIX = re.compile(r"^\[default(\d)\]:", re.MULTILINE)
EXPECTED = {
    "sizes": "Rank {} died of ",
    "abort": "Rank {} died of SIGABRT.",
    "kill": "Rank {} died of SIGKILL.",
    "segv": "Rank {} died of SIGSEGV.",
    "term": "Rank {} died of SIGTERM.",
    "exception": "Rank {} raised ValueError: bad sample.",
    "memory": "Rank {} raised MemoryError.",
    "oomkill": "Rank {} died of SIGKILL.",
    "exit3": "Rank {} exited with code 3.",
    "exit0": "Rank {} left no error, and other ranks lost the connection",
    "late": "Rank {} left no calls, and all other ranks wait in call 7 of the default group",
    "latebroadcast": "Rank {} has not made call ",
}
"""Verdicts of all files together, by how the job ended. The rank is that at fault."""
ALL = ("stderr", "torchrun", "dumps")


def sections(job: str) -> dict[str, str]:
    """Return the files of a job by path, with the output of ranks and torchrun together."""
    text = (JOBS / f"{job}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^==> (\S+) <==\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def judged(job: str, folder: Path, *kinds: str, hosts: str = "node0 node1") -> Postmortem | None:
    """Return the verdict on the files of these kinds; None if the job left none.

    Args:
        job: Job.
        folder: Folder for the files.
        kinds: ``stderr`` of the ranks as ``--log-dir`` has it, ``torchrun``'s own lines, ``dumps``,
            ``tee`` or ``raw`` with both together, as torchrun prints them with and without --tee.
        hosts: Names of the hosts' folders.
    """
    files = sections(job)
    names = dict(zip(("node0", "node1"), hosts.split(), strict=True))
    count = 2 if "node1/torchrun.log" in files else 4
    for name, text in files.items():
        host = folder / names.get(name.partition("/")[0], "")
        if not name.endswith("torchrun.log"):
            if "dumps" in kinds:
                write(folder / name, text)
            continue
        lines = text.splitlines(keepends=True)
        for rank in range(count) if "stderr" in kinds else ():
            own = [line[11:] for line in lines if line.startswith(f"[default{rank}]:")]
            rank_folder = host / "logs" / "none_x" / "attempt_0" / str(rank)
            write(rank_folder / "stderr.log", "".join(own))
            write(rank_folder / "stdout.log", "step 1\n")
        if "torchrun" in kinds:
            write(host / "torchrun.log", "".join(x for x in lines if not PREFIX.match(x)))
        if "tee" in kinds:
            write(host / "torchrun.log", text)
        if "raw" in kinds:
            write(host / "torchrun.log", PREFIX.sub("", text))
    return judge_files([str(folder)]) if folder.exists() else None


def rank_at_fault(job: str) -> int:
    return 1 if job.endswith("1") else 2


def score(report: Postmortem | None, rank: int) -> int:
    """Return 2 if the verdict names this rank alone, 1 if among others, 0 if it names none."""
    ranks = report.findings[0].ranks if report is not None and report.findings else ()
    assert not ranks or rank in ranks, ranks
    return 2 if ranks == (rank,) else len(ranks) > 1


NAMES = sorted(path.stem for path in JOBS.glob("*.txt"))


@pytest.mark.parametrize("job", NAMES)
def test_more_files_never_make_the_verdict_worse(tmp_path: Path, job: str) -> None:
    rank = rank_at_fault(job)

    def scored(*kinds: str) -> int:
        return score(judged(job, tmp_path / "-".join(kinds), *kinds), rank)

    alone = scored("stderr")
    with_torchrun, with_dumps = scored("stderr", "torchrun"), scored("stderr", "dumps")
    assert alone <= min(with_torchrun, with_dumps)
    together = judged(job, tmp_path / "all", *ALL)
    assert together is not None
    kind = job.partition("-")[0]
    if job == "exit0-2":  # no line tells whose the errors in the ranks' logs are
        assert together.findings[0].what.startswith("Ranks 0, 2 left no calls")
        return
    assert max(with_torchrun, with_dumps) <= score(together, rank) == 2
    assert together.findings[0].what.startswith(EXPECTED[kind].format(rank))
    assert (kind == "sizes") == together.findings[0].rule.endswith("needn't be the one at fault.")
    assert len(together.findings) == 1


@pytest.mark.parametrize("job", [name for name in NAMES if not name.startswith("latebroadcast")])
@pytest.mark.parametrize("kind", ["tee", "raw"])
def test_all_output_in_one_file_per_host(tmp_path: Path, job: str, kind: str) -> None:
    assert score(judged(job, tmp_path / kind, kind), rank_at_fault(job)) == 2


def test_no_rank_is_blamed_while_the_ranks_of_a_host_are_unknown(tmp_path: Path) -> None:
    report = judged("abort-2", tmp_path, "stderr", hosts="alpha beta")
    assert report is not None
    (one,) = report.findings
    assert (one.ranks, one.consequences) == ((), (1,))
    assert one.what == (
        "Rank 1 lost the connection to a rank, and no file says which rank failed first."
    )


def table(*rows: tuple[int, int], forced: int = 0) -> str:
    """Return torchrun's output on these ranks and exit codes; the first is the root cause."""
    lines = [f"Unable to shutdown process {forced} via 15, forcefully exiting via 9"] * bool(forced)
    for number, (rank, code) in enumerate([*rows[1:], rows[0]], 1):
        head = "Root Cause (first observed failure):" if number == len(rows) else "Failures:"
        lines += [head, "[0]:", f"  rank      : {rank} (local_rank: {rank})"]
        lines += [f"  exitcode  : {code} (pid: {100 + rank})"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "ranks", "what"),
    [
        (table((1, -6)), (1,), "Rank 1 died of SIGABRT."),
        (table((1, -6), (0, -6)), (1,), "Rank 1 died of SIGABRT."),
        (table((0, 1), (1, -9)), (1,), "Rank 1 died of SIGKILL."),
        (table((0, 1), (1, 3)), (1,), "Rank 1 exited with code 3."),
        (table((0, 1), (1, -9), forced=101), (0,), "Rank 0 exited with code 1."),
        (table((0, -15), (1, -15)), (0,), "Rank 0 died of SIGTERM."),
    ],
)
def test_torchruns_root_cause_decides_between_equals(
    tmp_path: Path, text: str, ranks: tuple[int, ...], what: str
) -> None:
    write(tmp_path / "torchrun.log", text)
    (one,) = judge_files([str(tmp_path)]).findings
    assert (one.ranks, one.what) == (ranks, what)


def test_an_abort_by_nccls_watchdog_is_a_consequence(tmp_path: Path) -> None:
    said = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=BARRIER"
    )
    thrown = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  "
    write(tmp_path / "rank_0.log", f"{thrown}{said}, Timeout(ms)=9) ran for 9 milliseconds\n")
    write(tmp_path / "torchrun.log", table((0, -6), (1, 3)))
    (one,) = judge_files([str(tmp_path)]).findings
    assert (one.ranks, one.what) == ((1,), "Rank 1 exited with code 3.")


def test_only_the_last_attempt_of_torchrun_is_read(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 4\n{}\n'
    for attempt, error in enumerate(("ValueError: old", "ValueError: new")):
        write(tmp_path / f"none_x/attempt_{attempt}/0/stderr.log", trace.format(error))
    report = judge_files([str(tmp_path)])
    assert report.findings[0].what == "Rank 0 raised ValueError: new."
    assert len(report.findings) == 1
