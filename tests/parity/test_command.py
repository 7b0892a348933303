"""``distdemo parity`` as a user runs it: right programs, planted mistakes, and failures."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from golden import golden
from torch import nn
from torch.nn.functional import cross_entropy

import distdemo
from distdemo.calls.records import Gap, SourceLine
from distdemo.launcher.program import Program
from distdemo.parity.records import Axis, Comparison, Difference, ParityReport, Uncompared
from distdemo.parity.view import parity_view, uncompared_texts, verdict_text

EXAMPLES = Path(distdemo.__file__).parents[1] / "examples/parity"
GOLDEN = Path(__file__).parent / "golden"
averaging = pytest.mark.skipif(
    torch.__version__ < "2.9", reason="gloo's reduce_scatter adds instead of averaging in torch 2.8"
)


@pytest.fixture
def edited(tmp_path):
    """Write an example with some of its lines replaced, and return its path."""

    def write(name, *changes):
        text = (EXAMPLES / name).read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "train.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def placements(document, name, kind):
    """Return the placement of a tensor in the first step."""
    return next(
        tensor["placement"]
        for tensor in document["tensors"]
        if (tensor["name"], tensor["kind"], tensor["step"]) == (name, kind, 1)
    )


# --------------------------------------------------------------------------------- right programs


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "ranks", "reference", "tensor", "kind", "placement"),
    [
        ("ddp.py", 2, 1, "hidden", "output", ["S(batch)"]),
        ("ddp.py", 4, 2, "hidden", "output", ["S(batch)"]),
        pytest.param(
            "fsdp2.py", 4, 2, "blocks.1.fc1.weight", "gradient", ["S(0)"], marks=averaging
        ),
        pytest.param(
            "tensor_parallel.py", 4, 1, "blocks.0.fc2", "output", ["S(batch)", "P"], marks=averaging
        ),
        ("megatron.py", 4, 1, "blocks.0.fc2.weight", "parameter", ["R", "S(1)"]),
        ("fsdp.py", 2, 1, "0.shard", "gradient", ["S(0)"]),
        ("pipeline.py", 4, 1, "layers.2.weight", "gradient", ["@2"]),
    ],
)
def test_every_tensor_of_an_example_is_explained(
    command, name, ranks, reference, tensor, kind, placement
):
    words = ("-n", ranks, "--ranks-reference", reference)
    document = command.document("parity", EXAMPLES / name, *words)
    assert (document["unexplained"], document["steps"]) == (0, 2)
    assert document.get("reference_size", 1) == reference
    assert placements(document, tensor, kind) == placement
    assert "difference" not in document


@pytest.mark.processes
def test_a_pipeline_on_too_many_ranks_fails(command):
    code, out, _ = command("parity", EXAMPLES / "pipeline.py", "-n", 3)
    assert code == 1
    assert "4 layers don't divide by 3 ranks" in out


# ------------------------------------------------------------------------------ planted mistakes

NO_DDP = ("DistributedDataParallel(Model())", "Model()"), ("model.require_backward", "sync = 0 #")
ONLY_FORWARD = NO_DDP[0], ("model(tokens", "model.forward(tokens")


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "changes", "cause", "tensor", "text"),
    [
        ("ddp.py", NO_DDP, "gradient", "head.bias", "is not reduced"),
        ("ddp.py", ONLY_FORWARD, "gradient", "head.bias", "is not reduced"),
        ("ddp.py", [("== MICRO_BATCHES - 1", "== 0")], "gradient", "head.bias", "is not reduced"),
        (
            "ddp.py",
            [("[rank::size]", "[: BATCH // size]")],
            "data",
            "input",
            "every rank gets the same",
        ),
        pytest.param(
            "fsdp2.py",
            [("lr=1e-3", "lr=1e-3 + rank")],
            "parameter",
            "emb.weight",
            "its gradient agrees",
            marks=averaging,
        ),
        (
            "ddp.py",
            [
                (
                    "        optimizer.step()\n",
                    (
                        "        norm = 1.0 if rank == 0 else 0.1\n"
                        "        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)\n"
                        "        optimizer.step()\n"
                    ),
                )
            ],
            "gradient",
            "head.bias",
            "though it agrees before clip_grad_norm_",
        ),
        (
            "megatron.py",
            [("        dist.all_reduce(gradient, group=ctx.group)\n", "")],
            "gradient",
            "blocks.1.norm.bias",
            "is not reduced over tp",
        ),
        (
            "megatron.py",
            [("        dist.all_reduce(x, group=group)\n", "")],
            "forward",
            "blocks.0.fc2",
            "is partial over tp, and nothing reduces it",
        ),
        (
            "megatron.py",
            [
                (
                    'slice(mesh.get_local_rank("dp"), None, dp)',
                    "slice(dist.get_rank(), None, dist.get_world_size())",
                )
            ],
            "data",
            "input",
            "the ranks along tp get different rows",
        ),
    ],
)
def test_a_planted_mistake_is_found(command, edited, name, changes, cause, tensor, text):
    ranks = 4 if name == "megatron.py" else 2
    document = command.document("parity", edited(name, *changes), "-n", ranks, status=1)
    found = document["difference"]
    assert (found["cause"], found.get("name", "")) == (cause, tensor), found
    assert text in found["what"]


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_a_program_that_is_not_reproducible_is_told_so(command, edited):
    path = edited(
        "ddp.py", ("torch.Generator().manual_seed(1)", "None"), ("torch.manual_seed(0)", "")
    )
    document = command.document("parity", path, "-n", 2, status=1)
    assert document["difference"]["cause"] == "reproducible"
    seeded = command.document("parity", path, "-n", 2, "--seed", 3)
    assert seeded["unexplained"] == 0


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_the_reference_gets_more_arguments(command, edited):
    change = (
        "BATCH = 16  # rows of a micro-batch over all ranks",
        "import sys\nBATCH = int(sys.argv[-1])",
    )
    path = edited("ddp.py", change, ("[rank::size]", ""), ("manual_seed(1)", "manual_seed(rank)"))
    words = ("-n", 2, "--format", "json", "--reference-args", "32", "--", "16")
    code, out, _ = command("parity", path, *words)
    found = json.loads(out)["difference"]
    assert (code, found["cause"]) == (1, "data")
    assert found["facts"][0] == "Rows of the input: 32 on each rank, 64 in the reference."


@pytest.mark.processes
def test_a_program_that_fails_on_one_rank_shows_its_failure(command, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import os\nassert os.environ['WORLD_SIZE'] != '1'\n", encoding="utf-8")
    code, out, _ = command("parity", path, "-n", 2)
    assert code == 1
    assert "AssertionError" in out


SPAWNER = """
import multiprocessing


