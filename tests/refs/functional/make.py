"""Small exports that write in place, through views and inside no_grad regions, with what PyTorch computes from them:
loss, outputs, gradients, and the buffers and parameters after one forward pass.

    python tests/refs/functional/make.py [FOLDER]        (needs torch and safetensors)
"""
import os
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

CASES = {}


def case(*shapes, dynamic=False, dtype=None):
    def add(cls):
        CASES[cls.__name__] = (cls, shapes, dynamic, dtype)
        return cls
    return add


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))
        self.register_buffer("t", torch.randn(4, 6))
        self.setup()

    def setup(self):
        pass

    def loss(self, y):
        return F.mse_loss(y, torch.zeros_like(y)), y


@case((4, 6))
class slice_write(Base):                # base, view and second view of one storage
    def forward(self, x):
        h = F.linear(x, self.w)
        a, b = h[:, :3], h[1:3]
        a.mul_(0.5)
        b.mul_(2.0)
        c = h[:, 2:5]
        h[0].add_(1.0)
        return self.loss(torch.cat([a, b.expand(4, 6) if b.shape[0] == 1 else b.repeat(2, 1), c, h], 1))


@case((4, 6))
class view_chain(Base):                 # reshape of a contiguous tensor, transpose, chunk, step, select
    def forward(self, x):
        h = F.linear(x, self.w)
        v = h.view(2, 2, 6).transpose(0, 1)
        v[1].fill_(0.5)
        p, q = h.t()[:3], h.t()[3:]
        p.mul_(-1.5)
        q[::2].mul_(3.0)
        h.reshape(-1)[5:17:3].zero_()
        h.flatten()[20].fill_(2.0)
        return self.loss(torch.cat([h, v.reshape(4, 6), p.t(), q.t()], 1))


@case((4, 6))
class copy_of_reshape(Base):            # reshape of a transposed tensor is a copy: h stays
    def forward(self, x):
        h = F.linear(x, self.w)
        r = h.t().reshape(-1)
        r.relu_()
        c = h.t().contiguous()
        c.zero_()
        d = h.contiguous()
        d.mul_(2.0)
        return self.loss(torch.cat([h.reshape(-1), r, c.reshape(-1)]))


@case((6, 6))
class diagonal_write(Base):
    def forward(self, x):
        h = F.linear(x, self.w)
        h.diagonal().fill_(0.0)
        h.diagonal(1).mul_(2.0)
        torch.diagonal(h.view(6, 2, 3), -1, 2, 1).zero_()
        return self.loss(h)


@case((4, 6))
class buffers(Base):                    # whole, part, cast and broadcast; a view of a buffer taken before
    def setup(self):
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))
        self.register_buffer("m", torch.zeros(4, 6), persistent=False)
        self.register_buffer("k", torch.arange(6))

    def forward(self, x):
        h = F.linear(x, self.w)
        before = self.t[1:2]
        with torch.no_grad():
            self.n.add_(1)
            self.t[:, :2].copy_(h[:, :2])
            self.m.copy_(h[0])
            self.k.copy_(h[0] * 10)
            self.t.mul_(0.5).add_(h, alpha=0.25)
        return self.loss(h + before + self.m)


@case((4, 6))
class detached(Base):                   # detach shares the storage; detach_ cuts the name
    def forward(self, x):
        h = F.linear(x, self.w)
        d = h.detach()
        s = h + (d * 3.0 - d)
        e = h * 2.0
        e.detach_()
        g = h * 1.5
        g.detach()[:, 0].fill_(0.25)
        return self.loss(s * e + g)


@case((4, 6))
class meta_writes(Base):                # the shape of a name changes, the storage does not
    def forward(self, x):
        h = F.linear(x, self.w)
        u = h[1]
        u.unsqueeze_(0)
        v = h.view(4, 6, 1)
        v.squeeze_(2).transpose_(0, 1)
        v[0].zero_()
        return self.loss(torch.cat([h, u, v.t()]))


@case((4, 6))
class clamp_weight(Base):               # the gradient goes to the parameter as if nothing had happened
    def forward(self, x):
        with torch.no_grad():
            self.w.clamp_(-0.5, 0.5)
            self.w[:, 0].zero_()
        return self.loss(F.linear(x, self.w))


