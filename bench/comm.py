"""usage: comm.py [--ranks 2,4] [--rounds N] [--largest BYTES] [--without NAME,..] [--many N]

all_reduce (f32, sum, in place) from 4 KB to the largest size: Weft's local transport against MPI_Allreduce of Open MPI
and MPICH, gloo (PyTorch) and Weft over each MPI, interleaved: every round runs each of them once, and the table holds
the medians over rounds, in microseconds. The last column is Weft local against the best of the others. Below: bus
bandwidth (bytes / time * 2 (n - 1) / n) at the largest size against the rate at which one rank copies that much while
all ranks copy. Every size is repeated for 30 ms five times over (3 to 2000 times), and the best of the five counts.

--many N: N ranks of `mlp` (bench/run.py) on this host with a warm cache, over each transport: seconds from the start of the
command to the first step, and until all have ended, beside what an empty program takes under the same launcher.

Run it on a machine with nothing else to do; needs `make build`, both MPIs, and PyTorch for gloo.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("WEFT_BUILD", os.path.join(ROOT, "build"))
RANK = os.path.join(BUILD, "tests", "dist_rank")

MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    int rank;
    size_t largest = (size_t)atoll(argv[1]);
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *x = malloc(largest);
    memset(x, 0, largest);
    for (size_t bytes = 4096; bytes <= largest; bytes *= 4) {
        int rounds = 3;
        double best = 1e9, most;
        for (int k = 0; k < 6; k++) {
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            for (int i = 0; i < rounds; i++)
                MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double took = (MPI_Wtime() - begun) / rounds;
            MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            best = most < best ? most : best;
            if (!k) {
                rounds = most > 0 && 0.03 / most < 2000 ? (int)(0.03 / most) : 2000;
                rounds = rounds < 3 ? 3 : rounds;
            }
        }
        if (!rank)
            printf("%zu %.3f\n", bytes, best * 1e6);
    }
    MPI_Finalize();
    return 0;
}
"""

EMPTY = r"""
#include <mpi.h>
int main(void)
{
    MPI_Init(0, 0);
    return MPI_Finalize();
}
"""

GLOO = r"""
import os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
largest, bytes = int(sys.argv[1]), 4096
x = torch.zeros(largest // 4)
while bytes <= largest:
    rounds, y, best = 3, x[:bytes // 4], 1e9
    for k in range(6):
        dist.all_reduce(y)
        t = time.perf_counter()
        for _ in range(rounds):
            dist.all_reduce(y)
        took = torch.tensor((time.perf_counter() - t) / rounds)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        best = min(best, took.item())
        rounds = max(3, min(2000, int(0.03 / took.item()))) if k == 0 else rounds
    if dist.get_rank() == 0:
        print(bytes, f"{best * 1e6:.3f}", flush=True)
    bytes *= 4
dist.barrier()
os._exit(0)  # gloo's threads may end a process that leaves in order with SIGABRT
"""


ENV = dict(os.environ, WEFT_PLUGIN_DIR=BUILD, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1")


def mpis():
    return [m for m in ("openmpi", "mpich") if shutil.which(f"mpicc.{m}") and shutil.which(f"mpirun.{m}")]


def compiled(folder, mpi, name, text):
    """The program that this MPI's compiler makes of a C text."""
    source, program = os.path.join(folder, f"{name}.c"), os.path.join(folder, f"{name}.{mpi}")
    with open(source, "w") as out:
        out.write(text)
    subprocess.run([f"mpicc.{mpi}", "-O2", source, "-o", program], check=True)
    return program


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def contenders(folder, n, largest):
    env = ENV
    runs = {"weft local": ([[RANK, "launch", str(n), "bench", str(largest)]], env)}
    for mpi in mpis():
        program = compiled(folder, mpi, "mpi", MPI)
        runs[mpi] = ([[f"mpirun.{mpi}", "-n", str(n), program, str(largest)]], env)
        runs[f"weft on {mpi}"] = ([[f"mpirun.{mpi}", "-n", str(n), RANK, "bench", str(largest)]], env)
    try:
        import torch  # noqa: F401
    except ImportError:
        return runs
    with open(os.path.join(folder, "gloo.py"), "w") as out:
        out.write(GLOO)
    many, port = [], free_port()
    for r in range(n):
        many.append(["env", f"RANK={r}", f"WORLD_SIZE={n}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", sys.executable,
                     os.path.join(folder, "gloo.py"), str(largest)])
    runs["gloo"] = (many, dict(env, OMP_NUM_THREADS="1"))
    return runs


def run(commands, env):
    with tempfile.TemporaryFile("w+") as err:
        procs = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=err, env=env, text=True) for c in commands]
        text = "".join(p.communicate()[0] for p in procs)
        err.seek(0)
        if any(p.returncode for p in procs):
            sys.exit(f"failed: {commands[0]}\n{err.read()[-2000:]}")
    return {k: float(v) for k, v in (line.split() for line in text.splitlines() if len(line.split()) == 2)}


