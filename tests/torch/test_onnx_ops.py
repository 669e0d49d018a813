"""ONNX, operator by operator: small modules whose ONNX form onnxruntime computes as PyTorch does; sizes that are known only when
data come; what ONNX has no operator for."""
import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim

from common import distance, run, weft

RTOL = 1e-5


class Call(nn.Module):
    """forward is a function; the weight makes it a model that could be trained."""

    def __init__(self, f):
        super().__init__()
        self.w, self.f = nn.Parameter(torch.ones(1)), f

    def forward(self, *x):
        y = self.f(*x)
        return y * self.w if y.is_floating_point() else y


def export(module, args, path="m", **how):
    torch.export.save(torch.export.export(module.train(), args, **how), path + ".pt2")
    weft("export", path + ".pt2", "-o", path + ".onnx")
    model = onnx.load(path + ".onnx")
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return model, onnxruntime.InferenceSession(path + ".onnx", options, providers=["CPUExecutionProvider"])


def same(module, session, args):
    names = [i.name for i in session.get_inputs()]
    got = session.run(None, {n: a.numpy() for n, a in zip(names, args)})[0]
    with torch.no_grad():
        want = module.eval()(*args)
    got = torch.from_numpy(np.array(got))
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    assert distance(got, want) < RTOL, distance(got, want)


def f(*shape):
    return torch.randn(*shape)


def i(most, *shape):
    return torch.randint(most, shape)


