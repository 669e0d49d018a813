#!/usr/bin/env python3
"""Overlap: how much of the reductions a step waits for, Weft against DistributedDataParallel, two ranks of one thread.

    bench/overlap.py [gpt-small resnet18-cifar] [--rounds N] [--steps N]

The link (wire.py, no delay) is as fast as lets all gradients travel in 0.6 of Weft's backward pass. Exposed is a step with
the link minus its neighbour with the reductions left out (`weft bench --no-reduce`, DDP's no_sync()), the median over the pairs
of a process, then over rounds. DDP runs over gloo with buckets
of 1, 5 and 25 MB, the best of which counts, with the fused optimiser and a heap that keeps its pages. Weft runs over Open MPI
after `weft bench --machine` on that link. The bound is what no schedule can hide: the largest over gradients i, in the order
in which they are ready, of ready_i + bytes ready from i on / rate, less the end of the backward pass, with times of every
call as WEFT_PROFILE measures them on the two ranks without reductions.
"""
import argparse
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench
from wire import Wire, possible

DDP = r"""
import os, statistics, sys, time
sys.path.insert(0, "bench")
import torch, torch.distributed as dist
import torch_step
name, mb, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
m, batch, optimizer = torch_step.workload(name, True)
m.train()
ddp = torch.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=mb, broadcast_buffers=False)
opt = optimizer(m.parameters())
def step(sync):
    if sync:
        ddp(*batch).backward()
    else:
        with ddp.no_sync():
            ddp(*batch).backward()
    opt.step()
    opt.zero_grad()
times = {True: [], False: []}
for sync in (True, False):
    for _ in range(2):
        step(sync)
for i in range(2 * steps):
    sync = i % 4 in (1, 2)
    if not sync:
        dist.barrier()
    t = time.perf_counter()
    step(sync)
    times[sync].append((time.perf_counter() - t) * 1e3)
if dist.get_rank() == 0:
    more = [x - y for x, y in zip(times[True], times[False])]
    print(statistics.median(times[True]), statistics.median(times[False]), statistics.median(more), flush=True)
dist.barrier()
os._exit(0)  # gloo's threads may end a process that leaves in order with SIGABRT
"""
READY = re.compile(r"start at ([0-9.]+) ms: ([0-9]+) elements of %(\S+)\.grad\.sent")  # a line of WEFT_PROFILE
HEAP = dict(MALLOC_TRIM_THRESHOLD_="-1", MALLOC_MMAP_MAX_="0", MALLOC_TOP_PAD_="268435456")


def command(model, cache, steps, *flags):
    folder = os.path.join(bench.WORK, model)
    return [bench.WEFT, "bench", os.path.join(folder, "model.pt2"), "--data",
            bench.repeated(os.path.join(folder, "inputs.safetensors"), 2), "--no-shuffle", "--threads", "1", "--steps",
            str(2 * steps + 4), "--buffers", "none", "--cache-dir", cache, *{**bench.WORKLOADS, **bench.MORE}[model], *flags]


def profile(wire, model, cache, steps):
    """(ready in s, bytes) of every gradient, in order of readiness, and the time of a forward pass."""
    data = ["--eval-data", os.path.join(bench.WORK, model, "inputs.safetensors")]
    _, err = wire.mpirun(command(model, cache, steps, "--bucket-mb", "0", "--no-reduce", *data), WEFT_PROFILE="1", WEFT_LOG="info")
    grads = {}  # both ranks print: a tensor's second time is the other rank's
    for t, n, name in READY.findall(err):
        grads.setdefault(name, []).append((float(t) / 1e3, 4 * int(n)))
    runs = [float(t) / 1e3 for t in re.findall(r"profile: \d+ calls, ([0-9.]+) ms a run", err)]
    return sorted((statistics.mean(t for t, _ in two), two[0][1]) for two in grads.values()), min(runs)


def bound(grads, rate):
    left, worst = sum(n for _, n in grads), 0
    for ready, n in grads:
        worst = max(worst, ready + left / rate)
        left -= n
    return worst - grads[-1][0]


def measure(a, model):
    bench.export(model)
    cache = os.path.join(bench.WORK, f"overlap-{model}")
    with Wire(0, 0) as wire:
        grads, forward = profile(wire, model, cache, a.steps)
    size = sum(n for _, n in grads)
    backward = grads[-1][0] - forward
    rate = size / (0.6 * backward)
    weft, ddp = [], {mb: [] for mb in (1, 5, 25)}
    with Wire(rate * 8e-6, 0) as wire:
        out, _ = wire.mpirun([bench.WEFT, "bench", "--machine", "--cache-dir", cache])
        print(f"{model}: {size / 1e6:.1f} MB of gradients, backward {backward * 1e3:.1f} ms, "
              f"link {rate / 1e6:.0f} MB/s; {re.search('link .*', out).group(0)}", file=sys.stderr)
        for _ in range(a.rounds):
            out, _ = wire.mpirun(command(model, cache, a.steps, "--no-reduce"))
            weft.append([float(x) for x in re.search(r"step: (\S+) ms with reductions, (\S+) ms without; they add (\S+) ms",
                                                     out).groups()])
            for mb in ddp:
                words = wire.ranks(["env", *(f"{k}={v}" for k, v in HEAP.items()), sys.executable, "-c", DDP, model, str(mb),
                                    str(a.steps)]).split()
                ddp[mb].append([float(x) for x in words[-3:]])
    exposed = lambda rows: statistics.median(r[2] for r in rows)
    spread = lambda rows: "{:.1f} to {:.1f}".format(min(r[2] for r in rows), max(r[2] for r in rows))
    best = min(ddp, key=lambda mb: exposed(ddp[mb]))
    mine, theirs, least = exposed(weft), exposed(ddp[best]), bound(grads, rate) * 1e3
    middle = lambda rows, k: statistics.median(r[k] for r in rows)
    return [model, f"{rate / 1e6:.0f} MB/s", f"{middle(weft, 1):.1f} / {middle(weft, 0):.1f}", f"{mine:.1f}", spread(weft),
            f"{middle(ddp[best], 1):.1f} / {middle(ddp[best], 0):.1f}", f"{theirs:.1f} ({best} MB)", spread(ddp[best]),
            f"**{mine / theirs:.2f}**", f"{least:.1f}", f"{mine / least:.2f}"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", default=["gpt-small", "resnet18-cifar"])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=9)
    a = p.parse_args()
    if possible():
        sys.exit(f"no slow link here: {possible()}")
    os.makedirs(bench.WORK, exist_ok=True)
    rows = [measure(a, m) for m in a.workloads]
    print(bench.table(["model", "link", "Weft without / with, ms", "exposed", "spread", "DDP without / with, ms", "exposed",
                       "spread", "Weft / DDP", "bound, ms", "Weft / bound"], rows))


if __name__ == "__main__":
    main()
