"""Program that waits for the end of its input on rank 0."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.stdout.write(f"{os.environ['RANK']} is ready\n")
    sys.stdin.read()
