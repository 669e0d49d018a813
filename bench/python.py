#!/usr/bin/env python3
"""What feeding through Python costs: of every session.step(batch) the time that C's own step takes (metric step_s) is taken away, so that
both sides are of the same step and what slows the machine does not count.

    python bench/python.py [--steps 400] [--model mlp-small|gpt-small|all]

Prints, per model, medians in microseconds: a step through Python, the step alone, and the median of the differences. Limits: 30 us on mlp-small, 2 % of the step on gpt-small. Needs torch; run it with nothing else on the machine.
"""
import argparse
import pathlib
import statistics
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SOURCE / "python"))

import weft
from torch_step import workload


def measure(name, steps, limit):
    model, batch, optimizer = workload(name)
    session = weft.Session(weft.export(model.train(), batch), optimizer(model.parameters()))
    whole, alone = [], []
    for i in range(steps + 20):
        begin = time.perf_counter()
        session.step(batch)
        took = time.perf_counter() - begin
        if i >= 20:
            whole.append(took * 1e6)
            alone.append(session.metric("step_s") * 1e6)
    added = statistics.median(w - a for w, a in zip(whole, alone))
    step = statistics.median(alone)
    allowed = limit(step)
    print(f"{name:<10} step through Python {statistics.median(whole):10.1f} us   the step alone {step:10.1f} us   feeding {added:6.1f} us "
          f"= {added / step * 100:5.2f} %   allowed {allowed:.1f} us   {'ok' if added <= allowed else 'TOO MUCH'}")
    return added <= allowed


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--model", choices=["mlp-small", "gpt-small", "all"], default="all")
    o = ap.parse_args()
    good = True
    if o.model != "gpt-small":
        good &= measure("mlp-small", o.steps, lambda step: 30.0)
    if o.model != "mlp-small":
        good &= measure("gpt-small", o.steps // 4, lambda step: 0.02 * step)
    sys.exit(not good)


if __name__ == "__main__":
    main()