POINTWISE = {
    "abs": torch.abs, "ceil": torch.ceil, "floor": torch.floor, "round": torch.round, "trunc": torch.trunc, "sign": torch.sign,
    "neg": torch.neg, "exp": torch.exp, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "atan": torch.atan, "erf": torch.erf,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "softplus": F.softplus, "elu": F.elu,
    "leaky_relu": F.leaky_relu, "hardswish": F.hardswish, "mish": F.mish, "square": torch.square, "clamp": lambda x: x.clamp(-.5, .7),
    "log1p": lambda x: torch.log1p(x.abs()), "log": lambda x: torch.log(x.abs() + .1), "sqrt": lambda x: torch.sqrt(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + .1), "asin": lambda x: torch.asin(x / 9), "acos": lambda x: torch.acos(x / 9),
    "pow": lambda x: x.abs() ** 1.7, "reciprocal": lambda x: 1 / (x + 9), "isnan": lambda x: torch.isnan(x / x.relu()),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "where": lambda x: torch.where(x > 0, x, x * x), "tanhshrink": F.tanhshrink,
    "softmax": lambda x: F.softmax(x, 1), "log_softmax": lambda x: F.log_softmax(x, -1), "logsumexp": lambda x: x.logsumexp(1),
    "sum": lambda x: x.sum((0, 2)), "mean": lambda x: x.mean(1, keepdim=True), "amax": lambda x: x.amax(1), "amin": lambda x: x.amin((0, 1)),
    "prod": lambda x: x.prod(1), "argmax": lambda x: x.argmax(1), "argmin": lambda x: x.argmin(-1), "var": lambda x: x.var(1),
    "std": lambda x: x.std((1, 2)), "cumsum": lambda x: x.cumsum(1), "sort": lambda x: x.sort(1)[0], "topk": lambda x: x.topk(2, 1)[1],
    "flip": lambda x: x.flip(0, 2), "roll": lambda x: x.roll(1, 1), "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=2.5),
    "transpose": lambda x: x.transpose(0, 2), "slice": lambda x: x[:, 1::2, -3:], "unfold": lambda x: x.unfold(2, 3, 2),
    "stack": lambda x: torch.stack([x, x * 2], 1), "chunk": lambda x: x.chunk(2, 2)[1], "expand": lambda x: x[:1].expand(7, -1, -1),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0), "tril": lambda x: x.tril(), "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "normalize": lambda x: x / (x * x).sum(-1, keepdim=True).sqrt(), "repeat": lambda x: x.repeat(2, 1, 3), "fmod": lambda x: x.fmod(0.7),
    "maximum": lambda x: torch.maximum(x, x.flip(0)), "one_hot": lambda x: F.one_hot(x.argmax(1), 5), "arange": lambda x: x + torch.arange(6),
    "max_pool1d": lambda x: F.max_pool1d(x, 3, 2, 1), "avg_pool1d": lambda x: F.avg_pool1d(x, 2), "outer": lambda x: torch.outer(x[0, 0], x[1, 1]),
}
INTEGERS = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "not": lambda a, b: ~a, "add": lambda a, b: a + 3 * b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "less": lambda a, b: (a < b) & ~(a == 2) | (b <= 1), "ge": lambda a, b: (a >= b) ^ (b > 4),
    "gather": lambda a, b: a.gather(1, b % 4), "scatter": lambda a, b: a.scatter(1, b % 4, 7), "max": lambda a, b: torch.maximum(a, b),
}
MODULES = {
    "conv1d": (nn.Conv1d(4, 6, 3, padding=1), (f(2, 4, 9),)), "conv2d": (nn.Conv2d(4, 6, 3, 2, 1, 2, 2), (f(2, 4, 11, 9),)),
    "conv3d": (nn.Conv3d(2, 3, 2), (f(1, 2, 4, 5, 6),)),
    "conv_transpose": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), (f(2, 4, 5, 6),)), "conv_transpose1d": (nn.ConvTranspose1d(3, 2, 4, 3), (f(2, 3, 5),)),
    "linear": (nn.Linear(5, 3), (f(2, 7, 5),)), "bilinear": (nn.Bilinear(3, 4, 2), (f(5, 3), f(5, 4))),
    "batch_norm": (nn.BatchNorm2d(3), (f(4, 3, 5, 5),)), "group_norm": (nn.GroupNorm(2, 4), (f(3, 4, 5),)),
    "instance_norm": (nn.InstanceNorm2d(3, affine=True), (f(2, 3, 5, 5),)), "layer_norm2": (nn.LayerNorm((3, 4)), (f(2, 3, 4),)),
    "rms_norm": (nn.RMSNorm(6), (f(4, 6),)), "max_pool": (nn.MaxPool2d(3, 2, 1, 1, ceil_mode=True), (f(2, 3, 8, 8),)),
    "avg_pool": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (f(2, 3, 8, 8),)), "adaptive": (nn.AdaptiveAvgPool2d((3, 2)), (f(2, 3, 7, 8),)),
    "embedding": (nn.Embedding(9, 4), (i(9, 3, 5),)), "embedding_bag": (nn.EmbeddingBag(9, 4, mode="mean"), (i(9, 3, 5),)),
    "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), (f(1, 2, 3, 4),)), "pixel_shuffle": (nn.PixelShuffle(2), (f(1, 8, 3, 3),)),
    "prelu": (nn.PReLU(), (f(3, 4),)), "glu": (nn.GLU(), (f(3, 4),)), "dropout": (nn.Dropout(0.5), (f(3, 4),)),
}


class First(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, *x):
        return self.m(*x)[0]


for cell in (nn.LSTM, nn.GRU, nn.RNN):
    MODULES[cell.__name__] = (First(cell(4, 5, 2, bidirectional=True, batch_first=True)), (f(3, 6, 4),))
    MODULES[cell.__name__ + "_plain"] = (First(cell(4, 5, bias=False)), (f(6, 3, 4),))
