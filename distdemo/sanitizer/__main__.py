"""Run a program under the sanitizer: ``torchrun -m distdemo.sanitizer train.py ARGS``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from distdemo.__main__ import main
from distdemo.errors import UsageError
from distdemo.joined import engines


def command_line(words: list[str]) -> list[str]:
    """Return the equivalent arguments of ``distdemo``.

    Args:
        words: ``FILE ARGS`` or ``-m MODULE ARGS``, after options of ``run``, each in one word:
            ``--sanitize=buffers``.
    """
    named = (at for at, word in enumerate(words) if word == "-m" or not word.startswith("-"))
    start = next(named, len(words))
    end = start + 1 + (words[start : start + 1] == ["-m"])
    return ["run", *words[:end], "--", *words[end:]]


if __name__ == "__main__":
    line = command_line(sys.argv[1:])
    with suppress(UsageError):  # the command itself reports it
        line[1:1] = ["--quiet"] * (engines.detect(os.environ) is not None)
    sys.argv[1:] = line
    main()