def main():
    process = multiprocessing.Process(target=int)
    process.start()
    process.join()


if __name__ == "__main__":
    main()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "what", "facts"),
    [
        ("print('no data')", "calls no torch.nn.Module", ["It printed: no data"]),
        (SPAWNER, "train.py:7", []),
    ],
)
def test_a_program_in_which_nothing_is_recorded(command, tmp_path, text, what, facts):
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    found = command.document("parity", path, "-n", 2, status=1)["difference"]
    assert found["cause"] == "nothing"
    assert what in found["what"]
    assert found.get("facts", []) == facts


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-n", 1], "--world-size 1 is too small"),
        (["-n", 2, "--ranks-reference", 2], "--ranks-reference 2 isn't smaller than 2 ranks."),
        (["--reference-args", "'"], "No closing quotation"),
    ],
)
def test_what_cannot_be_compared_is_rejected(command, words, text):
    code, out, err = command("parity", EXAMPLES / "ddp.py", *words)
    assert (code, out) == (2, "")
    assert text in err


# ------------------------------------------------------------------------------------- from Python


def work(rank, size, factor):
    """Train a layer forever, with gradients times a factor."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = torch.Generator().manual_seed(1)
    while True:
        x = torch.randn(8, 6, generator=source)
        labels = torch.randint(0, 3, (8,), generator=source)
        cross_entropy(model(x[rank::size]), labels[rank::size]).backward()
        for gradient in (parameter.grad for parameter in model.parameters()):
            assert gradient is not None
            dist.all_reduce(gradient)
            gradient.mul_(factor / size if size > 1 else 1)
        optimizer.step()
        optimizer.zero_grad()


def work_without_parameters():
    """Train with gradients times 3; its first local variable is no parameter."""
    rank = dist.get_rank()
    work(rank, dist.get_world_size(), 3)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_a_function_is_compared_from_python():
    report = distdemo.check_parity(work, (1,), world_size=2)
    assert (report.ok, report.steps, report.axes) == (True, 2, (Axis("dp", 2),))
    with pytest.raises(distdemo.ParityError, match="is 3 times the reference") as caught:
        distdemo.check_parity(work_without_parameters, world_size=2)
    difference = caught.value.report.difference
    assert difference is not None
    assert difference.cause == "gradient"
    with pytest.raises(distdemo.UsageError, match="The reference runs on fewer ranks"):
        distdemo.check_parity(work, (1,), world_size=1)


# ------------------------------------------------------------------------ what can't be compared

HEAD = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(16, 6)[rank::size]
net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRANSFORMED = """
weights = {name: own.detach() for name, own in net.named_parameters()}
for _ in range(3):
    loss = lambda own: torch.func.functional_call(net, own, (x,)).square().mean()
    gradients = torch.func.grad(loss)(weights)
    for gradient in gradients.values():
        dist.all_reduce(gradient)
    weights = {name: own - 0.1 * gradients[name] / size for name, own in weights.items()}
