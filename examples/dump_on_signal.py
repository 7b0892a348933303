"""Write this rank's dump of the flight recorder on SIGUSR1. Import this before torch."""

import os
import signal
import threading
from pathlib import Path

PREFIX = os.environ.get("TORCH_FR_DUMP_TEMP_FILE", "dumps/rank_")
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


def dump() -> None:
    """Wait for signals in a thread: Python's handlers don't run during a collective call."""
    while True:
        signal.sigwait({signal.SIGUSR1})
        from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]  # private

        path = Path(PREFIX + os.environ.get("RANK", "0"))
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_bytes(_dump_fr_trace())
        unfinished.replace(path)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # for torch's threads, too
threading.Thread(target=dump, daemon=True).start()
