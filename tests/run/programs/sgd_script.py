import argparse
import json
import os

import torch.distributed as dist
from sgd import train  # type: ignore[import-not-found]  # next to this file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=size)
    print(json.dumps(train(rank, size, args.epochs)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
