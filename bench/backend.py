#!/usr/bin/env python3
"""torch.compile(backend="weft") beside the default backend and eager PyTorch, in an ordinary loop (loss.backward(); optimizer.step()).

    bench/backend.py                        all workloads, first and steady steps
    bench/backend.py mlp lstm --rounds 4
    bench/backend.py --write                also puts the table into docs/performance.md

First step: seconds from the first call to the end of that step, in processes of their own whose caches (TORCHINDUCTOR_CACHE_DIR,
XDG_CACHE_HOME) are empty; again: Weft in a second process, with the cache of the first. Steady step: one process has an eager
model and its twins through Weft, and turns of a few steps alternate; a ratio is taken within a round, of medians. Where the processor
has AMX, the last two columns are the same with options={"isa": "amx"}.
"""
import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as bench


def prepare(workload, threads):
    """model, batch, maker of the optimiser; imports that dynamo would do are done."""
    import torch
    import torch._dynamo.backends.registry  # the same for both, and not what is measured
    import torch_step
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, batch, optimizer = torch_step.workload(workload)
    torch._dynamo.config.allow_rnn = True
    return torch, model.train(), batch, optimizer


def stepper(f, model, batch, optimizer):
    o = optimizer(model.parameters())

    def step():
        loss = f(*batch)
        loss.backward()
        o.step()
        o.zero_grad()
        return loss.item()
    return step


def through_weft(torch, model, **options):
    sys.path.insert(0, os.path.join(bench.ROOT, "python"))
    from weft import dynamo
    return torch.compile(model, backend=dynamo.backend, options=options)


def first(workload, backend, threads):
    torch, model, batch, optimizer = prepare(workload, threads)
    start = time.perf_counter()
    f = through_weft(torch, model) if backend == "weft" else torch.compile(model)
    loss = stepper(f, model, batch, optimizer)()
    return dict(first_s=time.perf_counter() - start, loss=loss)


def steady(workload, rounds, steps, threads):
    torch, model, batch, optimizer = prepare(workload, threads)
    sides = [stepper(model, model, batch, optimizer)]
    for options in [{}, {"isa": "amx"}] if bench.has_tiles() else [{}]:
        twin = copy.deepcopy(model)
        sides.append(stepper(through_weft(torch, twin, **options), twin, batch, optimizer))
    losses = [s() for s in sides]
    for s in sides:
        for _ in range(2):
            s()
    times = []
    for r in range(rounds):
        row = [0.0] * len(sides)
        for k in range(len(sides)) if r % 2 == 0 else reversed(range(len(sides))):
            one = []
            for _ in range(steps):
                t = time.perf_counter()
                sides[k]()
                one.append((time.perf_counter() - t) * 1e3)
            row[k] = statistics.median(one)
        times.append(row)
    return dict(losses=losses, times=times)


def child(words, cache=None):
    env = dict(os.environ, WEFT_LIBRARY=os.path.join(bench.ROOT, "build", "libweft.so"))
    if cache:
        env.update(XDG_CACHE_HOME=cache, TORCHINDUCTOR_CACHE_DIR=os.path.join(cache, "inductor"))
    code, out, err, _, _ = bench.run([sys.executable, os.path.abspath(__file__), *words], env)
    if code:
        raise RuntimeError(err.strip()[-400:])
    return json.loads(out.strip().splitlines()[-1])


def measure(workload, a):
    """A row of the table."""
    weft = inductor = again = None
    if not a.steady:
        with tempfile.TemporaryDirectory(dir=bench.WORK) as cache:
            weft = child(["--one", "weft", workload], cache)
            again = child(["--one", "weft", workload], cache)
        with tempfile.TemporaryDirectory(dir=bench.WORK) as cache:
            inductor = child(["--one", "inductor", workload], cache)
        if abs(weft["loss"] - inductor["loss"]) > 1e-4 * abs(inductor["loss"]):
            raise RuntimeError(f"the losses of the first step differ: {weft['loss']} and {inductor['loss']}")
    with tempfile.TemporaryDirectory(dir=bench.WORK) as cache:
        # two steps of a small model are noise: turns of many
        steps = {"mlp-small": 200, "mlp": 40}.get(workload, a.steps)
        both = child(["--one", "steady", workload, "--rounds", str(a.rounds), "--steps", str(steps)], cache)
    said = []
    for side in range(1, len(both["times"][0])):
        ratios = [row[side] / row[0] for row in both["times"]]
        said += [f"**{statistics.median(ratios):.2f}**", f"{min(ratios):.2f} to {max(ratios):.2f}"]
    ms = [statistics.median(column) for column in zip(*both["times"])]
    cold = ["-"] * 4 if a.steady else [f"{inductor['first_s']:.1f}", f"{weft['first_s']:.1f}", f"**{weft['first_s'] / inductor['first_s']:.2f}**",
                                       f"{again['first_s']:.1f}"]
    return [workload, *cold, f"{ms[0]:.2f}", f"{ms[1]:.2f}", *said]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", help=f"{', '.join(bench.WORKLOADS)} (the default)")
    p.add_argument("--rounds", type=int, default=4, help="of steady steps")
    p.add_argument("--steps", type=int, default=5, help="in a turn; small workloads take more")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steady", action="store_true", help="steady steps alone")
    p.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    p.add_argument("--one", choices=["weft", "inductor", "steady"], help="one process of it, for the script itself")
    a = p.parse_args()
    if a.one:
        w = a.workloads[0]
        print(json.dumps(steady(w, a.rounds, a.steps, a.threads) if a.one == "steady" else first(w, a.one, a.threads)))
        return 0
    os.makedirs(bench.WORK, exist_ok=True)
    rows, failures = [], []
    for w in a.workloads or bench.WORKLOADS:
        bench.guarded(w, lambda w=w: rows.append(measure(w, a)), failures)
    head = ["workload", "default, first", "Weft, first", "ratio", "Weft, again", "eager", "Weft", "ratio", "spread"] + (["tiles", "spread"] if bench.has_tiles() else [])
    words = " ".join(w for w in sys.argv[1:] if w != "--write")
    text = (f"{bench.machine()}\n\nFirst step in s, steady step in ms, {a.threads} threads (`bench/backend.py{' ' + words if words else ''}`).\n\n"
            f"{bench.table(head, rows)}\n")
    text += "".join(f"\nFailed: {f}\n" for f in failures)
    print(text)
    if a.write:
        bench.write(text, "backend.py")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
