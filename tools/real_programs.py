"""Run real programs under the sanitizer, as they are and with mistakes, and print what it finds.

The programs are fetched, adapted to CPU by replacing a few words, and made smaller. Each mistake is
another replacement. Exit 1 if a right program has a finding or a warning, or a mistake isn't found.

    python tools/real_programs.py --folder FOLDER [NAME...]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
PATIENCE = 300  # seconds until a command is stopped
Changes = Mapping[str, Mapping[str, str]]
"""Texts and their replacements, by file."""


@dataclass(frozen=True)
class Mistake:
    """A mistake, and what should be reported.

    Attributes:
        name: What is wrong.
        changes: Replacements that make the mistake.
        ranks: Ranks at fault, or in the deadlock.
        line: Part of the line that must be shown; a line of the changed file.
    """

    name: str
    changes: Changes
    ranks: list[int]
    line: str


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        source: Repository and commit, ``owner/name@commit``; empty if `files` has everything.
        folder: Folder of the program in it.
        file: File to run.
        words: Its arguments.
        ranks: World size.
        packages: Packages that it needs.
        files: Files to add.
        changes: Replacements for CPUs.
        mistakes: Mistakes to make.
        variables: Environment variables.
    """

    source: str
    folder: str
    file: str
    words: list[str] = field(default_factory=list)
    ranks: int = 4
    packages: list[str] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    variables: Mapping[str, str] = field(default_factory=dict)


