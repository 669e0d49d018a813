#!/usr/bin/env python3
"""Compare Weft with PyTorch: step time, peak memory, time from start to the first step.

    make bench                                     all workloads, 1 and 2 threads
    make bench BENCH_FLAGS="mlp lstm --rounds 3"
    make bench BENCH_FLAGS=--write                 also puts the tables into docs/performance.md
    make bench BENCH_FLAGS="--only ranks"          two ranks of one thread against DistributedDataParallel
    make bench BENCH_FLAGS="--only local"          all_reduce against gloo and MPIs (comm.py --help)
    make bench BENCH_FLAGS="--only ranks64"        64 ranks from the start to their first step (comm.py)
    make bench BENCH_FLAGS="--only link"           buckets on a slow link (link.py --help)
    make bench BENCH_FLAGS="--only overlap"        what a step waits for, against DistributedDataParallel (overlap.py --help)

Each round runs PyTorch as it comes, PyTorch at its best (fused optimiser and a heap that keeps its pages) and Weft, one
after the other, in a changing order; a process's step time is the median of its steps, and a ratio is taken within a
round, so that a slow minute of the machine hits both sides. The tables show medians over the rounds, and the smallest
and largest ratio.

Memory: the process's largest resident size, minus what it had before the model (PyTorch: after import; Weft: at main),
minus the bytes of weights, optimiser state and batch: what a step needs on top of what no system can avoid.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEFT = os.path.join(ROOT, "build", "weft")
WORK = os.path.join(ROOT, "build", "bench")
ADAMW = ["--optimizer", "adamw", "--lr", "3e-4", "--betas", "0.9,0.95", "--weight-decay", "0.1"]
SGD = ["--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9", "--weight-decay", "1e-4"]
WORKLOADS = {  # the options that say to Weft what torch_step.py says to PyTorch
    "mlp-small": ADAMW, "mlp": ADAMW, "gpt-small": ADAMW, "gpt-char": ADAMW, "lstm": ADAMW, "resnet18-cifar": SGD,
}
MORE = {"unet": ADAMW, "dlrm": SGD, "bert-mini": ADAMW, "gpt2-124m": ADAMW, "resnet50": SGD, "resnet50-tiny": SGD, "mobilenet": SGD,
        "convnext": ADAMW, "vit": ADAMW}
SCRIPTS = {  # tables of their own; flags behind the name are theirs
    "local": ["comm.py"], "ranks64": ["comm.py", "--many", "64"], "link": ["link.py"], "overlap": ["overlap.py"],
}
MB = 2.0 ** 20


def run(command, env=None):
    """(exit code, stdout, stderr, largest resident size in MB, seconds) of a command."""
    start = time.perf_counter()
    with open(os.path.join(WORK, "out"), "w+b") as out, open(os.path.join(WORK, "err"), "w+b") as err:
        p = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env, cwd=ROOT)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return (p.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace"),
                usage.ru_maxrss / 1024, time.perf_counter() - start)


def torch_step(workload, *flags):
    code, out, err, _, _ = run([sys.executable, "bench/torch_step.py", workload, *flags])
    if code != 0:
        raise RuntimeError(f"PyTorch: {err.strip().splitlines()[-1] if err.strip() else code}")
    return json.loads(out.strip().splitlines()[-1])


def repeated(path, times):
    """The same batch several times over: a batch for every rank."""
    from safetensors.numpy import load_file, save_file
    out = path.replace(".safetensors", f"-{times}.safetensors")
    if not os.path.exists(out):
        import numpy
        save_file({k: numpy.concatenate([v] * times) for k, v in load_file(path).items()}, out)
    return out


def weft_train(workload, threads, steps, cache, ranks=1, isa=None):
    """One `weft train`: its step times in ms, the time to its first step, its largest resident size."""
    folder = os.path.join(WORK, workload)
    out = os.path.join(folder, "run")
    shutil.rmtree(out, ignore_errors=True)
    data = os.path.join(folder, "inputs.safetensors")
    if ranks > 1:
        data = repeated(data, ranks)
    code, _, err, peak, _ = run([
        WEFT, "train", os.path.join(folder, "model.pt2"), "--data", data,
        *{**WORKLOADS, **MORE}[workload], "--steps", str(steps), "--threads", str(threads), "--log-every", "1",
        "--nproc", str(ranks), "--no-shuffle", "--cache-dir", cache, "--out", out, *(["--isa", isa] if isa else [])])
    if code != 0:
        raise RuntimeError(f"weft: {err.strip().splitlines()[0] if err.strip() else code}")
    rows = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    times = [r["step_ms"] for r in rows if "step_ms" in r]
    first = [r["start_to_step_s"] for r in rows if "start_to_step_s" in r]
    losses = [r["loss"] for r in rows if "loss" in r]
    if len(times) < steps:
        raise RuntimeError(f"weft: metrics.jsonl has {len(times)} steps of {steps}")
    return dict(step_ms=statistics.median(times[2:] or times), first_s=first[0] if first else None, peak_mb=peak,
                loss0=losses[0] if losses else None)


def weft_apart(workload, steps, cache):
    """Step time in ms of two trainings that know nothing of each other, each on a core: what they take from each other."""
    folder = os.path.join(WORK, workload)
    procs = [subprocess.Popen(["taskset", "-c", str(i), WEFT, "bench", os.path.join(folder, "model.pt2"), "--data",
                               os.path.join(folder, "inputs.safetensors"), *{**WORKLOADS, **MORE}[workload], "--steps", str(steps),
                               "--threads", "1", "--no-shuffle", "--cache-dir", cache], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) for i in range(2)]
    found = [re.search(r"step: ([0-9.]+) ms", p.communicate()[0]) for p in procs]
    if not all(found):
        raise RuntimeError("weft bench: two trainings beside each other failed")
    return statistics.mean(float(f.group(1)) for f in found)


def export(workload):
    folder = os.path.join(WORK, workload)
    if not os.path.exists(os.path.join(folder, "inputs.safetensors")):
        torch_step(workload, "eager", "--steps", "1", "--warmup", "0", "--export", folder)
    return folder


def state_mb(workload):
    """Bytes that every system must hold: weights, optimiser state, batch."""
    folder = os.path.join(WORK, workload)
    with zipfile.ZipFile(os.path.join(folder, "model.pt2")) as z:
        weights = sum(i.file_size for i in z.infolist() if re.search(r"/data/weights/weight_\d+$", i.filename))
    per_weight = 2 if "adamw" in {**WORKLOADS, **MORE}[workload] else 1
    return (weights * (1 + per_weight) + os.path.getsize(os.path.join(folder, "inputs.safetensors"))) / MB


def has_tiles():
    with open("/proc/cpuinfo") as f:
        return "amx_bf16" in f.read()


def in_turn(runners, rounds):
    """What every runner said in each round; who begins changes."""
    result = {name: [] for name in runners}
    for i in range(rounds):
        names = list(runners)
        for name in names[i % len(names):] + names[:i % len(names)]:
            result[name].append(runners[name]())
    return result


def medians(result):
    return {k: statistics.median(v) for k, v in result.items()}


def ratios(result, ours, *theirs):
    """Median and spread over the rounds of ours / the better of theirs."""
    r = sorted(w / min(t) for w, *t in zip(*(result[k] for k in (ours, *theirs))))
    return {"ratio": statistics.median(r), "low": r[0], "high": r[-1]}


def measure_steps(workload, threads, rounds, steps, cache):
    weft_train(workload, threads, 3, cache)  # fills the cache: compiling is measured elsewhere
    flags = ["--threads", str(threads), "--steps", str(steps), "--warmup", "2"]
    runners = {
        "eager": lambda: torch_step(workload, "eager", *flags)["step_ms"],
        "tuned": lambda: torch_step(workload, "eager", "--tuned", *flags)["step_ms"],
        "weft": lambda: weft_train(workload, threads, steps + 2, cache)["step_ms"],
    }
    if has_tiles():
        weft_train(workload, threads, 3, cache, isa="amx")
        runners["tiles"] = lambda: weft_train(workload, threads, steps + 2, cache, isa="amx")["step_ms"]
    result = in_turn(runners, rounds)
    return {**medians(result), **ratios(result, "weft", "eager", "tuned"),
            "tiled": ratios(result, "tiles", "eager", "tuned") if has_tiles() else None}


def measure_ranks(workload, rounds, steps, cache):
    weft_train(workload, 1, 3, cache, ranks=2)
    flags = ["--world", "2", "--threads", "1", "--steps", str(steps), "--warmup", "2"]
    runners = {
        "ddp": lambda: torch_step(workload, "ddp", *flags)["step_ms"],
        "tuned": lambda: torch_step(workload, "ddp", "--tuned", *flags)["step_ms"],
        "weft": lambda: weft_train(workload, 1, steps + 2, cache, ranks=2)["step_ms"],
        "alone": lambda: weft_train(workload, 1, steps + 2, cache)["step_ms"],
        "apart": lambda: weft_apart(workload, steps + 2, cache),
    }
    if has_tiles():
        weft_train(workload, 1, 3, cache, ranks=2, isa="amx")
        runners["tiles"] = lambda: weft_train(workload, 1, steps + 2, cache, ranks=2, isa="amx")["step_ms"]
    result = in_turn(runners, rounds)
    return {**medians(result), **ratios(result, "weft", "ddp", "tuned"),
            "tiled": ratios(result, "tiles", "ddp", "tuned") if has_tiles() else None,
            "scale": ratios(result, "alone", "weft")["ratio"], "host": ratios(result, "alone", "apart")["ratio"]}


def measure_memory(workload, cache):
    torch_mb = torch_step(workload, "eager", "--threads", "2", "--steps", "5")["delta_mb"]
    base = run([WEFT, "--version"])[3]
    weft_train(workload, 2, 1, cache)  # fills the cache: compiling takes memory of its own
    weft_mb = weft_train(workload, 2, 7, cache)["peak_mb"] - base - state_mb(workload)
    return dict(torch=torch_mb, weft=weft_mb)


def measure_start(workload, with_compile):
    cache = os.path.join(WORK, "cold")
    shutil.rmtree(cache, ignore_errors=True)
    result = dict(cold=weft_train(workload, 2, 1, cache)["first_s"], warm=weft_train(workload, 2, 1, cache)["first_s"])
    r = torch_step(workload, "eager", "--steps", "1", "--warmup", "0")
    result["eager"] = r["import_s"] + r["first_step_s"]
    if with_compile:
        r = torch_step(workload, "compile", "--steps", "1", "--warmup", "0")
        result["compile"] = r["import_s"] + r["first_step_s"]
    return result


# ---- tables ----

def number(v, digits=2):
    return "-" if v is None else f"{v:.{digits}f}"


def said(r):
    return [f"**{r['ratio']:.2f}**", f"{r['low']:.2f} to {r['high']:.2f}"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def machine():
    cpu = "unknown processor"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                             text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return (f"{cpu}, {os.cpu_count()} cores; PyTorch {version}; Weft {commit.stdout.strip() or '?'}; "
            f"{time.strftime('%Y-%m-%d')}; load at the start {os.getloadavg()[0]:.1f}")


def guarded(what, fn, failures):
    """fn's result, or None with the reason in `failures`: one workload that fails does not hide the others."""
    try:
        return fn()
    except (RuntimeError, OSError, ValueError) as e:
        failures.append(f"{what}: {e}")
        print(f"  {what}: {e}", file=sys.stderr)
        return None


