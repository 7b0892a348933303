"""Make Python on Linux behave to distdemo as on macOS, in every process: `make test-portable`.

Only psutil and the tests themselves read ``/proc``; for everything else it doesn't exist, and what
tries is written to a file. Functions that only Linux has are removed from Python. distdemo's own
`Platform` is the one of other systems, because ``sys.platform`` differs while it is imported; torch
and other libraries would not survive that.
"""

from __future__ import annotations

import ctypes
import errno
import multiprocessing.connection  # noqa: F401 - so that it isn't imported as on macOS
import os
import select
import selectors  # noqa: F401 - keeps its own epoll, which has a descriptor as kqueue has
import signal
import socket
import sys
import tempfile  # noqa: F401 - as above
from pathlib import Path
from types import FrameType

SYSTEM = os.environ["DISTDEMO_TEST_SYSTEM"]
"""Path of the file for what tried to read ``/proc``."""
ONLY_LINUX = {
    os: "memfd_create pidfd_open sched_getaffinity sched_setaffinity eventfd splice "
    "copy_file_range getrandom setns unshare posix_fadvise MFD_CLOEXEC",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    select: "epoll",
    socket: "SO_PEERCRED AF_NETLINK AF_VSOCK SO_BINDTODEVICE MSG_NOSIGNAL",
}
TESTS = str(Path(__file__).parents[2])
OURS = str(Path(__file__).parents[3] / "distdemo")


def forbid_proc(event: str, args: tuple[object, ...]) -> None:
    """Raise the error of a system without ``/proc`` and ``/sys``, unless psutil or a test reads."""
    if event in ("open", "os.listdir", "os.scandir") and args:
        path = args[0].decode() if isinstance(args[0], bytes) else args[0]
        if isinstance(path, str) and f"{path}/".startswith(("/proc/", "/sys/")):
            if path in ("/proc/kmsg", "/proc/self/mem"):
                return  # tests name them, as a user might
            frame: FrameType | None = sys._getframe(1)
            while frame is not None:
                file = frame.f_code.co_filename
                if file.startswith(TESTS) or "/psutil/" in file:
                    return
                if "/site-packages/" in file:  # another library's, which has its own way on macOS
                    break
                if file.startswith(OURS) and path.startswith("/proc"):
                    record(f"{path}, opened by {file}:{frame.f_lineno}")
                    break
                frame = frame.f_back
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)


def record(line: str) -> None:
    """Append a line to the file."""
    fd = os.open(SYSTEM, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def without_prctl(self: ctypes.CDLL, name: str) -> object:
    """Find a function of a C library, but not prctl."""
    if name == "prctl":
        raise AttributeError(name)
    return find(self, name)


for module, names in ONLY_LINUX.items():
    for name in names.split():
        vars(module).pop(name, None)
find = ctypes.CDLL.__getattr__
ctypes.CDLL.__getattr__ = without_prctl  # type: ignore[assignment, method-assign]
platform = sys.platform
sys.platform = "darwin"
try:
    import distdemo.platform
finally:
    sys.platform = platform
assert not distdemo.platform.system.is_linux
sys.addaudithook(forbid_proc)
