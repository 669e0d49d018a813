#!/usr/bin/env python3
"""Fusion on a slow link (wire.py): the gradients of a model between two ranks of one thread, Weft over Open MPI.

    bench/link.py                          ResNet-50's 161 gradients at 400 Mbit/s with 5 and 13 ms each way: the planner's
                                           buckets against `--bucket-mb 0 --no-overlap`, and its bus bandwidth
    bench/link.py --sizes                  the planner against 20 fixed bucket sizes, of 3 models on 3 links
    bench/link.py --sizes --models mlp --links 400:5

The link is measured once (`weft bench --machine`), as a user would. A run's time is the median of its steps (`weft bench`),
the first four left out; both sides take turns. Bus bandwidth is bytes of gradients / time of the whole step (for two ranks
2 (n - 1) / n is 1): ResNet-50 is given two small pictures a rank, so that its step is little else than its reductions.
Buffers are not sent (`--buffers none`).

--sizes: sizes that cut the same buckets (`weft plan`) are one. A round runs the planner's buckets and those sizes that are
left, one after the other: all of them in the first; then those within 20 % of the best median so far, then within 10 % and at
most 6, then within 5 % and at most 4. The planner's time by that of the best that is left, round by round: their median and,
from 6 rounds on, a 95 % interval of it (binomial). It ends after --rounds of them, or with 6 if all of the interval lies
within 3 %. Each model on each link gets at most --minutes.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

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


def fusion(a, model, mbit, delay):
    cache = os.path.join(bench.WORK, f"link-{mbit:g}-{delay:g}")
    fused, apart, alone = [], [], []
    with Wire(mbit, delay) as wire:
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
    return [model, f"{mbit:g} Mbit/s, {delay:g} ms", f"{none:.0f}", f"{one:.0f}", f"{ms:.0f}",
            f"**{statistics.median(ratios):.2f}**", f"{ratios[0]:.2f} to {ratios[-1]:.2f}", f"{rate:.1f} MB/s",
            f"{rate * 8 / mbit:.1%}"], link


def interval(values):
    """Median, and the order statistics that hold it with 95 % probability."""
    v, n = sorted(values), len(values)
    below, k, p = 0.0, 0, 0.5 ** n
    while k < n // 2 and below + p <= 0.025:
        below, k, p = below + p, k + 1, p * (n - k) / (k + 1)
    return (statistics.median(v), v[k - 1], v[n - k]) if k else (statistics.median(v), float("nan"), float("nan"))


def distinct(model, cache):
    """The first of all sizes that cut the same buckets, and what stands for it in a table."""
    folder, of = os.path.join(bench.WORK, model), {}
    for s in SIZES:
        out = subprocess.run([bench.WEFT, "plan", os.path.join(folder, "model.pt2"), "--nproc", "2", "--threads", "1", "--buffers",
                              "none", "--cache-dir", cache, "--bucket-mb", str(s), *{**bench.WORKLOADS, **bench.MORE}[model]],
                             capture_output=True, text=True, check=True, cwd=bench.ROOT).stdout
        of.setdefault(tuple(re.findall(r"^ +([0-9.]+)(?: +[0-9.]+){4}  (%\S+)$", out, re.M)), []).append(s)
    return {same[0]: f"{same[0]:g} MB" if len(same) == 1 else f"{same[0]:g} to {same[-1]:g} MB" for same in of.values()}


def sizes(a, model, mbit, delay):
    cache = os.path.join(bench.WORK, f"link-{mbit:g}-{delay:g}")
    names, begun = distinct(model, cache), time.monotonic()
    got, left = {s: [] for s in [-1, *names]}, list(names)
    middle = lambda s: statistics.median(got[s])
    with Wire(mbit, delay) as wire:
        link = measured(wire, cache)
        for i in range(a.rounds):
            order = [-1] + left
            for s in order[i % len(order):] + order[:i % len(order)]:
                got[s].append(step(wire, model, cache, a.steps, "--bucket-mb", str(s))[0])
            margin, most = [(1.2, len(names)), (1.1, 6), (1.05, 4)][min(i, 2)]
            left = [s for s in sorted(left, key=middle) if middle(s) <= margin * middle(min(left, key=middle))][:most]
            value, low, high = interval([x / y - 1 for x, y in zip(got[-1], got[left[0]])])
            print(f"{model}, {mbit:g} Mbit/s, {delay:g} ms, round {i + 1}, {time.monotonic() - begun:.0f} s: planned {middle(-1):.1f} ms; "
                  + ", ".join(f"{names[s]} {middle(s):.1f}" for s in left), file=sys.stderr)
            if -0.03 <= low and high <= 0.03 or time.monotonic() - begun > a.minutes * 60:
                break
    return [model, f"{mbit:g} Mbit/s, {delay:g} ms", str(len(names)), str(len(got[-1])), f"{middle(-1):.1f}", names[left[0]],
            f"{middle(left[0]):.1f}", f"**{value:+.1%}**", f"{low:+.1%} to {high:+.1%}"], link


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", help="resnet50-tiny; with --sizes mlp,lstm,gpt-small")
    p.add_argument("--links", help="MBIT:MS one way, ...; 400:5,400:13, with --sizes also 1000:0")
    p.add_argument("--rounds", type=int, help="3; with --sizes 10")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--minutes", type=float, default=4)
    p.add_argument("--sizes", action="store_true", help="the planner against 20 fixed bucket sizes")
    a = p.parse_args()
    if possible():
        sys.exit(f"no slow link here: {possible()}")
    os.makedirs(bench.WORK, exist_ok=True)
    models = (a.models or ("mlp,lstm,gpt-small" if a.sizes else "resnet50-tiny")).split(",")
    links = (a.links or ("400:5,400:13,1000:0" if a.sizes else "400:5,400:13")).split(",")
    a.rounds = a.rounds or (10 if a.sizes else 3)
    for m in models:
        bench.export(m)
    rows, measurements = zip(*((sizes if a.sizes else fusion)(a, m, *map(float, link.split(":"))) for m in models for link in links))
    head = ["model", "link", "different sizes", "rounds", "planned, ms", "best fixed", "ms", "planned against it",
            "95 %"] if a.sizes else \
        ["model", "link", "no reductions, ms", "each alone, ms", "fused, ms", "ratio", "spread", "bus bandwidth", "of the rate"]
    print(bench.table(head, rows))
    print("\n".join(measurements))


if __name__ == "__main__":
    main()
