import torch.distributed as dist

dist.init_process_group()
print("hello from rank", dist.get_rank(), "of", dist.get_world_size())
dist.barrier()  # gloo's ranks may still be connecting to this one
dist.destroy_process_group()
