"""The start-up benchmark's all_reduce under torchrun, with a check of the result."""

from __future__ import annotations

import torch
import torch.distributed as dist


def main() -> None:
    """Join torchrun's world and all-reduce four elements."""
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    tensor = torch.arange(4.0) + 10 * dist.get_rank()
    dist.all_reduce(tensor)
    expected = torch.arange(4.0) * size + 10 * sum(range(size))
    if not torch.equal(tensor, expected):
        raise SystemExit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
