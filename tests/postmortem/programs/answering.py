"""A process that answers as a rank over NCCL does, without NCCL: by a pipe for dumps, or as RAS.

It ends with its input. Sources: ``DumpPipe`` in torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp,
whose rank reads up to 128 bytes and writes its dump; src/ras/client_support.cc of NCCL.
"""

import os
import select
import socket
import sys
from pathlib import Path

ANSWER = Path(sys.argv[1]).read_bytes()
RANK = os.environ["RANK"]


def be_dumped() -> None:
    name = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{RANK}.pipe"
    os.mkfifo(name)
    pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    print("ready", flush=True)
    select.select([pipe], [], [])
    if os.read(pipe, 128):
        with Path(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + RANK).open("wb") as file:
            for part in (ANSWER[:9], ANSWER[9:]):
                file.write(part)
                file.flush()


def be_ras() -> None:
    host, _, port = os.environ["NCCL_RAS_ADDR"].rpartition(":")
    with socket.create_server((host, int(port))) as server:
        print("ready", flush=True)
        link, _ = server.accept()
        with link, link.makefile() as lines:
            for line in lines:
                match line.lower().split():
                    case ["client", "protocol", _]:
                        link.sendall(b"SERVER PROTOCOL 2\n")
                    case ["timeout", _] | ["set", "format", "json"]:
                        link.sendall(b"OK\n")
                    case ["verbose", "status"]:
                        link.sendall(ANSWER)
                        break
                    case _:
                        link.sendall(f"ERROR: Unknown command {line}".encode())
        sys.stdin.read()


if "NCCL_RAS_ADDR" not in os.environ:
    be_dumped()
elif RANK == "0":
    be_ras()
else:
    print("ready", flush=True)
sys.stdin.read()
