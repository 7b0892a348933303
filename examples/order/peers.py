import torch
import torch.distributed as dist


def faulty(rank):
    peer, theirs = rank ^ 1, torch.empty(4)
    sending = dist.isend(torch.ones(4), peer)
    receiving = dist.irecv(theirs, peer)
    sending.wait()
    receiving.wait()


def right(rank):
    peer, theirs = rank ^ 1, torch.empty(4)
    send = dist.P2POp(dist.isend, torch.ones(4), peer)
    receive = dist.P2POp(dist.irecv, theirs, peer)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
