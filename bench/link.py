#!/usr/bin/env python3
"""Fusion on a slow link (wire.py): the gradients of a model between two ranks of one thread, Weft over Open MPI.

    bench/link.py                          ResNet-50's 161 gradients at 400 Mbit/s with 5 and 13 ms each way: the planner's
                                           buckets against `--bucket-mb 0 --no-overlap`, and its bus bandwidth
    bench/link.py --sizes --model M        the planner against 20 fixed bucket sizes

The link is measured once (`weft bench --machine`), as a user would. A run's time is the median of its steps (`weft bench`),
the first four left out; both sides take turns. Bus bandwidth is bytes of gradients / time of the whole step (for two ranks
2 (n - 1) / n is 1): ResNet-50 is given two small pictures a rank, so that its step is little else than its reductions.
Buffers are not sent (`--buffers none`). --sizes: paired differences within a round, their median and, from all rounds and
steps, a 95 % interval of the median (binomial); needs `--rounds` of 6 or more to have one.
"""
import argparse
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench
from wire import Wire, possible

SIZES = [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 25, 50, 200]


def measured(wire, cache):
    out, _ = wire.mpirun([bench.WEFT, "bench", "--machine", "--cache-dir", cache])
    return re.search(r"link .*", out).group(0)


def step(wire, model, cache, steps, *flags):
    """Median step in ms, and millions of parameters."""
    folder = os.path.join(bench.WORK, model)
    out, err = wire.mpirun([bench.WEFT, "bench", os.path.join(folder, "model.pt2"), "--data",
                            bench.repeated(os.path.join(folder, "inputs.safetensors"), 2), "--no-shuffle", "--threads", "1",
                            "--steps", str(steps + 4), "--buffers", "none", "--cache-dir", cache,
                            *{**bench.WORKLOADS, **bench.MORE}[model], *flags])
    ms = re.search(r"step: ([0-9.]+) ms(?: with reductions, ([0-9.]+) ms)?", out).groups()
    weights = re.search(r"([0-9,]+) parameters", err).group(1)
    return float(ms[1] or ms[0]), int(weights.replace(",", "")) / 1e6


def fusion(a, model, delay):
    cache = os.path.join(bench.WORK, f"link-{a.mbit:g}-{delay:g}")
    fused, apart, alone = [], [], []
    with Wire(a.mbit, delay) as wire:
        link = measured(wire, cache)
        for i in range(a.rounds):
            runs = [lambda: fused.append(step(wire, model, cache, a.steps)),
                    lambda: apart.append(step(wire, model, cache, a.steps, "--bucket-mb", "0", "--no-overlap")),
                    lambda: alone.append(step(wire, model, cache, a.steps, "--no-reduce"))]
            for fn in runs[i % 3:] + runs[:i % 3]:
                fn()
    ratios = sorted(y[0] / x[0] for x, y in zip(fused, apart))
    ms, one = statistics.median(x[0] for x in fused), statistics.median(x[0] for x in apart)
    rate = fused[0][1] * 4e6 / ms / 1e3
    none = statistics.median(x[0] for x in alone)
    return [model, f"{a.mbit:g} Mbit/s, {delay:g} ms", f"{none:.0f}", f"{one:.0f}", f"{ms:.0f}",
            f"**{statistics.median(ratios):.2f}**", f"{ratios[0]:.2f} to {ratios[-1]:.2f}", f"{rate:.1f} MB/s",
            f"{rate * 8 / a.mbit:.1%}"], link


def interval(values):
    """Median, and the order statistics that hold it with 95 % probability."""
    v, n = sorted(values), len(values)
    below, k, p = 0.0, 0, 0.5 ** n
    while k < n // 2 and below + p <= 0.025:
        below, k, p = below + p, k + 1, p * (n - k) / (k + 1)
    return (statistics.median(v), v[k - 1], v[n - k]) if k else (statistics.median(v), float("nan"), float("nan"))


def sizes(a, model, delay):
    cache = os.path.join(bench.WORK, f"link-{a.mbit:g}-{delay:g}")
    got = {s: [] for s in [-1] + SIZES}
    with Wire(a.mbit, delay) as wire:
        link = measured(wire, cache)
        for i in range(a.rounds):
            order = list(got)
            for s in order[i % len(order):] + order[:i % len(order)]:
                got[s].append(step(wire, model, cache, a.steps, "--bucket-mb", str(s))[0])
    best = min(SIZES, key=lambda s: statistics.median(got[s]))
    middle, low, high = interval([x / y - 1 for x, y in zip(got[-1], got[best])])
    return [model, f"{a.mbit:g} Mbit/s, {delay:g} ms", f"{statistics.median(got[-1]):.1f}", f"{best:g} MB",
            f"{statistics.median(got[best]):.1f}", f"**{middle:+.1%}**", f"{low:+.1%} to {high:+.1%}"], link


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="resnet50-tiny")
    p.add_argument("--mbit", type=float, default=400)
    p.add_argument("--delay", default="5,13", help="ms, one way")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--sizes", action="store_true", help="the planner against 20 fixed bucket sizes")
    a = p.parse_args()
    if possible():
        sys.exit(f"no slow link here: {possible()}")
    os.makedirs(bench.WORK, exist_ok=True)
    bench.export(a.model)
    rows, links = zip(*((sizes if a.sizes else fusion)(a, a.model, float(d)) for d in a.delay.split(",")))
    head = ["model", "link", "planned, ms", "best fixed", "ms", "planned against it", "95 %"] if a.sizes else \
        ["model", "link", "no reductions, ms", "each alone, ms", "fused, ms", "ratio", "spread", "bus bandwidth", "of the rate"]
    print(bench.table(head, rows))
    print("\n".join(links))


if __name__ == "__main__":
    main()
