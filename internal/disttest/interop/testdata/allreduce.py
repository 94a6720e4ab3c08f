"""A script as PyTorch's users write it: a process group, and sums over all ranks. FAIL says whether rank 1 ends once on the way, MARK is where it
remembers that it has."""
import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])


def fail(when):
    mark = os.environ.get("MARK", "")
    if os.environ.get("FAIL") == when and rank == 1 and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(3)


fail("before")
dist.init_process_group("gloo")
t = torch.tensor([float(rank + 1)])
dist.all_reduce(t)
fail("amid")
dist.all_reduce(t)
print(f"rank {rank} of {dist.get_world_size()}: {t.item():g}", flush=True)
dist.destroy_process_group()