def measure(a):
    failures, steps, memory, start, ranks = [], [], [], [], []
    wanted = lambda what: a.only in (None, what)
    cache = os.path.join(WORK, "cache")
    for w in a.workloads:
        print(w, file=sys.stderr)
        if guarded(w, lambda: export(w), failures) is None:
            continue
        for t in a.threads if wanted("steps") else []:
            r = guarded(f"{w}, {t} threads", lambda: measure_steps(w, t, a.rounds, a.steps, cache), failures)
            if r:
                steps.append([w, str(t), number(r["eager"]), number(r["tuned"]), number(r["weft"]),
                              *said(r), *(said(r["tiled"]) if r["tiled"] else ["-", "-"])])
                print("  " + "  ".join(steps[-1]), file=sys.stderr)
        r = guarded(f"{w}, ranks", lambda: measure_ranks(w, a.rounds, a.steps, cache), failures) if wanted("ranks") else None
        if r:
            ranks.append([w, number(r["ddp"]), number(r["tuned"]), number(r["weft"]), *said(r),
                          *(said(r["tiled"]) if r["tiled"] else ["-", "-"]), number(r["scale"]), number(r["host"])])
            print("  " + "  ".join(ranks[-1]), file=sys.stderr)
        r = guarded(f"{w}, memory", lambda: measure_memory(w, cache), failures) if wanted("memory") else None
        if r:
            ratio = r["weft"] / r["torch"] if r["torch"] > 0 else None
            memory.append([w, number(r["torch"], 0), number(r["weft"], 0), number(ratio)])
        r = guarded(f"{w}, start", lambda: measure_start(w, a.compile), failures) if wanted("start") else None
        if r:
            start.append([w, number(r["eager"])] + ([number(r["compile"])] if a.compile else []) +
                         [number(r["cold"]), number(r["warm"])])
    return failures, steps, memory, start, ranks