LIGHTNING = """
import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch).square().mean()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    devices=4,
    strategy="ddp",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
data = torch.utils.data.DataLoader(torch.randn(128, 8), batch_size=4)
trainer.fit(Model(), data)
"""
PICOTRON = """
import os
from types import SimpleNamespace

import picotron.process_group_manager as pgm
import torch
import torch.distributed as dist
from picotron.context_parallel.context_parallel import apply_context_parallel
from picotron.data_parallel.data_parallel import DataParallelBucket
from picotron.model import Llama
from picotron.pipeline_parallel.pipeline_parallel import PipelineParallel, train_step_pipeline_1f1b
from picotron.process_group_manager import setup_process_group_manager
from picotron.tensor_parallel.tensor_parallel import apply_tensor_parallel
from picotron.utils import average_loss_across_dp_cp_ranks, get_num_params

CONFIG = SimpleNamespace(
    vocab_size=64, hidden_size=32, num_attention_heads=4, num_key_value_heads=4,
    num_hidden_layers=2, intermediate_size=64, max_position_embeddings=16, rms_norm_eps=1e-5,
    rope_theta=10000.0,
)


class Batches:
    grad_acc_steps = 2

    def __next__(self):
        ids = torch.randint(64, (2, 16))
        length = 16 // world.cp_world_size
        part = slice(world.cp_rank * length, (world.cp_rank + 1) * length)
        places = torch.arange(16).expand(2, 16)
        return {"input_ids": ids[:, part], "target_ids": ids[:, part],
                "position_ids": places[:, part], "hidden_states": None}


dist.init_process_group("gloo")
rank = dist.get_rank()
setup_process_group_manager(tp_size=2, cp_size=1, pp_size=2, dp_size=2)
world = pgm.process_group_manager
torch.manual_seed(1 + world.dp_rank)
model = PipelineParallel(apply_tensor_parallel(Llama(config=CONFIG)), CONFIG)
model.reset_parameters()
if world.cp_world_size > 1:
    model = apply_context_parallel(model)
model = DataParallelBucket(model.float())
get_num_params(model)
optimizer = torch.optim.AdamW(model.parameters())
dist.barrier()
batches = Batches()
for step in range(4):
    optimizer.zero_grad()
    loss = train_step_pipeline_1f1b(
        model, batches, (2, 16 // world.cp_world_size, 32), torch.device("cpu"), torch.float32
    )
    loss = average_loss_across_dp_cp_ranks(loss, "cpu")
    optimizer.step()
    model.reset()
dist.destroy_process_group()
"""
EXAMPLES = "pytorch/examples@77f55b912142e11fcfdf5b530231fb9c52f181e8"
NO_GPU_CHECK = {"_min_gpu_count = ": "_min_gpu_count = 0 * "}
PROGRAMS = {
    "ddp-tutorial": Program(
        EXAMPLES,
        "distributed/ddp-tutorial-series",
        "multigpu_torchrun.py",
        ["3", "1"],
        changes={
            "multigpu_torchrun.py": {
                '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n': "",
                "nccl": "gloo",
                ".to(self.gpu_id)": '.to("cpu")',
                ", device_ids=[self.gpu_id]": "",
                "pin_memory=True": "pin_memory=False",
            }
        },
        mistakes=[
            Mistake(
                "one rank leaves an epoch early",
                {
                    "multigpu_torchrun.py": {
                        "        for source, targets in self.train_data:\n": (
                            "        for number, (source, targets) in enumerate(self.train_data):\n"
                            "            if self.gpu_id == 1 and epoch == 2 and number == 9:\n"
                            "                return\n"
                        )
                    }
                },
                [1],
                "loss.backward()",
            ),
            Mistake(
                "only rank 0 waits for the others after saving",
                {
                    "multigpu_torchrun.py": {
                        "        torch.save(snapshot, self.snapshot_path)\n": (
                            "        torch.save(snapshot, self.snapshot_path)\n"
                            "        torch.distributed.barrier()\n"
                        )
                    }
                },
                [0],
                "torch.distributed.barrier()",
            ),
            Mistake(
                "one rank logs its loss as float64",
                {
                    "multigpu_torchrun.py": {
                        "        self.optimizer.step()\n": (
                            "        self.optimizer.step()\n"
                            "        logged = loss.detach().double() if self.gpu_id == 2 "
                            "else loss.detach()\n"
                            "        torch.distributed.all_reduce(logged)\n"
                        )
                    }
                },
                [2],
                "torch.distributed.all_reduce(logged)",
            ),
        ],
    ),
    "minGPT-ddp": Program(
        EXAMPLES,
        "distributed/minGPT-ddp/mingpt",
        "main.py",
        [
            "data_config.path=data/input.txt",
            "data_config.truncate=0.0005",
            "data_config.block_size=16",
            "trainer_config.max_epochs=2",
            "trainer_config.batch_size=16",
            "trainer_config.data_loader_workers=0",
            "trainer_config.use_amp=False",
            "trainer_config.save_every=1",
            "gpt_config.n_layer=1",
            "gpt_config.n_embd=32",
        ],
        packages=["hydra-core", "omegaconf", "antlr4-python3-runtime==4.9.3", "pyyaml"],
        changes={
            "main.py": {
                **NO_GPU_CHECK,
                "has_gpu and gpu_count": "gpu_count",
                "acc = torch.accelerator.current_accelerator()": 'acc = "cpu"',
                "    torch.accelerator.set_device_index(rank)\n": "",
            },
            "trainer.py": {
                "import boto3\n": "",
                "torch.accelerator.current_accelerator()": '"cpu"',
                ".to(self.local_rank)": '.to("cpu")',
                ", device_ids=[self.local_rank]": "",
                "pin_memory=True": "pin_memory=False",
            },
        },
        mistakes=[
            Mistake(
                "one rank leaves an epoch early",
                {
                    "trainer.py": {
                        '            step_type = "Train" if train else "Eval"\n': (
                            '            step_type = "Train" if train else "Eval"\n'
                            "            if self.global_rank == 3 and train and iter == 2:\n"
                            "                break\n"
                        )
                    }
                },
                [3],
                "_, loss = self.model(source, targets)",
            ),
            Mistake(
                "only rank 0 averages the loss of the evaluation",
                {
                    "trainer.py": {
                        "        return loss.item()\n": (
                            "        if not train and self.global_rank == 0:\n"
                            "            torch.distributed.all_reduce(loss)\n"
                            "        return loss.item()\n"
                        )
                    }
                },
                [0],
                "torch.distributed.all_reduce(loss)",
            ),
            Mistake(
                "one rank counts another vocabulary",
                {
                    "main.py": {
                        "    gpt_cfg.vocab_size = dataset.vocab_size\n": (
                            "    gpt_cfg.vocab_size = dataset.vocab_size + "
                            '(os.environ["RANK"] == "2")\n'
                        )
                    }
                },
                [2],
                "self.model = DDP(self.model)",
            ),
        ],
    ),
    "FSDP2": Program(
        EXAMPLES,
        "distributed/FSDP2",
        "example.py",
        changes={
            "example.py": {
                **NO_GPU_CHECK,
                "has_gpu and gpu_count": "gpu_count",
                ", device_id=device": "",
                "n_layers=10": "n_layers=2",
                "n_heads=4": "n_heads=2, dim=64",
                "batch_size = 32": "batch_size = 2",
                "for _ in range(10):": "for number in range(10):",
            }
        },
        mistakes=[
            Mistake(
                "one rank has a batch less",
                {"example.py": {"in range(10):": "in range(10 - (rank == 1)):"}},
                [1],
                "loss = model(x).sum()",
            ),
            Mistake(
                "only rank 0 gathers the parameters for the checkpoint",
                {
                    "checkpoint.py": {
                        "            full_param = sharded_param.full_tensor()\n": (
                            "            if torch.distributed.get_rank() != 0:\n"
                            "                continue\n"
                            "            full_param = sharded_param.full_tensor()\n"
                        )
                    }
                },
                [0],
                "full_param = sharded_param.full_tensor()",
            ),
            Mistake(
                "only rank 0 clips its gradients",
                {
                    "example.py": {
                        "        torch.nn.utils.clip_grad_norm_(": (
                            "        rank or torch.nn.utils.clip_grad_norm_("
                        )
                    }
                },
                [0],
                "rank or torch.nn.utils.clip_grad_norm_(",
            ),
        ],
    ),
    "tensor-parallelism": Program(
        EXAMPLES,
        "distributed/tensor_parallelism",
        "fsdp_tp_example.py",
        changes={
            "fsdp_tp_example.py": {
                **NO_GPU_CHECK,
                "torch.accelerator.current_accelerator().type": '"cpu"',
                "32000": "500",
                "dim=256": "dim=64",
                "(8, 256)": "(2, 32)",
            },
            "log_utils.py": {"has_gpu and gpu_count": "gpu_count"},
            "llama2_model.py": {
                "F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)": (
                    "(xq @ xk.transpose(-1, -2)).softmax(-1) @ xv"
                )
            },
        },
        mistakes=[
            Mistake(
                "one rank has an iteration less",
                {
                    "fsdp_tp_example.py": {
                        "num_iterations = 10": "num_iterations = 10 - (_rank == 3)"
                    }
                },
                [3],
                "output = sharded_model(inp)",
            ),
            Mistake(
                "only rank 0 waits for the others",
                {
                    "fsdp_tp_example.py": {
                        "    optimizer.step()\n": (
                            "    optimizer.step()\n    if _rank == 0 and i == 4:\n"
                            "        dist.barrier()\n"
                        )
                    }
                },
                [0, 1],
                "dist.barrier()",
            ),
            Mistake(
                "one rank sums its loss over the tp group",
                {
                    "fsdp_tp_example.py": {
                        "    output.sum().backward()\n": (
                            "    output.sum().backward()\n    if _rank == 1 and i == 4:\n"
                            "        dist.all_reduce(output.detach().sum(), "
                            "group=tp_mesh.get_group())\n"
                        )
                    }
                },
                [1],
                "dist.all_reduce(output.detach().sum()",
            ),
        ],
    ),
    "picotron": Program(
        "huggingface/picotron@59714b1bf25541dbeb6f5a721ed15f6d0768e786",
        ".",
        "job.py",
        ranks=8,
        files={
            "job.py": PICOTRON,
            "flash_attn/flash_attn_interface.py": "flash_attn_func = None\n",
            "flash_attn/layers/rotary.py": "apply_rotary_emb = None\n",
            "flash_attn/ops/triton/layer_norm.py": "layer_norm_fn = None\n",
        },
        changes={
            "picotron/utils.py": {"import huggingface_hub\n": "", "'cuda'": "'cpu'"},
            "picotron/pipeline_parallel/pp_communications.py": {"torch.cuda.synchronize()": "pass"},
            "picotron/context_parallel/cp_communications.py": {"torch.cuda.synchronize()": "pass"},
        },
        mistakes=[
            Mistake(
                "one rank leaves out a step",
                {"job.py": {"in range(4):": "in range(4 - (rank == 5)):"}},
                [5],
                "dist.all_reduce(x, op=dist.ReduceOp.SUM",
            ),
            Mistake(
                "one rank averages over its dp group alone",
                {
                    "job.py": {
                        "    optimizer.step()\n": (
                            "    optimizer.step()\n    if rank == 3:\n"
                            "        dist.all_reduce(torch.ones(1), group=world.dp_group)\n"
                        )
                    }
                },
                [3, 7],
                "dist.all_reduce(torch.ones(1), group=world.dp_group)",
            ),
            Mistake(
                "the library doesn't skip the first stage",
                {
                    "picotron/pipeline_parallel/pp_communications.py": {
                        "if pgm.process_group_manager.pp_is_last_stage: return\n": (
                            "if pgm.process_group_manager.pp_is_last_stage: return\n"
                            "        if pgm.process_group_manager.global_rank == 0: return\n"
                        )
                    }
                },
                [0, 2],
                "for req in dist.batch_isend_irecv([op])",
            ),
        ],
        variables={"DEVICE": "cpu", "DTYPE": "float32", "FLASH_ATTEN": "0"},
    ),
    "accelerate": Program(
        "huggingface/accelerate@16cb6eb8",
        "src/accelerate/test_utils/scripts",
        "test_ops.py",
        packages=[
            "accelerate==1.10.1",
            "huggingface-hub==0.36.0",
            "safetensors",
            "psutil",
            "pyyaml",
            "tqdm",
            "requests",
            "urllib3",
            "idna",
            "certifi",
            "charset-normalizer",
            "packaging",
            "numpy",
        ],
        mistakes=[
            Mistake(
                "one rank passes float64",
                {
                    "test_ops.py": {
                        "gathered_tensor = gather(tensor)": (
                            "gathered_tensor = "
                            "gather(tensor.double() if state.process_index == 2 else tensor)"
                        )
                    }
                },
                [2],
                "gather(tensor.double()",
            ),
            Mistake(
                "rank 0 leaves out a gather",
                {
                    "test_ops.py": {
                        "    _ = gather(tensor)": (
                            "    if state.process_index:\n        _ = gather(tensor)"
                        )
                    }
                },
                [0],
                "_ = gather(tensor)",
            ),
            Mistake(
                "one rank has a longer tensor",
                {
                    "test_ops.py": {
                        "torch.arange(12, device=state.device)": (
                            "torch.arange(12 + 3 * (state.process_index == 3))"
                        ),
                        "view(4, 3)": "view(-1, 3)",
                    }
                },
                [3],
                "_ = gather(tensor)",
            ),
        ],
        variables={"ACCELERATE_USE_CPU": "true"},
    ),
    "lightning": Program(
        "",
        "",
        "job.py",
        packages=[
            "lightning==2.6.6",
            "torchmetrics",
            "lightning-utilities",
            "pytorch-lightning",
            "tqdm",
            "pyyaml",
        ],
        files={"job.py": LIGHTNING},
        mistakes=[
            Mistake(
                "only rank 0 gathers the loss",
                {
                    "job.py": {
                        "        return loss\n": (
                            "        if self.global_rank == 0:\n"
                            "            self.all_gather(loss)\n        return loss\n"
                        )
                    }
                },
                [0],
                "self.all_gather(loss)",
            ),
            Mistake(
                "only rank 1 logs the mean",
                {
                    "job.py": {
                        "        return loss\n": (
                            "        if self.global_rank == 1:\n"
                            '            self.log("loss", loss, sync_dist=True)\n'
                            "        return loss\n"
                        )
                    }
                },
                [1],
                'self.log("loss"',
            ),
            Mistake(
                "one rank skips a batch",
                {
                    "job.py": {
                        "        return loss\n": (
                            "        if self.global_rank == 2 and index == 3:\n"
                            "            return None\n        return loss\n"
                        )
                    }
                },
                [2],
                "trainer.fit(",
            ),
        ],
    ),
}


