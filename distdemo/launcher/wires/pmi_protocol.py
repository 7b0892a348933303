"""PMI-1, the process manager's side: what MPICH's ranks ask on a socket, and what they are told.

Lines of ``name=value`` pairs, the first of which is ``cmd``. Here is no socket: lines go in and
answers come out. Source: the wire protocol as MPICH's ``src/pmi`` speaks it, and the Flux project's
RFC 13, which describes it.
"""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 1 << 14
"""Bytes of a line at most: many times what the limits that ranks are told allow."""

Answer = tuple[int, str]
"""A rank, and a line for it."""

_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"


class Exchange:
    """What all ranks of one world put down for each other.

    Args:
        size: how many ranks, all on this machine.
        name: of the world; MPICH derives the names of its shared memory from it.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self._waiting: set[int] = set()
        self._unended: set[int] = set()  # ranks in the middle of a command of several lines
        self._commands: dict[str, Callable[[int, dict[str, str]], list[Answer]]] = {
            "init": self._init,
            "put": self._put,
            "get": self._get,
            "barrier_in": self._barrier,
            "abort": self._abort,
        }
        self._plain = {
            "get_maxes": f"cmd=maxes rc=0 {_LIMITS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={name}",
            "get_universe_size": f"cmd=universe_size rc=0 size={size}",
            "finalize": "cmd=finalize_ack rc=0",
            "publish_name": "cmd=publish_result rc=-1 info=no_names_here msg=no_names_here",
            "unpublish_name": "cmd=unpublish_result rc=-1 info=no_names_here msg=no_names_here",
            "lookup_name": "cmd=lookup_result rc=-1 info=no_names_here msg=no_names_here",
            "getbyidx": "cmd=getbyidx_results rc=-1 reason=not_listed",
            "spawn": "cmd=spawn_result rc=-1 errmsg=no_more_ranks_here",
        }

    def answer(self, rank: int, line: str) -> list[Answer]:
        """What a rank's line calls for: lines for it, or for all when the last one came."""
        if line.startswith("mcmd="):
            self._unended.add(rank)
            return []
        if rank in self._unended:
            if line != "endcmd":
                return []
            self._unended.discard(rank)
            return [(rank, self._plain["spawn"])]  # the only command of several lines
        said = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
        command = said.get("cmd", "")
        if command in self._commands:
            return self._commands[command](rank, said)
        return [(rank, self._plain.get(command, "cmd=error rc=-1 msg=unknown_command"))]

    def _init(self, rank: int, said: dict[str, str]) -> list[Answer]:
        wanted = said.get("pmi_version", "1")
        code = 0 if wanted == "1" else -1
        return [(rank, f"cmd=response_to_init rc={code} pmi_version=1 pmi_subversion=1")]

    def _put(self, rank: int, said: dict[str, str]) -> list[Answer]:
        if "key" not in said or said.get("kvsname", self._name) != self._name:
            return [(rank, "cmd=put_result rc=-1 msg=no_such_space")]
        self._values[said["key"]] = said.get("value", "")
        return [(rank, "cmd=put_result rc=0 msg=success")]

    def _get(self, rank: int, said: dict[str, str]) -> list[Answer]:
        value = self._values.get(said.get("key", ""))
        if value is None:
            return [(rank, "cmd=get_result rc=-1 msg=key_not_found value=unknown")]
        return [(rank, f"cmd=get_result rc=0 msg=success value={value}")]

    def _abort(self, rank: int, said: dict[str, str]) -> list[Answer]:
        """It waits for no answer, and ends by itself."""
        return []

    def _barrier(self, rank: int, said: dict[str, str]) -> list[Answer]:
        self._waiting.add(rank)
        if len(self._waiting) < self._size:
            return []
        self._waiting.clear()
        return [(every, "cmd=barrier_out rc=0") for every in range(self._size)]


def segment_names(name: str) -> tuple[str, ...]:
    """What MPICH may call the files of shared memory of the world of this name, in ``/dev/shm``.

    A rank that is killed leaves them behind. Source: MPICH's ``posix_init.c``; the number is the
    name's FNV-1a hash (``mpir_pmi.c``), and 0 the number of the host.
    """
    number = 2166136261
    for byte in name.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return f"mpich_shm_{number:x}_0", f"mpich_vci_{number:x}_0"