def report(a, failures, steps, memory, start, ranks):
    parts = [machine(), ""]
    if steps:
        parts += [f"Step time in ms, medians of {a.rounds} rounds of {a.steps} steps; ratio: Weft / the better PyTorch of a "
                  "round; tiles: the same with `--isa amx`.", "",
                  table(["workload", "threads", "PyTorch", "PyTorch tuned", "Weft", "ratio", "spread", "tiles", "spread"], steps), ""]
    if memory:
        parts += ["Memory of a step in MB, 2 threads, beyond weights, optimiser state and batch.", "",
                  table(["workload", "PyTorch", "Weft", "ratio"], memory), ""]
    if start:
        parts += ["Seconds from the start of the process to the end of the first step, 2 threads.", "",
                  table(["workload", "PyTorch"] + (["torch.compile"] if a.compile else []) +
                        ["Weft, empty cache", "Weft, warm cache"], start), ""]
    if ranks:
        parts += [f"Two ranks of one thread, step time in ms, medians of {a.rounds} rounds of {a.steps} steps; ratio: Weft / "
                  "the better DistributedDataParallel; tiles: the same with `--isa amx`; t1/t2: Weft on one rank / on two, the same batch a rank; apart: the "
                  "same for two trainings side by side that do not communicate, what the machine itself allows.", "",
                  table(["workload", "DDP", "DDP tuned", "Weft", "ratio", "spread", "tiles", "spread", "t1/t2", "apart"], ranks), ""]
    parts = parts[:-1]
    if failures:
        parts += ["", "Not measured:", ""] + [f"- {f}" for f in failures]
    return "\n".join(parts) + "\n"