"""
OWN_GRADIENTS = """
for _ in range(3):
    gradients = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    with torch.no_grad():
        for own, gradient in zip(net.parameters(), gradients):
            {reduce}
            own -= 0.1 * gradient
"""
OWN_OPTIMIZER = """
for _ in range(3):
    net(x).square().mean().backward()
    for own in net.parameters():
        dist.all_reduce(own.grad)
        own.grad /= size
    if size == 1:
        optimizer.step()
    else:
        with torch.no_grad():
            for own in net.parameters():
                own -= 0.1 * own.grad
                own.grad = None
    optimizer.zero_grad()
"""
HUGE_SETTING = """
optimizer.param_groups[0]["huge"] = 10**400
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    for own in net.parameters():
        dist.all_reduce(own.grad)
        own.grad /= size
    optimizer.step()
"""
SUMMED = """
class Unit(torch.optim.Optimizer):
    def step(self):
        with torch.no_grad():
            for own in self.param_groups[0]["params"]:
                own -= 0.1 * own.grad / own.grad.norm()

class Own(torch.optim.Adam):
    pass

optimizer = {optimizer}
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    for own in net.parameters():
        dist.all_reduce(own.grad)
    optimizer.step()
"""
OWN_UPDATE = """
for _ in range(3):
    net(x).square().mean().backward()
    with torch.no_grad():
        for own in net.parameters():
            own -= 0.1 * own.grad
            own.grad = None
"""
ACTIVATION = """
net = nn.ReLU()
torch.set_grad_enabled({grad})
for _ in range(3):
    net(x * {factor})
"""
ONE_STEP = """
optimizer.param_groups[0]["lr"] = 0.1 + 4 * rank
net(x).square().mean().backward()
for own in net.parameters():
    dist.all_reduce(own.grad)
    own.grad /= size
optimizer.step()
del net, optimizer, own  # as a function does
"""
UNTRAINED = """
for _ in range(3):
    net(x).detach().square().mean().requires_grad_().backward()
    optimizer.step()
