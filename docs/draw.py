"""Draw the documents' pictures from real runs: docs/*.svg.

Run by ``make picture``. A second run only changes the measured times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS = {"all-reduce": "all-reduce", "scatter": "scatter", "trace-03": "trace"}
"""Command of each picture; trace draws one per round, of which this is the third."""


def main(folder: Path) -> None:
    """Draw all pictures into this folder."""
    with tempfile.TemporaryDirectory() as drawn:
        for name, command in COMMANDS.items():
            file = str(Path(drawn, f"{command}.svg"))
            run = [sys.executable, "-m", "distdemo", command, "-n", "4", "--output", file]
            subprocess.run(run, check=True)  # noqa: S603 - our own command
            shutil.copy(Path(drawn, f"{name}.svg"), folder / f"{command}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
