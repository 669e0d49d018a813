#!/usr/bin/env python3
"""Records models that call torch.distributed._functional_collectives, trained by real processes over gloo.

    python tests/refs/collectives.py OUT [RANKS...]

OUT/collectives{2,3,4} hold what `weft verify` replays with as many ranks. Gradients are averaged over the ranks after the
backward pass, as DistributedDataParallel does; the backward pass itself speaks between the ranks where the model does.
With three the number of samples is a symbol, other in each step. With four ranks the model also names groups of two, by the names that rank 0's process gave them.
"""
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.distributed.nn.functional as dnn
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

BATCH, STEPS, LR, MOMENTUM = 12, 3, 0.1, 0.9
DYNAMIC = [12, 6, 9]  # samples of each step on three ranks: multiples of three
SETS = [[0, 1], [2, 3], [0, 2], [1, 3]]  # of four ranks: two ways to pair them


def broadcast(x, src, group):  # the functional one has no gradient in PyTorch: its eager sibling gives the reference
    return fc.broadcast(x, src, group) if torch.compiler.is_exporting() else dnn.broadcast(x, src, group)


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.rows, self.columns = rows, columns  # two groups: all ranks, or pairs of them
        self.a, self.b, self.c, self.o = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, y):
        n, world = dist.get_world_size(self.rows), dist.group.WORLD
        h = torch.tanh(self.a(x))
        whole = torch.tanh(self.b(fc.all_gather_single(h, 0, self.rows)))  # every rank's samples
        h = h + fc.reduce_scatter_single(whole, "sum", 0, self.rows) / n
        wide = fc.all_gather_single(h, 1, self.columns)  # along the features: a view of the blocks
        h = torch.tanh(self.c(wide[:, :8] + wide[:, 8:16]))
        h = h + fc.all_to_all_single(h, None, None, self.columns)  # others' samples
        mean = fc.all_reduce(h.mean(0), "sum", world) / dist.get_world_size()
        top = fc.all_reduce(h.max(0).values, "max", world)
        first = broadcast(h.sum(0), 1, world)
        parts = fc.all_reduce_coalesced([h.sum(0), (h * h).sum(0)], "sum", self.rows)
        out = self.o(h + 0.5 * mean - 0.1 * top + 0.01 * first + 0.02 * parts[0] * parts[1] / (BATCH * n) ** 2)
        return F.cross_entropy(out, y), out


def batch(step, rank, ranks):
    n = DYNAMIC[step] if ranks == 3 else BATCH
    g = torch.Generator().manual_seed(100 * step + rank)
    return {"x": torch.randn(n, 6, generator=g), "y": torch.randint(0, 4, (n,), generator=g)}


def gathered(value, ranks):
    all_ranks = [torch.empty_like(value) for _ in range(ranks)]
    dist.all_gather(all_ranks, value.contiguous())
    return all_ranks


def train(model, rank, ranks):
    values, losses = {}, []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, out = model(**batch(step, rank, ranks))
        loss.backward()
        for p in model.parameters():
            p.grad = torch.stack(gathered(p.grad, ranks)).sum(0) / ranks
        if step == 0:
            values.update({f"out.1.rank{r}": v for r, v in enumerate(gathered(out.detach(), ranks))})
            values.update({f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()})
        optimizer.step()
        losses.append(loss.detach())
        if step + 1 in (1, STEPS):
            values.update({f"param{step + 1}.{n}": p.detach().clone() for n, p in model.named_parameters()})
    per_rank = gathered(torch.stack(losses), ranks)
    values["loss"] = torch.stack(per_rank).mean(0)
    values.update({f"loss.rank{r}": v for r, v in enumerate(per_rank)})
    return values


def rank_main(rank, ranks, port, folder):
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo")
    groups = [dist.new_group(s) for s in SETS] if ranks == 4 else []
    mine = [g for s, g in zip(SETS, groups) if rank in s]
    rows, columns = mine if groups else (dist.group.WORLD, dist.group.WORLD)
    torch.manual_seed(7)
    model = Model(rows, columns).train()
    if rank == 0:
        size = 3 * torch.export.Dim("third", min=1)
        sizes = {"x": {0: size}, "y": {0: size}} if ranks == 3 else None
        exported = torch.export.export(model, (), batch(0, 0, ranks), dynamic_shapes=sizes, strict=False)
        os.makedirs(folder, exist_ok=True)
        torch.export.save(exported, os.path.join(folder, "model.pt2"))
    dist.barrier()
    values = train(model, rank, ranks)
    if rank == 0:
        case = {
            "name": f"collectives{ranks}", "format": 1, "set": "public", "torch_version": torch.__version__,
            "ir": "training", "model": "model.pt2", "steps": STEPS,
            "inputs": [{"name": n, "dtype": str(t.dtype).removeprefix("torch."), "shape": (["3*third"] if ranks == 3 else [BATCH]) + list(t.shape[1:])}
                       for n, t in batch(0, 0, ranks).items()],
            "loss": {"output": 0},
            "optimizer": {"type": "SGD", "lr": LR, "momentum": MOMENTUM},
            "trainable": [n for n, _ in model.named_parameters()],
            "data_parallel": ranks,
        }
        if groups:
            case["groups"] = {rows.group_name: SETS[:2], columns.group_name: SETS[2:]}
        with open(os.path.join(folder, "case.json"), "w") as f:
            json.dump(case, f, indent=1)
        save_file({f"step{s + 1}.rank{r}.{n}": t for s in range(STEPS) for r in range(ranks)
                   for n, t in batch(s, r, ranks).items()}, os.path.join(folder, "inputs.safetensors"))
        save_file({k: v.contiguous() for k, v in values.items()}, os.path.join(folder, "expected.safetensors"))
    dist.destroy_process_group()


def main():
    out = sys.argv[1]
    for ranks in [int(a) for a in sys.argv[2:]] or [2, 3, 4]:
        mp.spawn(rank_main, (ranks, 29700 + ranks, os.path.join(out, f"collectives{ranks}")), nprocs=ranks)


if __name__ == "__main__":
    main()
