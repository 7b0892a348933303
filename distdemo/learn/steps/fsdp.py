# number: 11
# title: FSDP: share out the parameters and gradients, too
# world_size: 3
# text: With ZeRO-1 every rank still stores all parameters and all gradients. Stage 3 of ZeRO,
#   fully_shard (FSDP2) in torch, stores one shard of each. Before a layer is used, all_gather
#   copies its parameters to all ranks, and they are freed afterwards. In the backward pass
#   reduce_scatter adds up the gradients, and each rank keeps those of its shard. The program does
#   this for one layer of 6 weights and counts the bytes that a rank keeps: its parameters, its
#   gradients and the state of Adam, which is two numbers per parameter. A float32 has 4 bytes.
# question: How many bytes does rank 1 keep with FSDP?
# form: one number, such as 7
# rank: 1
# column: FSDP
# expected: [{"gradient": [3, 3], "DDP": 96, "ZeRO-1": 64, "FSDP": 32}, {"gradient": [3, 3], "DDP":
#   96, "ZeRO-1": 64, "FSDP": 32}, {"gradient": [3, 3], "DDP": 96, "ZeRO-1": 64, "FSDP": 32}]
# outcomes: {"gloo": "right right right"}
# why: A shard has 2 parameters with 4 + 4 + 8 = 16 bytes each. DDP keeps 16 bytes for all 6, and
#   ZeRO-1 keeps 8 bytes for all 6 and 8 bytes for 2. With P parameters on n ranks, DDP keeps 16 P
#   bytes, ZeRO-1 8 P + 8 P / n, and FSDP 16 P / n. FSDP pays with traffic: it gathers a layer for
#   the forward pass and again for the backward pass, so it sends half as much again as DDP. While
#   a layer is used, it is whole in memory.
# commands: distdemo reduce-scatter -n 3
# commands: distdemo bench all-gather,reduce-scatter -n 3 --sizes 64K,4M --budget 3
import torch
import torch.distributed as dist


def work(rank, world_size):
    whole = torch.arange(6.0)
    start = whole.split(2)[rank].clone()
    shard = torch.nn.Parameter(start)

    weights = torch.nn.Parameter(torch.zeros(6))  # gathered
    parts = list(weights.detach().split(2))
    dist.all_gather(parts, shard.detach())
    loss = rank * weights.sum()
    loss.backward()
    shard.grad = torch.zeros(2)
    parts = list(weights.grad.split(2))
    dist.reduce_scatter(shard.grad, parts)

    gradient = shard.grad.tolist()
    all_state, own_state = adam(weights), adam(shard)
    return {
        "gradient": gradient,
        "DDP": size(weights) + all_state,
        "ZeRO-1": size(weights) + own_state,
        "FSDP": size(shard) + own_state,
    }


def size(parameter):
    return parameter.nbytes + parameter.grad.nbytes


def adam(parameter):
    optimizer = torch.optim.Adam([parameter])
    optimizer.step()
    state = optimizer.state[parameter]
    return state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes
