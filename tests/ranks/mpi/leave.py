"""Rank 1 exits with status 3 while rank 0 waits for it. Run by the ranks of a group over MPI."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ranks.mpi.crash import forsaken

if forsaken():
    sys.exit(3)
