"""usage: comm.py [--ranks 2,4] [--rounds N] [--largest BYTES]

all_reduce (f32, sum, in place) from 4 KB to the largest size: Weft's local transport against MPI_Allreduce of Open MPI
and MPICH, gloo (PyTorch) and Weft over each MPI, interleaved: every round runs each of them once, and the table holds
the medians over rounds, in microseconds. The last column is Weft local against the best of the others. Below: bus
bandwidth (bytes / time * 2 (n - 1) / n) at the largest size against the rate at which one rank copies that much while
all ranks copy. Run it on a machine with nothing else to do; needs `make build`, both MPIs, and PyTorch for gloo.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

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
        int rounds = bytes <= 65536 ? 2000 : bytes <= 1 << 20 ? 200 : 10;
        double best = 1e9, most;
        for (int k = 0; k < 5; k++) {
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double begun = MPI_Wtime();
            for (int i = 0; i < rounds; i++)
                MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double took = (MPI_Wtime() - begun) / rounds;
            MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            best = most < best ? most : best;
        }
        if (!rank)
            printf("%zu %.3f\n", bytes, best * 1e6);
    }
    MPI_Finalize();
    return 0;
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
    rounds = 200 if bytes <= 65536 else 50 if bytes <= 1 << 20 else 5
    y, best = x[:bytes // 4], 1e9
    for _ in range(3):
        dist.all_reduce(y)
        t = time.perf_counter()
        for _ in range(rounds):
            dist.all_reduce(y)
        took = torch.tensor((time.perf_counter() - t) / rounds)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        best = min(best, took.item())
    if dist.get_rank() == 0:
        print(bytes, f"{best * 1e6:.3f}", flush=True)
    bytes *= 4
"""


def contenders(folder, n, largest):
    env = dict(os.environ, WEFT_PLUGIN_DIR=BUILD, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1")
    runs = {"weft local": ([[RANK, "launch", str(n), "bench", str(largest)]], env)}
    for mpi in ("openmpi", "mpich"):
        if not shutil.which(f"mpicc.{mpi}"):
            continue
        program = os.path.join(folder, mpi)
        subprocess.run([f"mpicc.{mpi}", "-O2", os.path.join(folder, "mpi.c"), "-o", program], check=True)
        runs[mpi] = ([[f"mpirun.{mpi}", "-n", str(n), program, str(largest)]], env)
        runs[f"weft on {mpi}"] = ([[f"mpirun.{mpi}", "-n", str(n), RANK, "bench", str(largest)]], env)
    try:
        import torch  # noqa: F401
    except ImportError:
        return runs
    many = []
    for r in range(n):
        many.append(["env", f"RANK={r}", f"WORLD_SIZE={n}", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29571", sys.executable,
                     os.path.join(folder, "gloo.py"), str(largest)])
    runs["gloo"] = (many, dict(env, OMP_NUM_THREADS="1"))
    return runs


def run(commands, env):
    procs = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True) for c in commands]
    text = "".join(p.communicate()[0] for p in procs)
    if any(p.returncode for p in procs):
        sys.exit(f"failed: {commands[0]}")
    return {k: float(v) for k, v in (line.split() for line in text.splitlines() if len(line.split()) == 2)}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ranks", default="2,4")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--largest", type=int, default=64 << 20)
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("mpi.c", MPI), ("gloo.py", GLOO)):
            with open(os.path.join(folder, name), "w") as out:
                out.write(text)
        for n in map(int, o.ranks.split(",")):
            runs, got = contenders(folder, n, o.largest), {}
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
