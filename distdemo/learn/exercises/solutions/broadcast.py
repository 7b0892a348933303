import torch.distributed as dist


def broadcast(tensor):
    rank, n, distance = dist.get_rank(), dist.get_world_size(), 1
    while distance < n:
        if rank < distance and rank + distance < n:
            dist.send(tensor, rank + distance)
        elif distance <= rank < 2 * distance:
            dist.recv(tensor, rank - distance)
        distance *= 2
