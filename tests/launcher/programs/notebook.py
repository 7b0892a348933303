"""Run cells in a real kernel of Jupyter, and print what they write."""

import nbclient
import nbformat

# A computation starts torch's threads, after which the kernel can't be forked safely.
DEFINE = """
import torch, torch.distributed as dist, distdemo
(torch.ones(300, 300) @ torch.ones(300, 300)).sum()
scale = 3
class Pair:
    def __init__(self, rank, total): self.rank, self.total = rank, total
def work(rank, size):
    total = torch.tensor([scale * rank])
    dist.all_reduce(total)
    return Pair(rank, total.item())
"""
LAUNCH = """
results = distdemo.launch(work, world_size=2)
print([(each.rank, each.total, type(each) is Pair) for each in results])
"""
LAMBDA = "print(distdemo.launch(lambda: scale, world_size=2))"

notebook = nbformat.v4.new_notebook()
cells = (DEFINE, LAUNCH, LAMBDA)
notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.outputs:
        print(output.get("text", ""), end="")