def git(*words: str) -> None:
    """Run git."""
    subprocess.run(["git", *words], check=True)  # noqa: S607 - the user's git


def fetched(program: Program, folder: Path, pattern: str) -> Path:
    """Return the folder of a program as it is in its repository."""
    name, _, commit = program.source.partition("@")
    clone = folder / name.replace("/", "+")
    if not clone.exists():
        url = pattern.format(owner=name.partition("/")[0], name=name.partition("/")[2])
        git("clone", "--quiet", "--no-checkout", url, str(clone))
    git("-C", str(clone), "checkout", "--quiet", commit, "--", program.folder)
    return clone / program.folder


def changed(
    original: Path | None, folder: Path, files: Mapping[str, str], *all_changes: Changes
) -> None:
    """Copy a program, add files, and replace texts in its files.

    Raises:
        ValueError: A text doesn't occur.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if original is None:
        folder.mkdir(parents=True)
    else:
        shutil.copytree(original, folder, ignore=shutil.ignore_patterns(".git"))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip(), encoding="utf-8")
    for changes in all_changes:
        for name, words in changes.items():
            text = (folder / name).read_text(encoding="utf-8")
            for old, new in words.items():
                if old not in text:
                    raise ValueError(f"{name} has no {old!r}")
                text = text.replace(old, new)
            (folder / name).write_text(text, encoding="utf-8")


def report(program: Program, folder: Path, packages: Path) -> dict[str, Any]:
    """Run a program under the sanitizer and return the report."""
    line = [sys.executable, "-m", "distdemo", "run", program.file, "-n", str(program.ranks)]
    line += ["--capture", "--stall", "60", "--format", "json", "--", *program.words]
    paths = [str(packages), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        line,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            **program.variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=PATIENCE,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numbers_of(folder: Path, mistake: Mistake) -> set[str]:
    """Return the lines, ``train.py:7``, that one of the findings' rows must have."""
    return {
        f"{Path(name).name}:{number}"
        for name in {str(each.relative_to(folder)) for each in folder.rglob("*.py")}
        for number, text in enumerate((folder / name).read_text(encoding="utf-8").splitlines(), 1)
        if mistake.line in text
    }


