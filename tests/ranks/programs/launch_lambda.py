"""A user's program that launches a lambda where that can't work, and prints what it is told."""

from __future__ import annotations

import distdemo

if __name__ == "__main__":
    try:
        distdemo.launch(lambda: 1, world_size=2, start_method="forkserver")
    except distdemo.UsageError as error:
        print(error)
