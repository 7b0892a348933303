"""Read the output of ``ncclras -f json`` and of ``py-spy dump``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES
from distdemo.postmortem.dumps import OPS, number, source_line, text_of, typed
from distdemo.postmortem.logs import Log
from distdemo.postmortem.records import CallState, GroupId, PastCall, RankCalls, RankEnd

STACK = re.compile(r"^Process \d+: .*\n(?:.*\n){0,3}?Thread ", re.MULTILINE)
"""Beginning of a stack."""
RAS = '"communicators"'
_THREAD = re.compile(
    r'^Thread (?:0x[\da-fA-F]+|\d+) \([^)]*\): "MainThread"\n((?: {4}.*\n?)*)', re.MULTILINE
)
_FRAME = re.compile(r"^ {4}(.+?) \(([^():]+)(?::(\d{1,9}))?\)$", re.MULTILINE)
_NO_COMMA = re.compile(r'(?<=[\w"])(\s*\n\s*"\w+"\s*:)')  # in missing_ranks of NCCL 2.28


def read_ras(text: str) -> Log:
    """Return what NCCL's RAS knows: the calls that each rank has launched, by op.

    Ranks are those of the largest communicator. Its last call that all have launched counts,
    and the next one. Format: NCCL's user guide, "RAS", and src/ras/client_support.cc.
    """
    log = Log()
    report = typed(loads(_NO_COMMA.sub(r",\1", text), max_bytes=MAX_BYTES), dict)
    communicators = [typed(comm, dict) for comm in typed(report["communicators"], list)]
    largest = max((number(comm["size"]) for comm in communicators), default=0)
    for comm in communicators:
        if comm["size"] != largest:
            continue
        counts: dict[str, dict[int, int]] = {}
        for rank in typed(comm["ranks"], list):
            for op, count in typed(rank["collective_counts"], dict).items():
                counts.setdefault(op, {})[number(rank["rank"])] = number(count)
        for op, count_of in counts.items():
            _add_counts(log, f"{text_of(comm['hash'])} {op}", op, count_of)
        for rank in typed(comm.get("missing_ranks", []), list):
            how = f"doesn't answer NCCL: process {rank.get('pid')!r} on {rank.get('host')!r}"
            log.ends.append((number(rank["rank"]), RankEnd(how[:200], "message")))
    return log


def _add_counts(log: Log, name: str, op: str, counts: Mapping[int, int]) -> None:
    group = GroupId(name, name, tuple(sorted(counts)))
    least = min(counts.values())
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()
    call = PartialCall(OPS.get(words, words), SourceLine(), count=-1)
    for rank, count in counts.items():
        calls = log.calls.setdefault(rank, RankCalls("nccl", is_dump=True))
        calls.groups.append(group)
        if least:
            calls.calls.append(PastCall(group, least, call, CallState.COMPLETED))
        if count > least:
            calls.calls.append(PastCall(group, least + 1, call, CallState.STARTED))


def read_stacks(stacks: Mapping[int, str]) -> dict[int, RankCalls]:
    """Return the call that each rank is in, by the stack of its main thread."""
    group = GroupId("stacks", "stacks", tuple(sorted(stacks)))
    ranks = {}
    for rank, text in stacks.items():
        thread = _THREAD.search(text)
        frames = [
            SourceLine(file, int(line or 0), function)
            for function, file, line in _FRAME.findall(thread[1] if thread else "")
        ]
        line = source_line(frames)
        ranks[rank] = RankCalls(is_dump=True, groups=[group], line=str(line))
        ops = [f.function for f in frames if "torch/distributed/" in f.file and f.line]
        ops = [op for op in ops if not op.endswith("wrapper")]
        if ops:
            call = PartialCall(ops[-1], line, count=-1)
            ranks[rank].calls = [PastCall(group, 1, call, CallState.STARTED)]
    return ranks