MODULES["RNN_relu"] = (First(nn.RNN(4, 5, nonlinearity="relu")), (f(6, 3, 4),))
MODULES["attention"] = (First(nn.MultiheadAttention(8, 2, batch_first=True)), (f(2, 5, 8), f(2, 7, 8), f(2, 7, 8)))
MODULES["transformer"] = (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (f(2, 5, 8),))
FUNCTIONS = {
    "causal": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (f(2, 4, 6, 8), f(2, 4, 6, 8))),
    "grouped": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (f(2, 4, 6, 8), f(2, 2, 6, 8))),
    "masked": (lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m), (f(2, 4, 6, 8), f(2, 4, 6, 8), f(6, 6))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (f(2, 3, 4), f(2, 5, 4))),
    "bmm": (torch.bmm, (f(2, 3, 4), f(2, 4, 5))), "index_add": (lambda a, k, b: a.index_add(0, k, b), (f(5, 3), i(5, 4), f(4, 3))),
    "scatter_add": (lambda a, k, b: a.scatter_add(1, k, b), (f(3, 5), i(5, 3, 4), f(3, 4))),
    "index": (lambda a, k: a[k], (f(5, 3), i(5, 2, 4))), "take": (lambda a, k: a.gather(1, k), (f(3, 5), i(5, 3, 2))),
}


def checks(module, args):
    def test():
        _, session = export(module, args)
        same(module, session, args)
    return test


x = torch.linspace(-2.3, 2.4, 90).reshape(3, 5, 6)[:, torch.randperm(5)]
for name, g in POINTWISE.items():
    globals()["test_" + name] = checks(Call(g), (x,))
for name, g in INTEGERS.items():
    globals()["test_integers_" + name] = checks(Call(g), (i(6, 3, 4), i(6, 3, 4)))
for name, (g, args) in FUNCTIONS.items():
    globals()["test_" + name] = checks(Call(g), args)
for name, (module, args) in MODULES.items():
    globals()["test_" + name] = checks(module if list(module.parameters()) else Call(module), args)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p, self.n = nn.Embedding(11, 8), nn.Embedding(32, 8), nn.LayerNorm(8)
        self.qkv, self.o, self.h = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 11)

    def forward(self, ids):
        b, t = ids.shape
        x = self.e(ids) + self.p(torch.arange(t))
        q, k, v = (z.reshape(b, t, 2, 4).transpose(1, 2) for z in self.qkv(self.n(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 8)
        return self.h(x + self.o(y)).reshape(b * t, 11)


def test_sizes():
    """Batch and length are named in the file, and may be others than the export's example had."""
    module, batch, length = Small(), Dim("batch", min=1, max=64), Dim("length", min=2, max=32)
    model, session = export(module, (i(11, 3, 7),), dynamic_shapes={"ids": {0: batch, 1: length}})
    dims = [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert all(dims) and dims[0] != dims[1], dims
    out = model.graph.output[0].type.tensor_type.shape.dim
    assert out[0].dim_param and out[1].dim_value == 11, out
    for shape in ((3, 7), (1, 2), (5, 32), (64, 3)):
        same(module, session, (i(11, *shape),))


class Grown(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cat([self.l(x), x, x.new_ones(1, 4)])  # 2 batch + 1 rows
        return y - y.mean(0, keepdim=True).expand(y.shape[0], 4) + torch.arange(y.shape[0])[:, None] + x.sum() / x.shape[0]


def test_sizes_with_arithmetic():
    module = Grown()
    _, session = export(module, (f(3, 4),), dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}})
    for n in (1, 3, 40):
        same(module, session, (f(n, 4),))


def test_places():
    """Nodes say which line of Python they come from."""
    model, _ = export(Small(), (i(11, 2, 3),))
    said = [n.doc_string for n in model.graph.node if n.op_type == "Softmax"]
    assert said and all("test_onnx_ops.py:" in s and "scaled_dot_product_attention" in s for s in said), said


def test_no_operator():
    torch.export.save(torch.export.export(Call(lambda x: x.cumprod(1)).train(), (f(2, 3),)), "m.pt2")
    said = weft("export", "m.pt2", "-o", "m.onnx", fails=1)
    assert "prim.cumprod: ONNX export: ONNX has no operator for it" in said and "test_onnx_ops.py:" in said, said


if __name__ == "__main__":
    run(dict(globals()))
