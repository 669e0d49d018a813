#!/usr/bin/env python3
"""Records the small cases of this folder about optimisers, parameter groups and parameters in odd places.

    PYTHONPATH=tools python tests/refs/more.py OUT [NAME...]
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

from record import record


class MLP(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.a, self.b = nn.Linear(8, 12, dtype=dtype), nn.Linear(12, 4, dtype=dtype)

    def forward(self, x, y):
        return F.cross_entropy(self.b(torch.tanh(self.a(x))), y)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)
        self.m, self.o = nn.BatchNorm2d(8, affine=False), nn.Linear(8, 4)

    def forward(self, x, y):
        h = self.m(self.b(torch.tanh(self.n(self.a(x)))))
        return F.cross_entropy(self.o(torch.tanh(h).mean((2, 3))), y)


class SameName(MLP):  # a parameter named as an argument of forward
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.randn(8))

    def forward(self, x, y):
        return super().forward(x * self.x, y)


class Pairs(MLP):  # rows come in pairs: the batch is 2 half, the window 3 n + 1, and no size is the symbol itself
    def forward(self, x, y, z):
        h = torch.tanh(self.a(x)).view(x.shape[0] // 2, 2, 12)
        h = (h * h.mean(1, keepdim=True)).view(-1, 12) + z.unfold(0, 4, 3).sum() / z.shape[0]
        return F.cross_entropy(self.b(h), y) / h.shape[0]


class Odd(MLP):  # frozen, unused and detached parameters
    def __init__(self):
        super().__init__()
        self.a.bias.requires_grad_(False)
        self.unused = nn.Parameter(torch.randn(3))
        self.frozen = nn.Parameter(torch.randn(12), requires_grad=False)
        self.cut = nn.Parameter(torch.randn(12))

    def forward(self, x, y):
        return F.cross_entropy(self.b(torch.tanh(self.a(x)) * self.frozen + self.cut.detach()), y)


class Clamped(MLP):  # forward writes a trainable weight; the optimiser goes on from what it wrote
    def forward(self, x, y):
        with torch.no_grad():
            self.a.weight.clamp_(-0.2, 0.2)
        return super().forward(x, y)


class Tied(nn.Module):  # one matrix as embedding, as head, and transposed
    def __init__(self):
        super().__init__()
        self.e, self.o, self.l = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False), nn.Linear(6, 6)
        self.o.weight = self.e.weight

    def forward(self, i, y):
        h = torch.tanh(self.l(self.e(i)))
        return F.cross_entropy((self.o(h) + h @ self.e.weight.t()).flatten(0, 1), y.flatten())


class MaxNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l = nn.Embedding(10, 6, max_norm=1.0), nn.Linear(6, 5)

    def forward(self, i, y):
        return F.cross_entropy(self.l(self.e(i).mean(1)), y)


class TwoOrders(nn.Module):  # a joined image is read channels last by a convolution and by rows in a pooling
    def __init__(self):
        super().__init__()
        self.c, self.n = nn.Conv2d(2, 6, 3, padding=1), nn.InstanceNorm2d(6)
        self.a, self.b = nn.Conv2d(12, 3, 1), nn.Conv2d(12, 3, 3)

    def forward(self, x, y):
        h = F.relu(self.n(self.c(x)))
        h = torch.cat([h, F.max_pool2d(h, 3, 1, 1)], 1)
        small = self.a(F.adaptive_avg_pool2d(h, 4)).mean((2, 3))
        return F.cross_entropy(small + self.b(h).mean((2, 3)), y)


class Wide(nn.Module):  # every kind of convolution in float64
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, (3, 2), dilation=2, groups=4, bias=False)
        self.t, self.c = nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), nn.Conv1d(4, 6, 5, padding=2)
        self.d, self.n = nn.Conv3d(1, 2, (2, 2, 3)), nn.BatchNorm2d(8)
        self.double()

    def forward(self, x, y):
        h = self.t(self.b(F.relu(self.n(self.a(x)))))
        h = torch.tanh(self.c(h.flatten(2)))
        return F.cross_entropy(self.d(h.unflatten(1, (1, 6)).unflatten(3, (2, -1))).mean((2, 3)).flatten(1), y)


class Statistics(MLP):  # buffers change in every micro-batch
    def __init__(self):
        super().__init__()
        self.n = nn.BatchNorm1d(12)

    def forward(self, x, y):
        return F.cross_entropy(self.b(torch.tanh(self.n(self.a(x)))), y), x.mean()


class Shown(nn.Module):  # outputs that are a state or a view of it: they show it as it was before the update
    def __init__(self):
        super().__init__()
        self.p, self.q = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.tensor(1.5))
        self.register_buffer("b", torch.randn(3, 4))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        view = self.b[1:]
        self.count += 1
        h = (self.p * x + self.b).pow(2).mean() * self.q
        self.b.mul_(0.5).add_(x)
        return self.q + 0, h, self.p, self.p.t(), self.p[1:], self.q.sum(), view, self.b, self.b[0], self.count


class Nothing(nn.Module):  # parameters, rows and channels of size zero beside others; a convolution of no pictures
    def __init__(self):
        super().__init__()
        self.e, self.f = nn.Parameter(torch.randn(0, 3)), nn.Parameter(torch.randn(2, 0))
        self.a, self.c, self.d = nn.Linear(4, 4), nn.Conv2d(2, 3, 3), nn.Conv1d(2, 3, 2, dtype=torch.float64)

    def forward(self, x, none):
        h = torch.cat([self.e, x.t()[:2, :3]]) @ self.a.weight[:3]
        seen = self.c(none[..., None, None].expand(-1, -1, 5, 5)).sum() + self.d(none.double()[..., None].expand(-1, -1, 4)).sum()
        return F.mse_loss(self.a(x), x) + h.pow(2).mean() + self.f.sum() + self.e.sum() + none.sum() + seen.float(), h


class Steps(MLP):  # gradients that are zero, not none: weight decay and momentum go on. One index is i32
    def __init__(self):
        super().__init__()
        self.s, self.r, self.f, self.c, self.t = (nn.Parameter(torch.randn(8)) for _ in range(5))
        self.e = nn.Embedding(5, 8)

    def forward(self, x, y, i):
        steps = self.s.sign() + self.r.round() + self.f.floor() + self.c.ceil() + torch.div(self.t, 2.0, rounding_mode="trunc")
        return super().forward(x * steps + self.e(i), y), None, steps, 3


class Moments(MLP):  # reductions with two results, those that leave out NaN, and a stable order
    def forward(self, x, y):
        h = torch.tanh(self.a(x))
        (v, m), (s, _), (low, high) = torch.var_mean(h, 1), torch.std_mean(h, 0, unbiased=False, keepdim=True), torch.aminmax(h, dim=1, keepdim=True)
        holes = torch.where((torch.arange(6)[:, None] + torch.arange(12)) % 3 > 0, h, torch.nan)
        order = torch.argsort(torch.round(h * 2), dim=1, stable=True, descending=True)
        spread = torch.var_mean(h)[0] + torch.std_mean(h)[1] + torch.aminmax(h)[1] - h.take(torch.tensor([[0, -1], [5, 5]])).sum()
        h = h * s + torch.nansum(holes, 1, keepdim=True) + torch.nanmean(holes, 0) * high - low
        return F.cross_entropy(self.b(h), y) + (v * m).sum() + spread, order, torch.nanmean(holes, 1)


class Recurrent(nn.Module):  # every kind of recurrent layer in float64
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
        self.g, self.t, self.r = nn.GRU(8, 3, bidirectional=True), nn.RNN(6, 3, bias=False), nn.RNN(3, 2, nonlinearity="relu")
        self.s = nn.Parameter(torch.randn(4, 2, 4))
        self.double()

    def forward(self, x, y):
        h, (a, c) = self.l(x, (torch.tanh(self.s), self.s))
        h, last = self.g(h.transpose(0, 1))
        h, _ = self.r(self.t(h)[0])
        return F.mse_loss(h[-1], y) + (a * c).mean() + last.pow(2).mean(), h


def rows(dtype=torch.float32):
    return [(torch.randn(6, 8, dtype=dtype), torch.randint(0, 4, (6,))) for _ in range(3)]


def groups(m):
    return optim.AdamW([dict(params=[m.a.weight], lr=0.0), dict(params=[m.a.bias], lr=0.02, betas=(0.3, 0.8)),
                        dict(params=m.b.parameters(), lr=0.01, weight_decay=0.2)], lr=0.03)


class DoubleConvolutions(nn.Module):  # float64: no library convolution; every stride, padding, dilation and group
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4),
                  nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, (1, 3), padding="same", bias=False), nn.MaxPool2d(3, 2, 1),
                  nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1, groups=2), nn.Tanh(),
                  nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1, dilation=2)]
        self.flat = nn.Sequential(*layers).double()
        self.line = nn.Conv1d(4, 4, 5, stride=3, dtype=torch.float64)
        self.solid = nn.Sequential(nn.Conv3d(2, 3, 2, padding=1, stride=(1, 2, 1)), nn.Tanh(), nn.ConvTranspose3d(3, 1, 3)).double()

    def forward(self, x, y):
        h = self.line(torch.tanh(self.flat(x)).flatten(2))
        v = self.solid(torch.stack([x, x * x], 1))
        return F.mse_loss(h, y) + v.pow(2).mean() * 0.1


class Spelled(nn.Module):  # more characters than the alphabet has: products of the table are looked up, in place of rows
    def __init__(self):
        super().__init__()
        self.e, self.k, self.r, self.o = nn.Embedding(11, 8), nn.Embedding(7, 8), nn.LSTM(8, 8, bidirectional=True), nn.Linear(16, 8)
        self.k.weight.requires_grad_(False)

    def forward(self, x, y):
        rows = self.e(x)
        h = self.o(self.r(rows.transpose(0, 1))[0]).transpose(0, 1) + rows + self.o.weight[:, :8].mm(self.k(x % 7).view(-1, 8).t()).t().view_as(rows)
        h = h + F.linear(self.k(x % 7), self.o.weight[:, 8:])
        h = F.linear(h, self.e.weight)
        return F.cross_entropy(h.flatten(0, 1), y.flatten()), h


class Heard(nn.Module):  # LSTMs with projections
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(6, 8, 2, bidirectional=True, batch_first=True, proj_size=3)
        self.r, self.o = nn.LSTM(6, 4, proj_size=2, bias=False), nn.Linear(8, 5)

    def forward(self, x, y):
        h, (_, c) = self.l(x)
        scores = self.o(torch.cat([h, self.r(h.transpose(0, 1))[0].transpose(0, 1)], 2))
        return F.cross_entropy(scores.flatten(0, 1), y.flatten()) + c.pow(2).mean(), scores


class Factorised(nn.Module):  # a flow's determinant, a Gaussian process, whitening, rotations
    def __init__(self):
        super().__init__()
        self.w, self.s, self.m = (nn.Parameter(torch.eye(4) + 0.2 * torch.randn(4, 4)) for _ in range(3))
        self.e = nn.Embedding(6, 4, scale_grad_by_freq=True)

    def forward(self, x, i):
        h = x @ self.w + self.e(i)
        cover = h.t() @ h + torch.eye(4)
        lower = torch.linalg.cholesky(cover)
        values, vectors = torch.linalg.eigh(cover)
        whitened = (vectors * values.rsqrt()) @ vectors.mT
        turned, r = torch.linalg.qr(h)
        solved = torch.cholesky_solve(h.t(), lower) + torch.linalg.solve(self.s, h.t())
        loss = solved.pow(2).mean() - torch.linalg.slogdet(self.w)[1] + (h @ whitened).abs().mean() + (turned @ r - 0.1 * turned).pow(2).mean()
        loss = loss + torch.linalg.inv(self.m).pow(2).mean() + torch.linalg.det(self.m) * 0.1 + torch.matrix_exp(self.m * 0.3).mean()
        h = h.masked_fill(h > 2, 0.5)
        h[i == 2] = self.e.weight[0]
        return loss + torch.lgamma(h.abs() + 0.5).mean() + torch.trapezoid(h, dim=1).mean(), h


def of(kind, **hyper):
    return lambda parameters: kind(parameters, **hyper)


def cases():
    step = dict(scheduler=lambda o: optim.lr_scheduler.StepLR(o, 1, 0.7))
    mlp = {
        "sgd_damped_maximize": (of(optim.SGD, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1, maximize=True), {}),
        "adam_l2_amsgrad": (of(optim.Adam, lr=0.01, weight_decay=0.1, amsgrad=True), step),
        "adamw_low_betas": (of(optim.AdamW, lr=0.01, betas=(0.3, 0.8), eps=1e-3), {}),
        "rmsprop_centered": (of(optim.RMSprop, lr=0.01, alpha=0.4, centered=True, momentum=0.5, weight_decay=0.1), {}),
        "adagrad_decay": (of(optim.Adagrad, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.1), {}),
    }
    for name, (optimizer, more) in mlp.items():
        yield name, lambda: MLP(), rows, optimizer, more
    yield "groups_one_at_zero", lambda: MLP(), rows, groups, {}
    yield "f64_clip", lambda: MLP(torch.float64), lambda: rows(torch.float64), of(optim.AdamW, lr=0.01), dict(clip_norm=0.1)
    yield "f64_adagrad", lambda: MLP(torch.float64), lambda: rows(torch.float64), of(optim.Adagrad, lr=0.1, weight_decay=0.1), {}
    pictures = lambda: [(torch.randn(4, 3, 12, 12, dtype=torch.float64), torch.randint(0, 10, (4,))) for _ in range(3)]
    yield "f64_conv", Wide, pictures, of(optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01), {}
    yield "argument_named_as_parameter", SameName, rows, of(optim.SGD, lr=0.1), {}
    half, n = torch.export.Dim("half", min=1, max=64), torch.export.Dim("n", min=1, max=64)
    pairs = lambda: [(torch.randn(2 * k, 8), torch.randint(0, 4, (2 * k,)), torch.randn(3 * k + 4)) for k in (3, 5, 2)]
    size = torch.export.Dim("n", min=2, max=512)
    sized = lambda: [(torch.randn(k, 8), torch.randint(0, 4, (k,))) for k in (6, 2, 9)]
    yield "dynamic_plain", lambda: MLP(), sized, of(optim.AdamW, lr=0.01), dict(dynamic_shapes={"x": {0: size}, "y": {0: size}})
    sized = lambda: [(torch.randn(k, 3, 8, 8), torch.randint(0, 4, (k,))) for k in (6, 2, 9)]
    yield "dynamic_norm", Normed, sized, of(optim.SGD, lr=0.05, momentum=0.9), dict(dynamic_shapes={"x": {0: size}, "y": {0: size}})
    yield "dynamic_multiples", Pairs, pairs, of(optim.SGD, lr=0.1), dict(
        dynamic_shapes={"x": {0: 2 * half}, "y": {0: 2 * half}, "z": {0: 3 * n + 1}})
    yield "odd_parameters", Odd, rows, of(optim.AdamW, lr=0.01), dict(clip_norm=0.5)
    yield "clamped_weight", Clamped, rows, of(optim.SGD, lr=0.3, momentum=0.9, weight_decay=0.1), {}
    words = lambda: [(torch.randint(0, 10, (4, 5)), torch.randint(0, 10, (4, 5))) for _ in range(3)]
    yield "tied_transposed", Tied, words, of(optim.Adam, lr=0.01), {}
    lookup = lambda: [(i, y[:, 0] % 5) for i, y in words()]
    yield "embedding_max_norm", MaxNorm, lookup, of(optim.SGD, lr=0.3), {}
    images = lambda: [(torch.randn(2, 2, 6, 6), torch.randint(0, 3, (2,))) for _ in range(3)]
    yield "image_two_orders", TwoOrders, images, of(optim.SGD, lr=0.1), {}
    doubles = lambda: [(torch.randn(2, 3, 9, 8, dtype=torch.float64), torch.randn(2, 4, 63, dtype=torch.float64)) for _ in range(3)]
    uneven = lambda: [[(torch.randn(k, 8), torch.randint(0, 4, (k,))) for k in sizes] for sizes in ((4, 6, 2), (3, 3, 5), (4, 6, 2))]
    any_batch = {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "y": {0: torch.export.Dim("batch", min=2, max=64)}}
    more = dict(accumulate=3, dynamic_shapes=any_batch)
    yield "accumulated_uneven", lambda: MLP(), uneven, of(optim.AdamW, lr=0.01), dict(clip_norm=0.1, **more)
    yield "accumulated_statistics", Statistics, uneven, of(optim.SGD, lr=0.1, momentum=0.9), more
    yield "outputs_of_state", Shown, lambda: [(torch.randn(3, 4),) for _ in range(3)], of(optim.SGD, lr=0.1, momentum=0.9), {}
    yield "sizes_of_zero", Nothing, lambda: [(torch.randn(3, 4), torch.randn(0, 2)) for _ in range(3)], of(optim.AdamW, lr=0.01), {}
    yield "moments", Moments, rows, of(optim.SGD, lr=0.1), {}
    indexed = lambda: [(x, y, y.int()) for x, y in rows()]
    yield "zero_gradients", Steps, indexed, of(optim.AdamW, lr=0.02, weight_decay=0.3), {}
    sequences = lambda: [(torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)) for _ in range(3)]
    yield "f64_recurrent", Recurrent, sequences, of(optim.Adam, lr=0.01), {}
    by_rank = lambda: [[(torch.randn(5, 8), torch.randint(0, 4, (5,))) for _ in range(2)] for _ in range(3)]
    yield "unstable_bias", Statistics, by_rank, of(optim.RMSprop, lr=0.002, alpha=0.9999, eps=1e-12, momentum=0.9), dict(ranks=2)  # its gradient is noise
    spelled = lambda: [(torch.randint(0, 11, (4, 9)), torch.randint(0, 11, (4, 9))) for _ in range(3)]
    yield "lookup_small_tables", Spelled, spelled, of(optim.AdamW, lr=0.01), {}
    frames = lambda: [(torch.randn(3, 9, 6), torch.randint(0, 5, (3, 9))) for _ in range(3)]
    yield "projected_lstm", Heard, frames, of(optim.AdamW, lr=0.01), {}
    points = lambda: [(torch.randn(7, 4), torch.tensor([0, 2, 2, 5, 2, 1, 0])) for _ in range(3)]
    yield "factorised", Factorised, points, of(optim.SGD, lr=0.05), {}
    yield "f64_convolutions", DoubleConvolutions, doubles, of(optim.SGD, lr=0.05, momentum=0.9), {}


def main(out, *names):
    for name, make, batches, optimizer, more in cases():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        module = make()
        if optimizer is groups:
            optimizer = groups(module)
        record(module, batches(), optimizer, os.path.join(out, name), steps=3, label="public", **more)


if __name__ == "__main__":
    main(*sys.argv[1:])
