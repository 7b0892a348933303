"""The interface to the operating system: processes, shared memory, CPUs, addresses.

`Platform` answers with Python and psutil, on every system. `Linux` answers from ``/proc`` and with
system calls of its own, which takes less time before the first rank, or says more.
"""

from __future__ import annotations

import sys

from distdemo.platform.portable import Platform

system: Platform
"""This system."""
if sys.platform == "linux":
    from distdemo.platform.linux import Linux

    system = Linux()
else:
    system = Platform()