def timed(command):
    begun = time.perf_counter()
    p = subprocess.run(command, capture_output=True, text=True, env=ENV, cwd=ROOT)
    if p.returncode:
        sys.exit(f"failed: {command}: {p.stderr[-300:]}")
    return time.perf_counter() - begun


def many_ranks(folder, n, rounds):
    import run as bench  # the workloads, and their files
    os.makedirs(bench.WORK, exist_ok=True)
    model, out = os.path.join(bench.export("mlp"), "model.pt2"), os.path.join(folder, "out")
    train = [bench.WEFT, "train", model, "--data", bench.repeated(os.path.join(bench.WORK, "mlp", "inputs.safetensors"), n),
             *bench.WORKLOADS["mlp"], "--threads", "1", "--steps", "1", "--no-shuffle", "--log-every", "1", "--out", out,
             "--cache-dir", os.path.join(bench.WORK, "cache")]
    runs = {"weft local": (train + ["--nproc", str(n)], None)}
    for mpi in mpis():
        start = [f"mpirun.{mpi}", "-n", str(n)]
        runs[f"weft on {mpi}"] = (start + train, start + [compiled(folder, mpi, "empty", EMPTY)])
    got = {name: [] for name in runs}
    for i in range(rounds + 1):  # the first fills the cache
        for name, (command, empty) in runs.items():
            shutil.rmtree(out, ignore_errors=True)
            ended = timed(command)
            rows = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
            first = rows[0]["start_to_step_s"] + rows[0]["step_ms"] / 1e3
            if i:
                got[name].append((first, ended, timed(empty) if empty else float("nan")))
    print(f"\n{n} ranks of mlp, s, medians of {rounds} | rank 0's first step done | all ended | empty program, same launcher")
    for name, rows in got.items():
        first, ended, empty = (statistics.median(v) for v in zip(*rows))
        low, high = min(r[1] for r in rows), max(r[1] for r in rows)
        print(f"{name} | {first:.2f} | {ended:.2f} ({low:.2f} to {high:.2f}) | {empty:.2f}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ranks", default="2,4")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--largest", type=int, default=64 << 20)
    a.add_argument("--without", default="", help="contenders to leave out, as named in the table")
    a.add_argument("--many", type=int, metavar="N", help="N ranks of mlp from the start to their first step, nothing else")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if o.many:
            many_ranks(folder, o.many, o.rounds)
            return
        for n in map(int, o.ranks.split(",")):
            runs, got = contenders(folder, n, o.largest), {}
            runs = {k: v for k, v in runs.items() if k not in o.without.split(",")}
            for _ in range(o.rounds):
                for name, (commands, env) in runs.items():
                    for key, us in run(commands, env).items():
                        got.setdefault(key, {}).setdefault(name, []).append(us)
            names = list(runs)
            print(f"\n{n} ranks, all_reduce, us | " + " | ".join(names) + " | weft local / best other")
            for key, row in got.items():
                if key == "copy":
                    continue
                us = {k: statistics.median(v) for k, v in row.items()}
                rest = min(v for k, v in us.items() if k != "weft local")
                print(f"{int(key) >> 10} KB | " + " | ".join(f"{us[k]:.1f}" for k in names) + f" | {us['weft local'] / rest:.2f}")
            last = str(max(int(k) for k in got if k != "copy"))
            bus = o.largest / statistics.median(got[last]["weft local"]) * 2 * (n - 1) / n / 1e3
            copy = o.largest / statistics.median(got["copy"]["weft local"]) / 1e3
            print(f"bus bandwidth at {int(last) >> 20} MB: {bus:.2f} GB/s; a rank copies at {copy:.2f} GB/s; ratio {bus / copy:.2f}")


if __name__ == "__main__":
    main()
