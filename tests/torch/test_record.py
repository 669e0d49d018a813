"""What tools/record.py writes: the user's own optimiser, step by step, and nothing of the machine."""
import re
import tempfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from common import run
import record


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 5), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).pow(2).mean()


def recorded(optimizer):
    torch.manual_seed(3)
    net, batches, folder = Net(), [(torch.randn(6, 4),) for _ in range(3)], Path(tempfile.mkdtemp())
    return net, batches, folder, record.record(net, batches, optimizer, str(folder), steps=3)


def test_decoupled_decay_makes_an_adamw():
    make = lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.4, decoupled_weight_decay=True)
    net, batches, folder, case = recorded(make)
    optimizer = make(net.parameters())
    for batch in batches:
        optimizer.zero_grad()
        net(*batch).backward()
        optimizer.step()
    values = load_file(folder / "expected.safetensors")
    assert case["optimizer"]["type"] == "AdamW"
    for name, p in net.named_parameters():  # the same operations in the same order
        assert torch.equal(values[f"param3.{name}"], p), name


def test_no_absolute_path_is_kept():
    _, _, folder, _ = recorded(lambda p: torch.optim.SGD(p, lr=0.1))
    with zipfile.ZipFile(folder / "model.pt2") as z:
        text = b"".join(z.read(m) for m in z.namelist() if m.endswith(".json"))
    files = set(re.findall(rb'File \\+"([^"\\]+)', text))
    assert files and not [f for f in files if f.startswith(b"/")], files
    torch.export.load(folder / "model.pt2")


if __name__ == "__main__":
    run(dict(globals()))