def write(text, script="run.py"):
    """Puts text between the marks of that script in docs/performance.md."""
    path = os.path.join(ROOT, "docs", "performance.md")
    begin, end = f"<!-- bench/{script} writes from here -->\n", "<!-- to here -->\n"
    old = open(path).read() if os.path.exists(path) else "# Performance\n\n" + begin + end
    if begin not in old or end not in old:
        old += "\n" + begin + end
    before, rest = old.split(begin, 1)
    with open(path, "w") as f:
        f.write(before + begin + text + end + rest.split(end, 1)[1])
    print(f"wrote {path}", file=sys.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", help=f"{', '.join(WORKLOADS)} (the default); {', '.join(MORE)}")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=11, help="timed steps of each process")
    p.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[1, 2], metavar="1,2")
    p.add_argument("--compile", action="store_true", help="also torch.compile's time to the first step")
    p.add_argument("--only", choices=["steps", "memory", "start", "ranks", *SCRIPTS],
                   help="this table alone; the last four must come first, with flags of their own behind")
    p.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    words = sys.argv[1:]
    if words[:1] == ["--only"] and words[1:2] and words[1] in SCRIPTS:
        script, *flags = SCRIPTS[words[1]]
        os.execv(sys.executable, [sys.executable, os.path.join(ROOT, "bench", script), *flags, *words[2:]])
    a = p.parse_args()
    if a.write and a.only:
        p.error("--write wants all tables")
    if a.only in SCRIPTS:
        p.error(f"--only {a.only} must be the first option")
    unknown = [w for w in a.workloads if w not in WORKLOADS and w not in MORE]
    if unknown:
        p.error(f"unknown workload {unknown[0]}")
    if not os.path.exists(WEFT):
        p.error("build/weft is not there; run `make` first")
    a.workloads = a.workloads or list(WORKLOADS)
    os.makedirs(WORK, exist_ok=True)
    failures, *tables = measure(a)
    text = report(a, failures, *tables)
    print(text)
    if a.write:
        write(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
