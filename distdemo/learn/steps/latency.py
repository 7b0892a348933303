# number: 17
# title: Latency against bandwidth: fewer messages or bytes
# world_size: 4
# text: A message of b bytes takes about α + b·β: α is the latency, which every message costs
#   however short it is, and 1/β is the bandwidth. Here are two algorithms of all_reduce for a
#   tensor of S bytes on n ranks. In doubling, short for recursive doubling, a rank exchanges its
#   whole tensor with the ranks at distance 1, 2, 4 and so on. The ring sends chunks of S/n bytes,
#   but more messages. Both work in rounds in which all ranks send at once, so the messages of one
#   rank take as long as the whole algorithm, if adding takes no time. The program counts them, and
#   computes for which S both are equally fast if α is 20,000 ns, and β is 1 ns per byte, which is
#   1 GB/s.
# question: For which S, in bytes, are both equally fast on these four ranks?
# form: one number, such as 5000
# rank: 0
# column: equal at S
# expected: [{"doubling": [2, 128], "ring": [6, 96], "equal at S": 160000}, {"doubling": [2, 128],
#   "ring": [6, 96], "equal at S": 160000}, {"doubling": [2, 128], "ring": [6, 96], "equal at S":
#   160000}, {"doubling": [2, 128], "ring": [6, 96], "equal at S": 160000}]
# outcomes: {"gloo": "right right right right"}
# why: The columns have the messages that a rank sends, and their bytes, for tensors of 64 bytes. So
#   doubling takes 2·α + 2·S·β, and the ring 6·α + 1.5·S·β. They are equal if 4·α = 0.5·S·β, so S is
#   8·α/β = 160,000 bytes. Doubling is faster for shorter tensors, the ring for longer ones. If n is
#   a power of 2, doubling takes log2(n)·(α + S·β), and the ring 2(n−1)·α + 2(n−1)/n·S·β. On two
#   ranks the ring is never faster, as it sends the same bytes in two messages instead of one. What
#   is the size on your machine? The first command measures both algorithms, and the second fits α
#   and β to each. Run them while nothing else runs. Compute S, and look for it in the times. Ranks
#   that share cores wait for these, too, so α is larger.
# commands: distdemo bench -n 4 --algorithm ring,doubling --sizes 4K,32K,256K,1M -o two.json
# commands: distdemo bench fit two.json
import torch
import torch.distributed as dist

ALPHA, BETA = 20_000, 1  # ns per message, ns per byte


def work(rank, world_size):
    whole, pieces = torch.full((2, 16), float(rank))
    long = doubling(whole, rank, world_size)
    short = ring(pieces, rank, world_size)
    assert torch.equal(whole, pieces)  # the sum of all ranks
    saved = (sum(long) - sum(short)) / whole.nbytes  # by the ring, of S
    return {
        "doubling": [len(long), sum(long)],
        "ring": [len(short), sum(short)],
        "equal at S": (len(short) - len(long)) * ALPHA / (saved * BETA),
    }


def doubling(tensor, rank, n):
    sent = []
    for step in range(n.bit_length() - 1):  # log2(n)
        other = rank ^ 2**step  # rank 0: 1, then 2
        tensor += exchange(tensor, other, other, sent)
    return sent


def ring(tensor, rank, n):
    sent = []
    chunks = tensor.chunk(n)
    for step in range(2 * (n - 1)):
        chunk = chunks[(rank - step) % n]
        new = exchange(chunk, (rank + 1) % n, (rank - 1) % n, sent)
        mine = chunks[(rank - step - 1) % n]
        mine.copy_(mine + new if step < n - 1 else new)
    return sent


def exchange(message, to, source, sent):
    received = torch.empty_like(message)
    sending = dist.isend(message, to)
    dist.recv(received, source)
    sending.wait()
    sent.append(message.nbytes)
    return received