"""
CHAOTIC = """
net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1))
x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))[rank::size]
with torch.no_grad():
    net[0].weight.mul_(12)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    hidden = x
    for _ in range(60):
        hidden = torch.tanh(net[0](hidden) + x)
    net[1](hidden).square().mean().backward()
    optimizer.step()
"""
OWN_GROUP = """
store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
group = dist.ProcessGroupGloo(store, rank, size)
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    for own in net.parameters():
        group.allreduce([own.grad]).wait()
        own.grad /= size
    optimizer.step()
"""
UNREDUCED = """
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    for own in net[0].parameters():
        dist.all_reduce(own.grad)
        own.grad /= size
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("text", "words", "verdict", "reasons"),
    [
        (TRANSFORMED, [], "incomplete", ["unread"]),
        (OWN_GRADIENTS.format(reduce="pass"), [], "differs", []),
        (
            OWN_GRADIENTS.format(reduce="dist.all_reduce(gradient); gradient /= size"),
            [],
            "agrees",
            [],
        ),
        (OWN_UPDATE, [], "differs", []),
        (OWN_OPTIMIZER, [], "incomplete", ["gradient"]),
        (SUMMED.format(optimizer="Unit(net.parameters(), {})"), [], "incomplete", ["hidden"]),
        (SUMMED.format(optimizer="Own(net.parameters())"), [], "differs", []),
        (
            SUMMED.format(optimizer="torch.optim.SGD(net.parameters(), lr=0.1 / size)"),
            [],
            "agrees",
            [],
        ),
        (HUGE_SETTING, [], "incomplete", ["unrecorded"]),
        (ACTIVATION.format(factor="(1 + rank)", grad=False), [], "differs", []),
        (ACTIVATION.format(factor=1, grad=True), [], "agrees", []),
        (ONE_STEP, [], "differs", []),
        (UNTRAINED, [], "incomplete", ["untrained"]),
        (CHAOTIC, [], "incomplete", ["tolerance"]),
        (OWN_GROUP, [], "incomplete", []),
        (UNREDUCED, [], "differs", []),
        (UNREDUCED, ["--except", "2.*", "--except", "loss", "--steps", "1"], "agrees", []),
    ],
)
def test_a_verdict_says_what_was_compared(command, tmp_path, text, words, verdict, reasons):
    path = tmp_path / "train.py"
    path.write_text(HEAD + text, encoding="utf-8")
    document = command.document("parity", path, "-n", 2, *words, status=verdict != "agrees")
    assert document["ok"] is (verdict == "agrees")
    assert document["verdict"] == verdict, document.get("difference")
    assert [gap["reason"] for gap in document.get("gaps", [])] == reasons
    assert bool(document["errors"]) is (verdict != "agrees")
    assert bool(document.get("excluded")) is ("--except" in words)
    assert bool(document.get("unseen")) is (text == OWN_GROUP)


PIPELINE = """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

whole = nn.ModuleDict((i, nn.Sequential(nn.Linear(6, 6), nn.Tanh())) for i in "01")
mine = whole[str(rank)] if size == 2 else nn.Sequential(whole["0"], whole["1"])
optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
source = torch.Generator().manual_seed(1)
loss = nn.functional.mse_loss
if size == 2:
    stage = PipelineStage(mine, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss)
for _ in range(3):
    x, y = torch.randn(2, 8, 6, generator=source)
    optimizer.zero_grad()
    if size == 1:
        loss(mine(x), y).backward()
    elif rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=[])
        mine[0].weight.grad.mul_(FACTOR)
    optimizer.step()
"""
NORMALISER = """
class Normaliser(nn.Module):
    def forward(self, x):
        return x - x.mean(0)

normaliser = Normaliser()
for _ in range(3):
    optimizer.zero_grad()
    net(normaliser(x)).square().mean().backward()
    for own in net.parameters():
        dist.all_reduce(own.grad)
        own.grad /= size
    optimizer.step()
"""
FLAT = """
import warnings

warnings.simplefilter("ignore")  # some releases say that it is deprecated
from torch.distributed.fsdp import FullyShardedDataParallel

net = FullyShardedDataParallel(net[:2].append(nn.Linear(6, 3)), device_id=x.device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
EMPTY_SHARD = """
from torch.distributed.fsdp import fully_shard