def row(program: Program, mistake: Mistake | None, folder: Path, packages: Path) -> list[str]:
    """Return kind, whether ranks and line are right, and the summary."""
    found = report(program, folder, packages)
    noted = [*found.get("findings", ()), *found.get("warnings", ())]
    errors = found.get("errors", [])
    if mistake is None:
        what = [each["what"] for each in (*noted, *errors)]
        return ["nothing" if not what else "NOT CLEAN", "", "", " ".join(what)]
    if not noted:
        return ["NOT FOUND", "", "", " ".join(each["what"] for each in errors)]
    first = noted[0]
    ranks = first.get("ranks", [])
    shown = set(re.findall(r"[\w.]+\.py:\d+", json.dumps(first)))
    right = [
        "yes" if each else "no"
        for each in (ranks == mistake.ranks, shown & numbers_of(folder, mistake))
    ]
    return [first["kind"], *right, first["what"]]


def main() -> int:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(PROGRAMS))
    parser.add_argument("--folder", type=Path, default=Path(gettempdir(), "real-programs"))
    parser.add_argument("--sources", default="https://github.com/{owner}/{name}")
    options = parser.parse_args()
    packages = options.folder / "site-packages"
    table = Table("program", "mistake", "found", "ranks", "line", "what")
    good = True
    for name in options.names or PROGRAMS:
        program = PROGRAMS[name]
        missing = [each for each in program.packages if not (packages / f".{each}").exists()]
        for each in missing:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
            subprocess.run(
                [*pip, "--no-deps", "--upgrade", each], check=True
            )  # torch must stay as it is
            (packages / f".{each}").touch()
        source = program.source
        original = fetched(program, options.folder, options.sources) if source else None
        for mistake in [None, *program.mistakes]:
            folder = options.folder / "programs" / name
            changed(
                original, folder, program.files, program.changes, mistake.changes if mistake else {}
            )
            cells = row(program, mistake, folder, packages)
            table.add_row(name, mistake.name if mistake else "", *cells)
            good &= not cells[0].startswith("NOT")
            print(name, *cells, sep=" | ", file=sys.stderr)
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
