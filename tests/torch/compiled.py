"""What the tests of torch.compile(backend="weft") share: small models, batches, comparisons with eager mode."""
import torch
import torch.nn.functional as F
from torch import nn

from common import distance
from weft import dynamo

TOLERANCE = 1e-4


def compiled(model, **more):
    torch._dynamo.reset()
    dynamo.stats(reset=True)
    return torch.compile(model, backend=dynamo.backend, **more)


def same(a, b, what):
    d = distance(a, b)
    assert d <= TOLERANCE, f"{what}: {d:.2e} from eager"


def cross_entropy(out, y):
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def batches(n, x, y):
    torch.manual_seed(2)
    return [((x(),), y()) for _ in range(n)]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def of_mlp(n=4, rows=8):
    return batches(n, lambda: torch.randn(rows, 16), lambda: torch.randint(0, 10, (rows,)))


def raises(kind, text, fn, *args):
    try:
        fn(*args)
    except kind as e:
        assert text in str(e), f"{text!r} is not in: {e}"
        return e
    raise AssertionError(f"nothing was raised; expected {text!r}")
