"""A rank that first reads a FIFO, and then joins the world."""

import os
import sys
from pathlib import Path

if os.environ["RANK"] == "1":
    Path(sys.argv[1], "late.1").read_text()  # late

import torch.distributed as dist

dist.init_process_group("gloo")  # others
dist.destroy_process_group()
