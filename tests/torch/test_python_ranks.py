"""Ranks in Python: the same script alone and as two ranks, under torchrun and mpirun; shares as DistributedSampler deals them; a rank that
fails ends the others."""
import os
import shutil
import socket
import subprocess
import sys

import torch

from common import SOURCE, run

SCRIPT = """
import sys, torch, torch.nn as nn, weft
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
x, y = torch.randn(48, 4), torch.arange(48) % 3
world = weft.world()
program = weft.export(model, (x[:4], y[:4]), loss="cross_entropy", dynamic_shapes="batch")
session = weft.Session(program, torch.optim.SGD(model.parameters(), lr=0.5))
sampler = DistributedSampler(range(48), num_replicas=world.size, rank=world.rank, shuffle=False)
assert list(sampler) == weft.shard(48) == weft.shard(range(48))
for epoch in range(3):
    for batch in DataLoader(TensorDataset(x, y), batch_size=8 // world.size, sampler=sampler):
        loss = session.step(batch)
        if "fail" in sys.argv and world.rank == 1 and session.steps == 5:
            raise RuntimeError("rank 1 gives up")
found = session.evaluate([(x[weft.shard(48)], y[weft.shard(48)])])
session.save(sys.argv[1] + "/run")
if world.rank == 0:
    torch.save({"state": {k: v.clone() for k, v in session.state_dict().items()}, "found": found, "loss": loss}, sys.argv[1] + "/end.pt")
"""
TRY = """
try:
    weft.Session(program, dict(type="SGD", lr=0.5, param_groups=[dict(params=["nothing.*"], weight_decay=0)]))
except weft.Error as e:
    print("is told", e.code, flush=True)
    sys.exit()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "OMP_NUM_THREADS": "1", "WEFT_COMM_TIMEOUT": "60",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def launched(launcher, folder, *words, script=SCRIPT):
    os.makedirs(folder, exist_ok=True)
    with open("train.py", "w") as f:
        f.write(script)
    return subprocess.run([*launcher, "train.py", folder, *words], capture_output=True, text=True, env=ENVIRONMENT, timeout=240)


def ended(launcher, folder):
    done = launched(launcher, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(f"{folder}/end.pt", weights_only=False)


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master-port=0"]


def compare(launcher):
    one, two = ended([sys.executable], "one"), ended(launcher, "two")
    for k, v in one["state"].items():  # the same mean of eight rows, added up in another order
        assert torch.allclose(v, two["state"][k], rtol=1e-5, atol=1e-6), k
    assert abs(one["found"]["loss"] - two["found"]["loss"]) < 1e-5 and one["found"]["accuracy"] == two["found"]["accuracy"]
    assert abs(one["loss"] - two["loss"]) < 1e-5
    assert sorted(os.listdir("two/run/checkpoints/step-18")) == ["MANIFEST", "rank-0.wfck", "rank-1.wfck"]


def test_two_ranks_under_torchrun():
    compare(TORCHRUN)


def test_two_ranks_under_mpirun():
    if not shutil.which("mpirun"):
        print("# no mpirun here")
        return
    compare(["mpirun", "-n", "2", sys.executable])


BESIDE_DDP = """
import copy, os, sys, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F, weft, weft.dynamo
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
world = weft.world()
for name, value in (("RANK", world.rank), ("WORLD_SIZE", world.size), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", sys.argv[2])):
    os.environ.setdefault(name, str(value))  # mpirun sets none of them
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
x, y = torch.randn(50, 4), torch.arange(50) % 3
sampler = DistributedSampler(range(50), num_replicas=world.size, rank=world.rank, shuffle=True, seed=3)  # 25 rows: the last batch has one

def batches(epoch):
    sampler.set_epoch(epoch)
    return DataLoader(TensorDataset(x, y), batch_size=8, sampler=sampler)

def trained(around, inside):
    model = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    call = around(DistributedDataParallel(inside(model)))
    for epoch in range(3):
        for a, b in batches(epoch):
            loss = F.cross_entropy(call(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss := loss.detach())
    return model.state_dict(), loss.item() / world.size

plain, compiled = lambda m: m, lambda m: torch.compile(m, backend=weft.dynamo.backend)
want, last = trained(plain, plain)
found = {"compile of DDP": trained(compiled, plain), "DDP of compile": trained(plain, compiled)}
model = copy.deepcopy(net)
session = None
for epoch in range(3):
    if session is None or epoch == 2:  # as after a stop
        program = weft.export(model, (x[:8], y[:8]), loss="cross_entropy", dynamic_shapes="batch")
        session = weft.Session(program, torch.optim.AdamW(model.parameters(), lr=1e-2))
        assert session.resume(sys.argv[1] + "/run") == (8 if epoch else -1)
    for batch in batches(epoch):
        loss = session.step(batch)
    session.save(sys.argv[1] + "/run")
found["session"] = session.state_dict(), loss
for what, (state, loss) in found.items():  # float32 sums in other orders; Adam divides a small difference by a small gradient
    assert abs(loss - last) < 1e-5, (what, loss, last)
    for k, v in want.items():
        assert torch.allclose(v, state[k], rtol=1e-4, atol=1e-5), (what, k, (v - state[k]).abs().max())
print("the same on rank", world.rank, flush=True)
dist.destroy_process_group()
"""


def beside_ddp(launcher, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    done = launched(launcher, folder, port, script=BESIDE_DDP)
    assert done.returncode == 0 and done.stdout.count("the same on rank") == 2, done.stdout + done.stderr[-3000:]


def test_values_are_those_of_distributed_data_parallel():
    beside_ddp([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"], "ddp")  # a store's port cannot be 0
    if shutil.which("mpirun"):
        beside_ddp(["mpirun", "-n", "2", sys.executable], "ddp-mpi")


def test_one_rank_compiles_for_all():
    script = "import os\nos.environ['XDG_CACHE_HOME'] = os.getcwd() + '/cache-' + os.environ['RANK']\n" + SCRIPT
    done = launched(TORCHRUN, "shared", script=script)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = [[f for _, _, files in os.walk(f"cache-{rank}/weft/x") for f in files] for rank in range(2)]
    assert len(steps[0]) == 1 and not steps[1], steps


def test_where_the_first_cannot_compile_all_have_its_error():
    script = SCRIPT.replace("session = ", TRY + "session = ", 1)
    done = launched(TORCHRUN, "bad", script=script)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line.split("is told ")[1] for line in done.stdout.splitlines() if "is told " in line]
    assert len(told) == 2 and told[0] == told[1] != "", done.stdout


def test_a_rank_that_fails_ends_all():
    done = launched(TORCHRUN, "failed", "fail")
    assert done.returncode != 0 and "rank 1 gives up" in done.stderr, done.stderr[-3000:]
    assert "weft.Error" in done.stderr or "SIGTERM" in done.stderr, done.stderr[-3000:]
    assert not os.path.exists("failed/end.pt")


run(globals())
