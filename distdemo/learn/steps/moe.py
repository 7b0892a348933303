# number: 14
# title: all_to_all: send tokens to their experts
# world_size: 3
# text: In an all_to_all every rank has a different piece for every rank. Piece i goes to rank i,
#   and the pieces arrive in rank order: first the one from rank 0. all_to_all_single cuts one
#   tensor into these pieces. A language model works on tokens, which are parts of words; here a
#   token is one number. A mixture of experts (MoE) is a layer of several small networks, the
#   experts; here each rank has one. A router chooses the expert of each token, here expert i for
#   token i. One all_to_all brings the tokens to their experts (dispatch), and another one brings
#   the results back (combine).
# question: Which tokens arrive at rank 1?
# form: three numbers, such as 7 8 9
# rank: 1
# column: arrived
# expected: [{"arrived": [0, 10, 20], "returned": [100, 201, 302]}, {"arrived": [1, 11, 21],
#   "returned": [110, 211, 312]}, {"arrived": [2, 12, 22], "returned": [120, 221, 322]}]
# outcomes: {"gloo": "right right right"}
# why: One from each rank: all_to_all turns rows into columns. The second call turns them back, so
#   each result is where its token came from. Real routers send more tokens to one expert than to
#   another: input_split_sizes and output_split_sizes are for that.
# commands: distdemo all-to-all -n 3
# commands: distdemo explain all-to-all
import torch
import torch.distributed as dist


def work(rank, world_size):
    tokens = 10 * rank + torch.arange(world_size)
    arrived = torch.zeros_like(tokens)
    dist.all_to_all_single(arrived, tokens)  # dispatch
    results = arrived + 100 * (rank + 1)  # the expert
    returned = torch.zeros_like(tokens)
    dist.all_to_all_single(returned, results)  # combine
    return {
        "arrived": arrived.tolist(),
        "returned": returned.tolist(),
    }
