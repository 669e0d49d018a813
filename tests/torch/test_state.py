"""A training that changes hands: 50 steps in PyTorch and 50 in Weft are 100 in PyTorch, and the other way round, for every
optimiser, with a schedule; by way of tools/state.py."""
import copy
import subprocess
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from common import SOURCE, farthest, run, weft  # first: it finds tools/
import state

# Of weights, after 100 steps in float32; smooth activations, so that no rounding decides a branch.
RTOL = 1e-4
STEPS, ROWS = 100, 4
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-3),
            ["--momentum", 0.9, "--dampening", 0.1, "--weight-decay", 1e-3]),
    "adamw": (torch.optim.AdamW, dict(lr=1e-3, weight_decay=0.1), ["--weight-decay", 0.1]),
    "adam": (torch.optim.Adam, dict(lr=1e-3, amsgrad=True), ["--amsgrad"]),
    "rmsprop": (torch.optim.RMSprop, dict(lr=1e-3, centered=True, momentum=0.9, eps=1e-4),
                ["--centered", "--momentum", 0.9, "--eps", 1e-4]),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.02, lr_decay=0.01, initial_accumulator_value=0.1),
                ["--lr-decay", 0.01, "--initial-accumulator-value", 0.1]),
}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 5))

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = (z.view(n, t, 2, w // 2).transpose(1, 2) for z in self.qkv(self.a(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.b(x))))


class Gpt(nn.Module):
    """Two blocks; the output layer's weight is the embedding's."""

    def __init__(self, words=31, width=16, length=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width) for _ in range(2)), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        nn.init.normal_(self.wte.weight, std=0.1)
        self.head.weight = self.wte.weight

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for b in self.blocks:
            h = b(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def mlp_data():
    return Mlp(), dict(x=torch.randn(STEPS * ROWS, 8), y=torch.randint(5, (STEPS * ROWS,)))


def gpt_data():
    x = torch.randint(31, (STEPS * ROWS, 13))
    x[:, 1::2] = (x[:, 0::2][:, :6] * 3 + 1) % 31  # something to learn
    return Gpt(), dict(x=x[:, :-1].contiguous(), y=x[:, 1:].contiguous())


def train(module, data, optimizer, scheduler, first, last):
    for i in range(first, last):
        optimizer.zero_grad()
        module(data["x"][i * ROWS:(i + 1) * ROWS], data["y"][i * ROWS:(i + 1) * ROWS]).backward()
        optimizer.step()
        scheduler.step()


def made(kind, options, module):
    optimizer = kind(module.parameters(), **options)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def both_ways(start, data, name):
    kind, options, words = OPTIMIZERS[name]
    half = STEPS // 2
    torch.export.save(torch.export.export(start.train(), (data["x"][:ROWS], data["y"][:ROWS])), "model.pt2")
    for part, rows in (("first", slice(0, half * ROWS)), ("second", slice(half * ROWS, None))):
        save_file({k: v[rows].contiguous() for k, v in data.items()}, part + ".safetensors")
    common = ["model.pt2", "--no-shuffle", "--threads", 1, "--optimizer", name, "--lr", options["lr"], "--schedule", "cosine",
              "--total-steps", STEPS, "--steps", half, *words]
    whole = copy.deepcopy(start)
    optimizer, scheduler = made(kind, options, whole)
    train(whole, data, optimizer, scheduler, 0, half)
    torch.save(whole.state_dict(), "model.pt")
    torch.save({"optim": optimizer.state_dict(), "step": half}, "checkpoint.pt")
    train(whole, data, optimizer, scheduler, half, STEPS)
    want = {k: v.detach() for k, v in whole.state_dict().items()}

    # PyTorch, then Weft: by way of the command and files
    command("to-weft", "model.pt2", "--state", "model.pt", "--weights", "w.safetensors", "--optimizer", "checkpoint.pt:optim",
            "--optimizer-state", "o.safetensors", *(["--step", half] if name == "sgd" else []))
    assert load_file("o.safetensors")["step"].item() == half
    weft("train", *common, "--data", "second.safetensors", "--weights", "w.safetensors", "--optimizer-state", "o.safetensors",
         "--out", name + "-second")
    far, where = farthest(want, load_file(name + "-second/final.safetensors"))
    print(f"#   {name}, PyTorch then Weft: {far:.1e} at {where}")
    assert far < RTOL, (far, where)

    # Weft, then PyTorch
    weft("train", *common, "--data", "first.safetensors", "--out", name + "-first", "--save-optimizer")
    fresh, (optimizer, scheduler) = copy.deepcopy(start), (None, None)
    optimizer, scheduler = made(kind, options, fresh)
    torch.save(optimizer.state_dict(), "fresh.pt")
    command("to-torch", "model.pt2", "--weights", name + "-first/final.safetensors", "--state", "back.pt", "--optimizer-state",
            name + "-first/optimizer.safetensors", "--like", "fresh.pt", "--optimizer", "back_optim.pt")
    fresh.load_state_dict(torch.load("back.pt", weights_only=True), strict=True)
    optimizer.load_state_dict(torch.load("back_optim.pt", weights_only=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(half):
            scheduler.step()  # the schedule's place is the user's to keep
    train(fresh, data, optimizer, scheduler, half, STEPS)
    far, where = farthest(want, {k: v.detach() for k, v in fresh.state_dict().items()})
    print(f"#   {name}, Weft then PyTorch: {far:.1e} at {where}")
    assert far < RTOL, (far, where)

    # The same with the optimiser at hand, without files of PyTorch in between.
    again = copy.deepcopy(start)
    optimizer, _ = made(kind, options, again)
    assert state.load_optimizer(optimizer, again, name + "-first/optimizer.safetensors") == half
    state.save_optimizer(optimizer, again, "again.safetensors", half)
    a, b = load_file("again.safetensors"), load_file(name + "-first/optimizer.safetensors")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def command(*words):
    subprocess.run([sys.executable, SOURCE / "tools/state.py", *map(str, words)], check=True)


def case(model, name):
    def test():
        both_ways(*model(), name)
    test.__name__ = f"test_{model.__name__[:3]}_{name}"
    return test


for model in (mlp_data, gpt_data):
    for name in OPTIMIZERS:
        globals()[f"test_{model.__name__[:3]}_{name}"] = case(model, name)


def test_names_of_groups():
    module = Mlp()
    weights = [p for n, p in module.named_parameters() if n.endswith("weight")]
    others = [p for n, p in module.named_parameters() if n.endswith("bias")]
    optimizer = torch.optim.AdamW([dict(params=weights), dict(params=others, weight_decay=0.0)])
    module(torch.randn(4, 8), torch.randint(5, (4,))).backward()
    optimizer.step()
    try:
        state.names_of(optimizer.state_dict(), [], None)
        raise AssertionError("several groups without names were taken")
    except SystemExit as e:
        assert "several groups" in str(e)
    state.save_optimizer(optimizer, module, "groups.safetensors")
    got = load_file("groups.safetensors")
    assert got["exp_avg/net.4.bias"].shape == (5,) and got["exp_avg/net.0.weight"].shape == (24, 8)
    named = torch.optim.AdamW(module.named_parameters())
    assert state.names_of(named.state_dict(), [], None)[1] == "net.0.bias"


def test_what_is_no_state():
    for content, text in (([1], "not a state_dict"), ({"a": 3}, "no entry b")):
        torch.save(content, "odd.pt")
        try:
            state.load("odd.pt" if text[0] == "n" and "not" in text else "odd.pt:b")
            raise AssertionError("taken")
        except SystemExit as e:
            assert text in str(e), e


if __name__ == "__main__":
    run(dict(globals()))
