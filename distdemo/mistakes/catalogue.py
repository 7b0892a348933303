"""The one list of the mistakes, and their programs.

A program is a file of ``programs`` that holds both versions. Wrong lines end in ``# wrong``; lines
of the repaired version are comments that begin with ``# right: ``::

    dist.broadcast(weights, src=rank)  # wrong
    # right: dist.broadcast(weights, src=0)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from distdemo.mistakes.records import Line, Mistake

WRONG = "  # wrong"
RIGHT = re.compile(r"(\s*)# right: (.*)")

_ALL = (
    Mistake(
        name="shape",
        title="Tensors of different sizes",
        world_size=3,
        expected="20.0",
        happens={"gloo": "hang wrong wrong", "mpi": "right/wrong wrong wrong"},
        finding="shape",
        ranks=(0,),
        why="No backend compares the sizes. gloo cuts a tensor into pieces by the size that its "
        "own rank passed, so the pieces of two ranks don't line up: some ranks add up the wrong "
        "elements and return, and others wait for pieces that never come. MPI does not notice "
        "either.",
        link="https://github.com/NVIDIA/nccl/issues/1394",
        hints=(
            "Some ranks return a wrong result. Print losses.shape on each rank.",
            "Rank 0 has 5 samples, the others have 3.",
            "dist.all_reduce(losses) needs the same size on all ranks: add up losses first.",
        ),
    ),
    Mistake(
        name="dtype",
        title="A tensor of another dtype",
        world_size=3,
        expected="250",
        happens={"gloo": "lost abort lost", "mpi": "abort/lost wrong/lost/abort abort/lost"},
        finding="dtype",
        ranks=(1,),
        call="dist.all_reduce(total)",
        why="Each rank counts bytes by its own dtype. Rank 1 has room for a float32 of 4 bytes "
        "and gets an int64 of 8. gloo then aborts the process from C++, and no except clause "
        "catches that. The cause is plain Python: / turns an int into a float, and torch.tensor "
        "follows.",
        link="https://github.com/pytorch/pytorch/issues/150248",
        hints=(
            "A process that aborts leaves no traceback. Print total.dtype on each rank.",
            "Rank 1 passes a float32, the others an int64.",
            "seen / 2 is a float in Python; seen // 2 is an int.",
        ),
    ),
    Mistake(
        name="reduce-op",
        title="Another ReduceOp on one rank",
        world_size=3,
        expected="6.0",
        happens={"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"},
        finding="reduce_op",
        ranks=(0,),
        call="dist.all_reduce(loss, op)",
        why="No backend compares the ReduceOps. Each rank reduces the part that it receives with "
        "its own ReduceOp, so the result depends on which rank reduced which part. It is neither "
        "a sum nor a maximum, and there is no error.",
        hints=(
            "The result is neither the sum nor the maximum. Which ReduceOp does each rank pass?",
            "Rank 0 passes another one than the others.",
            "op has to be the same on all ranks. If you need the maximum, too, make a second call.",
        ),
    ),
    Mistake(
        name="root",
        title="Each rank names another root",
        world_size=3,
        expected="[1.0, 1.0, 1.0]",
        happens={"gloo": "hang hang hang", "mpi": "right/wrong right/wrong right/wrong"},
        finding="root",
        ranks=(1, 2),
        why="src is the rank that gives, and all ranks must name the same one. With src=rank each "
        "rank believes that it is the root, and nobody receives. gloo waits for receivers "
        "forever. Over MPI this may go well by luck; with another library or a larger tensor it "
        "may not.",
        hints=(
            "All ranks wait in the same call. What does each rank pass as src?",
            "Ranks 1 and 2 should receive, and they believe that they give.",
            "src=rank is another rank on each rank. The weights are those of rank 0.",
        ),
    ),
    Mistake(
        name="rank-0-only",
        title="A collective on one rank only",
        world_size=3,
        expected="6.0",
        happens={"gloo": "hang wrong wrong", "mpi": "hang wrong wrong"},
        finding="absent",
        ranks=(0,),
        why="A collective is a call of the whole group. Rank 0 waits in it for the others, which "
        "never come: they go on with their own loss, which is not the mean. In a longer program "
        "their next collective meets this one, and what hangs or is wrong is far from the mistake.",
        link="https://github.com/pytorch/pytorch/issues/54059",
        hints=(
            "One rank waits, and the others have returned. Which call did they not make?",
            "Rank 0 waits. Ranks 1 and 2 never come to the all_reduce.",
            "Only the print belongs under if rank == 0.",
        ),
    ),
    Mistake(
        name="uneven-batches",
        title="Fewer batches on one rank",
        world_size=2,
        expected="15.0",
        happens={"gloo": "hang wrong", "mpi": "hang wrong"},
        finding="uneven",
        ranks=(1,),
        why="Three batches can't be shared evenly by two ranks. In the second round rank 0 calls "
        "all_reduce, and rank 1 has left the loop. With DDP the call is hidden in backward(), so "
        "training hangs at the end of an epoch; DDP's join helps there, or leaving out the last "
        "batches.",
        link="https://github.com/pytorch/pytorch/issues/33148",
        hints=(
            "How often does each rank go through the loop?",
            "Rank 0 has two batches, rank 1 has one.",
            "The all_reduce in the loop must be called equally often: move it behind the loop.",
        ),
    ),
    Mistake(
        name="order",
        title="The same calls in another order",
        world_size=2,
        expected="[2.0] * 6",
        happens={"gloo": "hang hang", "mpi": "wrong wrong"},
        finding="shape",
        ranks=(1,),
        call="dist.all_reduce(grad)",
        why="Calls are matched by their order alone. A dict keeps the order in which it was "
        "filled, and the order of a set of strings differs from process to process. So conv on "
        "rank 0 meets head on rank 1. If both had the same size, they would be mixed up silently, "
        "and the sanitizer would not see it.",
        link="https://github.com/NVIDIA/apex/issues/19",
        hints=(
            "Print the layers in the order in which each rank reduces them.",
            "Rank 1 begins with head, rank 0 with conv.",
            "grads.values() follows the order of the dict: sort it by name.",
        ),
    ),
    Mistake(
        name="recv-recv",
        title="Both ranks receive first",
        world_size=2,
        expected="2.0 - rank",
        happens={"gloo": "hang hang", "mpi": "hang hang"},
        finding="deadlock",
        ranks=(0, 1),
        call="dist.recv(theirs, other)",
        why="recv returns when the data has come. Each rank waits for what the other would send "
        "afterwards, so neither reaches its send.",
        link="https://github.com/pytorch/pytorch/issues/109401",
        hints=(
            "Both ranks wait in recv. Who has sent something by then?",
            "Neither rank 0 nor rank 1 reaches its send.",
            "Begin the send before recv, with isend, which does not block; wait for it afterwards.",
        ),
    ),
    Mistake(
        name="send-send",
        title="Both ranks send first",
        world_size=2,
        expected="2.0 - rank",
        happens={"gloo": "hang hang", "mpi": "hang hang"},
        finding="deadlock",
        ranks=(0, 1),
        why="send returns when its tensor may be changed again. Over gloo that is when the other "
        "rank receives it. MPI copies a small tensor and returns at once, so there this program "
        "works until the tensor is large. This one has 4 MB.",
        link="https://github.com/NVIDIA/nccl/issues/479",
        hints=(
            "Both ranks wait in send. Who receives by then?",
            "Neither rank 0 nor rank 1 reaches its recv.",
            "Replace send by isend, which does not block, and wait for it after recv.",
        ),
    ),
    Mistake(
        name="small-receive",
        title="Too small a tensor to receive",
        world_size=2,
        expected="[0.0, 1.0, 2.0, 3.0]",
        happens={"gloo": "right/lost abort", "mpi": "right/lost error"},
        finding="p2p",
        ranks=(0, 1),
        call="dist.recv(row, src=0)",
        why="The sender decides how much comes, and the receiver how much room there is. gloo "
        "aborts the process from C++, and no except clause catches that; MPI raises an error. "
        "With a larger tensor both fill a part of it and say nothing.",
        link="https://github.com/NVIDIA/nccl/issues/1938",
        hints=(
            "How many numbers does rank 0 send, and how many does rank 1 have room for?",
            "Rank 1 has room for 3 numbers, and rank 0 sends 4.",
            "row = torch.zeros(3) has to be as large as what is sent.",
        ),
    ),
    Mistake(
        name="same-list",
        title="One tensor n times in a list",
        world_size=3,
        expected="[[r, 10 * r] for r in range(world_size)]",
        happens={"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"},
        finding="buffers",
        ranks=(0, 1, 2),
        call="dist.all_gather(rows, mine)",
        why="[t] * n is a list that holds one tensor n times, not n tensors. all_gather writes "
        "the row of every rank into the same memory, and the last row stays.",
        link="https://github.com/pytorch/pytorch/issues/5506",
        hints=(
            "All rows are alike. Is rows[0] the same tensor as rows[1]?",
            "It is the same on every rank: all rows are those of the last rank.",
            "[torch.zeros_like(mine)] * world_size is one tensor: use a comprehension.",
        ),
    ),
    Mistake(
        name="early-read",
        title="A tensor is read before wait()",
        world_size=2,
        expected="[3.0, 5.0, 7.0] if rank == 0 else [1.0, 2.0, 3.0]",
        happens={"gloo": "wrong right", "mpi": "wrong right"},
        finding="buffers",
        ranks=(0,),
        buffers=True,
        why="irecv returns at once. Until wait() has returned, the tensor holds what it held "
        "before, or a part of what comes. In a larger program the data has often come by then, so "
        "the result is wrong only now and then. The sanitizer sees it with --sanitize=buffers.",
        link="https://github.com/OpenNMT/OpenNMT-py/issues/2295",
        hints=(
            "What does answer hold at the moment when it is read?",
            "Rank 0 reads it before rank 1 even has the question.",
            "result = answer + 1 belongs after receiving.wait().",
        ),
    ),
    Mistake(
        name="partial-group",
        title="A group made by members only",
        world_size=3,
        expected="9.0",
        happens={"gloo": "hang hang hang", "mpi": "hang hang hang"},
        finding="group",
        ranks=(2,),
        why="new_group is a call of the whole world, also of ranks that will not be members. Each "
        "rank numbers the groups that it makes: the first group of rank 2 is the second one of "
        "the others, so they wait for each other under different names. If no group came after "
        "it, nothing would happen, until somebody adds one.",
        link="https://github.com/pytorch/pytorch/issues/25390",
        hints=(
            "All ranks wait in a new_group. How many groups has each rank made before?",
            "Rank 2 has made none, because it is not a member of the pair.",
            "dist.new_group([0, 1]) has to be called by all ranks, outside the if.",
        ),
    ),
    Mistake(
        name="group-rank",
        title="A group's rank given as src",
        world_size=4,
        expected="1.0 + rank // 2 * 2",
        happens=dict.fromkeys(("gloo", "mpi"), "right/lost right/lost error error"),
        finding="group",
        ranks=(2, 3),
        why="src counts the ranks of the world, even in a call on a group. Rank 0 is a member of "
        "the first pair alone, so the second pair raises. If the number happens to be that of a "
        "member, the wrong rank gives, and there is no error. group_src counts the ranks of the "
        "group.",
        link="https://github.com/OpenPipe/ART/issues/919",
        hints=(
            "The first pair works. Read the error of the second one.",
            "On ranks 2 and 3, src=0 names a rank of the other pair.",
            "src is a rank of the world; group_src=0 is the first rank of the group.",
        ),
    ),
    Mistake(
        name="stray-barrier",
        title="One barrier too many",
        world_size=3,
        expected="'step 7'",
        happens={"gloo": "hang right right", "mpi": "hang right right"},
        finding="absent",
        ranks=(0,),
        why="Barriers have no names: any barrier of one rank meets any barrier of another. The "
        "extra one of rank 0 meets the first one of the others, and from then on they are off by "
        "one. What hangs is the last barrier, which is right. The sanitizer also says which "
        "barriers met from different lines.",
        link="https://github.com/pytorch/pytorch/issues/138322",
        hints=(
            "How many barriers does each rank make?",
            "Rank 0 makes three, the others two. It hangs in the last one, but that one is right.",
            "The barrier under if rank == 0 has no partner; the next one is for all ranks.",
        ),
    ),
    Mistake(
        name="dead-rank",
        title="A rank fails, the others wait",
        world_size=3,
        expected="5.0",
        happens={"gloo": "lost lost error", "mpi": "lost lost error"},
        finding="absent",
        ranks=(2,),
        why="Rank 2 raises before its all_reduce. Over gloo the others then fail, too, because "
        "its process is gone: connection closed. That is not the cause. Over MPI they wait until "
        "somebody stops them. Look for the one rank whose error is not about a connection.",
        link="https://github.com/pytorch/pytorch/issues/17113",
        hints=(
            "Most ranks only lost a connection. Which one has an error of its own?",
            "Rank 2 has no batch.",
            "sum(losses) / len(losses) divides by zero where there are no losses.",
        ),
    ),
    Mistake(
        name="sum-not-mean",
        title="Gradients not divided by n",
        world_size=4,
        expected="3.9375",
        happens=dict.fromkeys(("gloo", "mpi"), "wrong wrong wrong wrong"),
        finding="",
        ranks=(),
        why="All ranks make the same calls, so no tool that compares calls can see it. The sum of "
        "four gradients makes a step four times as long: the weight jumps from 0 to 9 and back, "
        "around 4.5. DDP divides by the world size; code that reduces gradients by hand has to "
        "divide, too.",
        link="https://github.com/facebookresearch/dinov3/pull/250",
        hints=(
            "Print the weight after each step: it jumps over the target and back.",
            "It is the same on every rank.",
            "all_reduce leaves the sum of all gradients in grad; the step needs their mean.",
        ),
    ),
    Mistake(
        name="late-call",
        title="A call made too late",
        world_size=3,
        expected="[36.0, 6.0]",
        happens={"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"},
        finding="shift",
        ranks=(1,),
        why="Rank 1 makes the same two calls in another order. Both add up one float32, so they "
        "fit together, and the count of one rank is added to the losses of the others. Nobody can "
        "be certain that this was not meant, so the sanitizer only warns: ranks made one call "
        "from different lines.",
        hints=(
            "Which numbers were added up? Print loss and count on each rank, before and after.",
            "Rank 1 reduces the count first, and the loss after it.",
            "All ranks have to reduce the loss at the same place, before the count.",
        ),
    ),
)

MISTAKES: dict[str, Mistake] = {each.name: each for each in _ALL}
"""Every mistake by its name."""


def program_of(mistake: Mistake) -> tuple[Line, ...]:
    """The lines of its program, those of both versions in their places."""
    file = Path(__file__).parent / "programs" / f"{mistake.module}.py"
    found = []
    for text in file.read_text(encoding="utf-8").splitlines():
        if right := RIGHT.fullmatch(text):
            found.append(Line(right[1] + right[2], "right"))
        elif text.endswith(WRONG):
            found.append(Line(text.removesuffix(WRONG), "wrong"))
        else:
            found.append(Line(text))
    return tuple(found)


def text_of(lines: Sequence[Line], *, repaired: bool = False) -> str:
    """The program with the mistake, or repaired."""
    left_out = "wrong" if repaired else "right"
    return "".join(f"{line.text}\n" for line in lines if line.role != left_out)
