#!/usr/bin/env python3
"""What a step waits for its data: share of `data_ms` in `step_ms`, medians over the steps, each in several runs.

    bench/data.py [--rounds 3] [--steps 40]     gpt-small from a sparse file of 10 GB of tokens, shuffled; mlp from a .npz of 60,000 rows
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench


def measure(workload, data, steps):
    out = os.path.join(bench.WORK, "data-run")
    shutil.rmtree(out, ignore_errors=True)
    model = os.path.join(bench.WORK, workload, "model.pt2")
    code, _, err, _, _ = bench.run([bench.WEFT, "train", model, *data, *bench.WORKLOADS[workload], "--steps",
                                    str(steps), "--threads", "2", "--out", out])
    if code:
        raise RuntimeError(f"weft: {err.strip()[-300:]}")
    lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    rows = [line for line in lines if "step_ms" in line][5:]
    return (statistics.median(r["data_ms"] / r["step_ms"] for r in rows), statistics.median(r["step_ms"] for r in rows),
            max(r["rss_mb"] for r in rows))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=40)
    a = p.parse_args()
    table = []
    with tempfile.TemporaryDirectory(dir=bench.WORK) as folder:
        tokens, rows = os.path.join(folder, "tokens.bin"), os.path.join(folder, "rows.npz")
        with open(tokens, "wb") as f:
            f.truncate(10 * 10**9)
        rng = numpy.random.default_rng(0)
        numpy.savez(rows, x=rng.random((60000, 784), numpy.float32), y=rng.integers(0, 10, 60000))
        for workload, data in ("gpt-small", ["--data", f"idx,y={tokens}"]), ("mlp", ["--data", rows]):
            bench.export(workload)
            runs = [measure(workload, data, a.steps) for _ in range(a.rounds)]
            shares = sorted(r[0] for r in runs)
            table.append([workload, f"{statistics.median(r[1] for r in runs):.2f}", f"{statistics.median(shares):.2%}",
                          f"{shares[0]:.2%} to {shares[-1]:.2%}", f"{max(r[2] for r in runs):.0f}"])
    print(bench.table(["workload", "step, ms", "waits for data", "from, to", "MB resident"], table))


if __name__ == "__main__":
    main()
