import json

import torch.distributed as dist
from collectives import six  # type: ignore[import-not-found]  # next to this file

if __name__ == "__main__":
    dist.init_process_group()
    print(json.dumps(six(dist.get_rank(), dist.get_world_size())))
    dist.destroy_process_group()