@case((4, 6))
class regions(Base):                    # what a region returns is detached; enable_grad inside no_grad
    def forward(self, x):
        h = F.linear(x, self.w)
        with torch.no_grad():
            a = h * 2.0
            v = h[:, :3]
            with torch.enable_grad():
                b = torch.tanh(h)
        return self.loss(torch.cat([a, v, b, h], 1))


@case((4, 6))
class no_grad_write(Base):              # data changes without a record
    def forward(self, x):
        h = F.linear(x, self.w)
        with torch.no_grad():
            h[:, 1:3].mul_(0.0)
        return self.loss(h + 1.0)


@case((4, 6), dynamic=True)
class dynamic(Base):                    # sizes that are symbols
    def forward(self, x):
        h = F.linear(x, self.w)
        n = x.shape[0]
        h[1:].mul_(0.5)
        h[:, -2:].mul_(2.0)
        h[2:].add_(1.0)
        h.view(n * 2, 3)[:, 0].zero_()
        return self.loss(torch.cat([h.view(-1), h.new_ones(n)]))


@case((4, 6))
class outputs(Base):                    # an input, a number, None and the same tensor twice as outputs
    def forward(self, x):
        h = F.linear(x, self.w)
        l, y = self.loss(h)
        return l, x, None, 3, y, y, self.t


@case((2, 3, 6, 6))
class images(Base):
    def forward(self, x):
        y = F.pixel_shuffle(F.pad(x, (1, 1, 0, 0), mode="circular").repeat(1, 4, 1, 1), 2)
        z = F.unfold(F.linear(x, self.w), (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
        f = F.fold(z, (6, 6), (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
        p = F.pad(f, (2, 1, 1, 2), mode="reflect") + F.pad(f, (2, 1, 1, 2), mode="replicate")
        c = F.pixel_unshuffle(torch.roll(f, (1, -2), (2, 3)), 3)
        i, j = torch.meshgrid(f[0, 0, 0], f[0, 0, :, 1], indexing="xy")
        parts = [y.flatten(), z.flatten(), f.flatten(), p.flatten(), c.flatten(), i.flatten(), j.flatten(),
                 torch.block_diag(f[0, 0], f[1, 1, :2]).flatten(), f.movedim(1, 3).flatten(),
                 f.narrow(2, 1, 3).flatten(), f.tril(-1).flatten(), torch.diag(f[0, 0]), torch.diag(f[0, 0, 0], -1).flatten(),
                 torch.rot90(f, 1, [2, 3]).flatten(), f.tile(2, 1, 2, 1, 1).flatten(),
                 torch.channel_shuffle(f.view(2, 3, 6, 6), 3).flatten(), f.repeat_interleave(2, 1).flatten()]
        return self.loss(torch.cat(parts))


def short_paths(module):
    """Stack traces without the folders of the machine that made them."""
    for m in module.modules():
        if isinstance(m, torch.fx.GraphModule):
            for n in m.graph.nodes:
                trace = n.meta.get("stack_trace")
                if trace:
                    trace = re.sub(r'File "[^"]*site-packages/', 'File "', trace)
                    n.meta["stack_trace"] = re.sub(r'File "/[^"]*/', 'File "', trace)


def record(name, folder):
    cls, shapes, dynamic, _ = CASES[name]
    torch.manual_seed(0)
    m = cls().train()
    args = tuple(torch.randn(s) for s in shapes)
    dims = ({0: torch.export.Dim("n", min=4, max=64)},) if dynamic else None
    ep = torch.export.export(m, args, dynamic_shapes=dims)
    short_paths(ep.graph_module)
    out = {f"in.{p}": a.clone() for p, a in zip(["x"], args)}
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    torch.export.save(ep, os.path.join(path, "model.pt2"))
    got = m(*args)
    got[0].backward()
    for i, o in enumerate(got):
        if isinstance(o, torch.Tensor):
            out[f"out.{i}"] = o.detach().clone().contiguous()
    for n, p in m.named_parameters():
        if p.grad is not None:
            out[f"grad.{n}"] = p.grad.contiguous()
        out[f"after.{n}"] = p.detach().clone()
    for n, b in m.named_buffers():
        out[f"after.{n}"] = b.clone()
    save_file(out, os.path.join(path, "expected.safetensors"))


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name in CASES:
        try:
            record(name, folder)
            print(name)
        except Exception as e:
            print(name, "FAILED", type(e).__name__, str(e)[:300])
