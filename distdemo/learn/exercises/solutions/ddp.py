import torch.distributed as dist


def overlap(model):
    started = []

    def hook(parameter):
        started.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))

    def finish():
        for parameter, work in started:
            work.wait()
            parameter.grad /= dist.get_world_size()
        started.clear()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return finish