net = nn.Sequential(net[0], nn.Linear(6, 1))  # of the last layer, the second rank holds nothing
fully_shard(net, mesh=dist.device_mesh.DeviceMesh("cpu", torch.arange(size)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
CLIPPED = """
from torch.distributed.fsdp import fully_shard

with torch.no_grad():
    net[0].bias[3:] -= 100  # the gradient of these rows is zero, on the second rank all of it
fully_shard(net, mesh=dist.device_mesh.DeviceMesh(device_type="cpu", mesh=torch.arange(size)))
for _ in range(3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.zero_grad()
    net(x).square().mean().backward()
    gradients = [own.grad.to_local() for own in net.parameters()]
    norm = sum(own.square().sum() for own in gradients).sqrt()
    for own in gradients:
        own *= 0.1 / norm
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("text", "cause", "name", "what"),
    [
        (PIPELINE.replace("FACTOR", "1"), "", "", ""),
        (PIPELINE.replace("FACTOR", "2"), "gradient", "1.0.weight", "is 2 times the reference"),
        (NORMALISER, "forward", "Normaliser", "is not the reference's"),
        pytest.param(EMPTY_SHARD, "", "", "", marks=averaging),
        pytest.param(FLAT, "shape", "_flat_param", "", marks=averaging),
        pytest.param(CLIPPED, "gradient", "2.bias", "a different factor on each", marks=averaging),
    ],
)
def test_the_tensor_itself_is_named(command, tmp_path, text, cause, name, what):
    path = tmp_path / "train.py"
    path.write_text(HEAD + text, encoding="utf-8")
    document = command.document("parity", path, "-n", 2, status=int(bool(cause)))
    difference = document.get("difference", {"cause": "", "name": "", "what": ""})
    for gap in document.get("gaps", []):
        difference = {"cause": gap["reason"], "name": gap["names"][0], "what": ""}
    assert (difference["cause"], difference["name"]) == (cause, name), difference
    assert what in difference["what"]


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("pattern", "what"),
    [("nothing.*", "--except nothing.* matches no tensor."), ("*", "--except leaves no tensor")],
)
def test_a_pattern_must_match_some_tensors(command, tmp_path, pattern, what):
    path = tmp_path / "train.py"
    path.write_text(HEAD + UNREDUCED, encoding="utf-8")
    code, out, err = command("parity", path, "-n", 2, "--except", pattern)
    assert (code, out) == (2, "")
    assert what in err


UNWAITED = """
if size > 1:
    dist.all_reduce(torch.ones(2), async_op=True)
for _ in range(2):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    for own in net.parameters():
        dist.all_reduce(own.grad)
        own.grad /= size
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_warnings_of_the_sanitizer_are_shown_and_change_no_verdict(command, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(HEAD + UNWAITED, encoding="utf-8")
    document = command.document("parity", path, "-n", 2)
    (warning,) = document["warnings"]
    assert document["verdict"] == "agrees"
    assert warning["what"].endswith("a call is never waited for.")  # some ranks may end early


HANGS = """
net(x).square().mean().backward()
dist.barrier() if rank else dist.all_reduce(net[0].bias.grad)
"""


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_a_program_that_hangs_is_told_what_run_says(command, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(HEAD + HANGS, encoding="utf-8")
    errors = [
        command.document(name, path, "-n", 2, "--stall", 500, status=1)["errors"]
        for name in ("run", "parity")
    ]
    assert errors[0][0]["what"] == errors[1][0]["what"]
    assert errors[0][0]["what"].startswith("Mismatch in call 1")


# ---------------------------------------------------------------------------------------- the view

MESH = (Axis("dp", 2), Axis("tp", 2))
TENSORS = (
    Comparison("input", 0, "input", ("S(batch)", "R")),
    Comparison("output", 0, "fc1", ("S(batch)", "S(2)")),
    Comparison("output", 0, "model", ("S(batch)", "P")),
    Comparison("loss", 0, "loss", ("mean", "R")),
    Comparison("gradient", 0, "fc1.weight", ("R", "S(0)"), reordered=True),
    Comparison("parameter", 0, "fc1.weight", ("R", "S(0)"), reordered=True),
    Comparison("output", 1, "fc1", ("S(batch)", "S(2)")),
)
RIGHT = ParityReport(
    Program("train.py"), 4, steps=2, axes=MESH, tensors=TENSORS, notes=("A remark.",)
)
WRONG = ParityReport(
    Program("train.py"),
    4,
    steps=2,
    axes=MESH,
    tensors=(
        *TENSORS[:4],
        Comparison("gradient", 0, "fc1.weight", ("R", "S(0)"), explained=False, factor=2.0),
        Comparison("parameter", 0, "fc1.weight", ("R", "S(0)"), explained=False),
    ),
    difference=Difference(
        "gradient",
        "Step 1: the gradient of fc1.weight is 2 times the reference.",
        ("At train.py:20 in main.",),
        "Divide by the number of ranks after a sum.",
        "gradient",
        "fc1.weight",
    ),
)


UNKNOWN = replace(
    RIGHT,
    tensors=(*TENSORS[:-1], replace(TENSORS[-1], incomparable="tolerance")),
    gaps=(
        Uncompared("tolerance", 2, ("fc1.weight", "fc1.bias")),
        Uncompared("unread", 1, ("fc2",), ("torch.func",)),
        Uncompared("limit", 12),
    ),
    excluded=("experts.0.weight",),
)


def test_the_views():
    for name, report in (("right", RIGHT), ("wrong", WRONG), ("unknown", UNKNOWN)):
        golden(GOLDEN / f"{name}.txt", partial(parity_view, report))
        assert report.ok is (name == "right")


ODD = Comparison("output", 0, "fc1", (), explained=False, deviation=3.0)
SCALED = Comparison("gradient", 0, "fc1.weight", ("R",), explained=False, factor=4.0)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (ODD, "no placement explains 1 other, but the gradients and parameters that follow are"),
        (SCALED, "1 gradient differs, and the optimizer's step makes up for it."),
    ],
)
def test_what_is_made_up_for_is_counted_and_not_said_to_be_right(tensor, text):
    report = ParityReport(None, 2, steps=1, axes=MESH[:1], tensors=(TENSORS[0], tensor))
    start = "1 tensor of 2 ranks agrees with the reference in the first step; "
    assert verdict_text(report).startswith(start + text)


def test_gaps_are_counted_in_words():
    gaps = (Uncompared("steps", 1), Uncompared("steps", -2), Uncompared("limit", 1))
    seen = Gap("calls", ("Own",), SourceLine("train.py", 3), (0, 1), 2, is_asked=True)
    report = ParityReport(None, 2, gaps=gaps, stopped="a note is damaged", unseen=(seen,))
    assert uncompared_texts(report) == [
        "The ranks make at least 1 step more than the reference.",
        "The ranks make at least 2 steps fewer than the reference.",
        "Beyond the limit of what is recorded: 1 tensor.",
        "The ranks' calls were not compared to the end: a note is damaged.",
        (
            "Not compared: 2 calls on Own, a process group that the program builds itself (ranks "
            "0-1, first at train.py:3)."
        ),
    ]
    for one in (replace(report, gaps=(), unseen=()), replace(report, gaps=(), stopped="")):
        assert one.verdict == "incomplete"
