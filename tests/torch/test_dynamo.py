"""torch.compile(backend="weft") against eager PyTorch: losses, gradients and weights over several steps of the user's own loop.

Tolerance: both compute in float32 and add up in other orders. 1e-4 of the largest gradient is a hundred times what that makes on these
sizes; weights are compared after steps of SGD, which keeps differences as small as they are (Adam divides by small numbers)."""
import copy
import gc
import os
import subprocess
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from common import SOURCE, distance, run
from compiled import TOLERANCE, batches, compiled, cross_entropy, mlp, of_mlp, raises, same
import weft
from weft import dynamo


def both(model, batches, loss=lambda out, y: out, lr=0.05, tolerance=TOLERANCE, **more):
    """Trains a copy in eager mode and one through Weft with the same batches."""
    torch.manual_seed(1)
    eager, other = model.train(), copy.deepcopy(model).train()
    fast = compiled(other, **more)
    optimizers = [torch.optim.SGD(m.parameters(), lr) for m in (eager, other)]
    for i, (x, y) in enumerate(batches):
        losses = []
        for f, o in zip((eager, fast), optimizers):
            o.zero_grad()
            out = loss(f(*x), y)
            out.backward()
            losses.append(out.detach())
        assert distance(*losses) <= tolerance, f"step {i}: loss {losses[1]} and {losses[0]} in eager mode"
        scale = max(p.grad.abs().max().item() for p in eager.parameters() if p.grad is not None)
        for (name, p), q in zip(eager.named_parameters(), other.parameters()):
            assert (p.grad is None) == (q.grad is None), name
            if p.grad is not None:
                assert q.grad.stride() == p.grad.stride(), f"{name}: gradient has strides {q.grad.stride()}"
                d = (p.grad - q.grad).abs().max().item() / scale
                assert d <= tolerance, f"step {i}: gradient of {name} is {d:.2e} of the largest away"
        for o in optimizers:
            o.step()
        for (name, p), q in zip(eager.state_dict().items(), other.state_dict().values()):
            assert distance(p, q) <= tolerance, f"step {i}: {name} is {distance(p, q):.2e} away"
    return other


class Block(nn.Module):
    def __init__(self, d=32, heads=2):
        super().__init__()
        self.heads = heads
        self.n1, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n2, self.fc, self.out = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.n1(x)).chunk(3, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """With tied weights: head and embedding are one parameter."""

    def __init__(self, vocabulary=29, length=12, d=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks, self.norm = nn.ModuleList(Block(d) for _ in range(2)), nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, i):
        x = self.wte(i) + self.wpe(torch.arange(i.shape[1], device=i.device))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b, self.m = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.n(self.a(x)))
        x = F.max_pool2d(F.relu(x + self.m(self.b(x))), 2)
        return self.fc(x.mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l, self.o = nn.Embedding(11, 16), nn.LSTM(16, 16, 2, batch_first=True), nn.Linear(16, 11)

    def forward(self, x):
        return self.o(self.l(self.e(x))[0])


def test_mlp():
    both(mlp(), of_mlp(), cross_entropy)
    assert dynamo.stats() == {"compiled": 1, "fallbacks": 0, "forward": 4, "backward": 4}, dynamo.stats()


def test_gpt_with_tied_weights():
    torch.manual_seed(0)
    tokens = lambda: torch.randint(0, 29, (3, 12))
    model = both(Gpt(), batches(4, tokens, tokens), cross_entropy)
    assert model.head.weight is model.wte.weight


def test_loss_inside():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = mlp()

        def forward(self, x, y):
            return F.cross_entropy(self.m(x), y)
    both(Whole(), [((*x, y), None) for x, y in of_mlp()])


def test_batch_norm_writes_its_statistics_once():
    torch.manual_seed(0)
    model = both(Resnet(), batches(3, lambda: torch.randn(6, 3, 8, 8), lambda: torch.randint(0, 10, (6,))), cross_entropy)
    assert model.n.num_batches_tracked.item() == 3


def test_channels_last():
    torch.manual_seed(0)
    model = Resnet().to(memory_format=torch.channels_last)
    assert not model.a.weight.is_contiguous()
    images = lambda: torch.randn(6, 3, 8, 8).to(memory_format=torch.channels_last)
    both(model, batches(3, images, lambda: torch.randint(0, 10, (6,))), cross_entropy)


def test_lstm_whole():
    torch.manual_seed(0)
    tokens = lambda: torch.randint(0, 11, (4, 6))
    with torch._dynamo.config.patch(allow_rnn=True):
        both(Lstm(), batches(3, tokens, tokens), cross_entropy)
    assert dynamo.stats()["compiled"] == 1


def test_lstm_around():
    torch.manual_seed(0)
    tokens = lambda: torch.randint(0, 11, (4, 6))
    both(Lstm(), batches(3, tokens, tokens), cross_entropy)
    assert dynamo.stats()["compiled"] >= 2  # before and after nn.LSTM, which runs in PyTorch


def test_hugging_face():
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        print("# transformers is not here")
        return
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                                       attn_pdrop=0, use_cache=False))
    tokens = lambda: torch.randint(0, 31, (2, 16))
    both(model, batches(3, tokens, tokens), lambda out, y: cross_entropy(out.logits, y))


def test_accumulation_and_several_calls_before_backward():
    a, b = mlp(), mlp()
    f = compiled(b)
    (x1,), y1 = of_mlp(2)[0]
    (x2,), y2 = of_mlp(2)[1]
    for m in (a, f):
        first, second = m(x1), m(x2)               # two frames at once
        (cross_entropy(second, y2) * 0.5).backward()
        (cross_entropy(first, y1) * 2).backward()
        cross_entropy(m(x1), y1).backward()
    for p, q in zip(a.parameters(), b.parameters()):
        same(q.grad, p.grad, "accumulated gradient")


def test_backward_twice():
    a, b = mlp(), mlp()
    f = compiled(b)
    (x,), y = of_mlp(1)[0]
    for m in (a, f):
        loss = cross_entropy(m(x), y)
        loss.backward(retain_graph=True)
        loss.backward()
    for p, q in zip(a.parameters(), b.parameters()):
        same(q.grad, p.grad, "gradient of two backwards")
    raises(RuntimeError, "backward through the graph a second time", loss.backward)


def test_a_changed_weight_is_told():
    m = mlp()
    f = compiled(m)
    (x,), y = of_mlp(1)[0]
    loss = cross_entropy(f(x), y)
    with torch.no_grad():
        m[2].weight.mul_(2)
    raises(RuntimeError, "modified by an inplace operation", loss.backward)


def test_second_derivative_is_refused():
    m = mlp()
    f = compiled(m)
    (x,), y = of_mlp(1)[0]
    loss = cross_entropy(f(x), y)
    raises(weft.Error, "no second derivative", lambda: torch.autograd.grad(loss, list(m.parameters()), create_graph=True))


class Several(nn.Module):
    """Outputs of all kinds."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, k):
        h = torch.tanh(self.a(x))
        with torch.no_grad():
            top = self.b(h).argmax(-1)
            fixed = h * 2
        return {"x": x, "flat": x.view(-1), "h": h, "ht": h.t(), "turned": self.b(h).t(), "top": top, "fixed": fixed, "k": k + 1, "none": None,
                "n": 3, "unused": h.exp(), "detached": h.detach()}


def test_outputs_of_all_kinds():
    a, b = Several(), Several()
    f = compiled(b)
    torch.manual_seed(3)
    x, k = torch.randn(5, 6), torch.arange(5)
    xa, xb = x.clone().requires_grad_(), x.clone().requires_grad_()
    ra, rb = a(xa, k), f(xb, k)
    assert rb["x"] is xb and rb["none"] is None and rb["n"] == 3
    assert rb["flat"].data_ptr() == xb.data_ptr() and rb["ht"].data_ptr() == rb["h"].data_ptr()
    for name in ra:
        if isinstance(ra[name], torch.Tensor):
            same(rb[name].detach(), ra[name].detach(), name)
            assert rb[name].stride() == ra[name].stride(), f"{name}: strides {rb[name].stride()} and {ra[name].stride()}"
            assert rb[name].requires_grad == ra[name].requires_grad, name
    for r in (ra, rb):  # `unused` gets no cotangent
        (r["flat"].sum() + r["ht"].square().sum() + r["turned"].sin().sum() + (r["h"] * r["fixed"]).sum() + r["detached"].sum()).backward()
    same(xb.grad, xa.grad, "gradient of the input")
    for p, q in zip(a.parameters(), b.parameters()):
        same(q.grad, p.grad, "gradient")


def test_frozen_parameters_and_no_grad():
    a, b = mlp(), mlp()
    for m in (a, b):
        m[0].weight.requires_grad_(False)
    f = compiled(b)
    (x,), y = of_mlp(1)[0]
    for m in (a, f):
        cross_entropy(m(x), y).backward()
    assert b[0].weight.grad is None
    same(b[0].bias.grad, a[0].bias.grad, "gradient")
    calls = dynamo.stats()
    with torch.no_grad():
        out = f(x)
    with torch.inference_mode():
        again = f(x)
    assert not out.requires_grad and dynamo.stats()["backward"] == calls["backward"]
    same(out, a(x).detach(), "without gradients")
    same(again, out, "in inference mode")


def test_evaluation_mode():
    torch.manual_seed(0)
    m = Resnet()
    x = torch.randn(6, 3, 8, 8)
    f = compiled(m)
    f(x)
    m.eval()
    before = copy.deepcopy(m.state_dict())
    same(f(x).detach(), m(x).detach(), "evaluation")
    for k, v in m.state_dict().items():
        assert torch.equal(v, before[k]), k


def test_dropout():
    m = nn.Sequential(nn.Dropout(0.25))
    f = compiled(m)
    x = torch.ones(64, 64, requires_grad=True)
    torch.manual_seed(5)
    y1 = f(x)
    y2 = f(x)
    y1.sum().backward()
    assert torch.equal(x.grad, y1.detach()), "the backward pass has another mask"
    torch.manual_seed(5)
    assert torch.equal(f(x), y1) and not torch.equal(y1, y2), "the mask follows torch.manual_seed"
    kept = (y1 != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.03, kept  # 4096 draws: the deviation is 0.007
    m.eval()
    assert torch.equal(f(x), x)


def test_symbolic_sizes():
    torch.manual_seed(0)
    a, b = Gpt(), Gpt()
    b.load_state_dict(a.state_dict())
    f = compiled(b, dynamic=True)
    for rows, length in ((2, 12), (3, 7), (5, 4), (2, 12)):
        i = torch.randint(0, 29, (rows, length))
        for m in (a, f):
            m.zero_grad()
            cross_entropy(m(i), i).backward()
        for (n, p), q in zip(a.named_parameters(), b.named_parameters()):
            assert distance(p.grad, q[1].grad) <= TOLERANCE, f"{rows} x {length}: {n}"
    assert dynamo.stats()["compiled"] == 1, dynamo.stats()


def test_sizes_are_results():
    def f(x):
        y = x.repeat(2, 1)
        torch._dynamo.graph_break()
        return y.sum() * (x.shape[0] + 1), x.shape[0] * 2
    g = compiled(f, dynamic=True)
    for n in (3, 5):
        (a, k), (b, m) = f(torch.ones(n, 2)), g(torch.ones(n, 2))
        assert torch.equal(a, b) and k == m == 2 * n


def test_views_of_symbolic_sizes_are_results():
    def f(x):
        h = torch.tanh(x)
        return h, h.view(x.shape[0] * x.shape[1], 2), x.view(-1, x.shape[1] * 2)
    g = compiled(f, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4, 2)
        for a, b in zip(f(x), g(x)):
            same(b, a, "a view")
            assert b.shape == a.shape
    assert dynamo.stats()["compiled"] == 1


def test_sizes_that_dynamo_finds_out():
    a, b = mlp(), mlp()
    f = compiled(b)
    for rows in (8, 5, 9, 4):
        (x,), y = of_mlp(1, rows)[0]
        for m in (a, f):
            m.zero_grad()
            cross_entropy(m(x), y).backward()
        for p, q in zip(a.parameters(), b.parameters()):
            same(q.grad, p.grad, f"{rows} rows")
    assert dynamo.stats()["compiled"] == 2, dynamo.stats()


def test_views_and_gaps_as_inputs():
    a, b = mlp(), mlp()
    f = compiled(b)
    torch.manual_seed(4)
    for x in (torch.randn(16, 8).t(), torch.randn(8, 32)[:, ::2], torch.randn(1, 16).expand(8, 16)):
        same(f(x).detach(), a(x).detach(), f"strides {x.stride()}")


def test_views_that_negate_their_memory():
    model = nn.Linear(4, 1)
    twin, x = copy.deepcopy(model), torch.randn(6, 4)
    f = compiled(model)
    same(f(torch._neg_view(x)).detach(), twin(torch._neg_view(x)).detach(), "an output")
    for call in (twin, f):  # and as the gradient of an output, here of one element, which has no gaps
        call(x[:1]).backward(torch.tensor([[2 + 3j]]).conj().imag)
    for p, q in zip(model.parameters(), twin.parameters()):
        same(p.grad, q.grad, "a gradient")


def test_in_place_inside():
    class Clamps(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.l = nn.Linear(6, 6)
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x):
            h = self.l(x)
            h.mul_(2)
            h[:, 0] += 1
            self.seen.add_(h.detach().sum(0))
            return h.square().mean()
    torch.manual_seed(6)
    both(Clamps(), [((torch.randn(4, 6),), None) for _ in range(3)])


def test_what_is_written_must_be_alone():
    def f(x, y):
        x.add_(1)
        return x * y
    g = compiled(f)
    x = torch.ones(4)
    same(g(x, torch.ones(4)), torch.full((4,), 2.0), "product")
    assert torch.equal(x, torch.full((4,), 2.0)) and x._version == 1
    whole = torch.ones(8)
    raises(torch._dynamo.exc.BackendCompilerFailed, "shares its memory", compiled(f), whole[:4], whole[4:])
    leaf = torch.ones(4, requires_grad=True)
    raises(torch._dynamo.exc.BackendCompilerFailed, "requires a gradient", compiled(f), leaf * 2, torch.ones(4))


def test_unsupported_says_op_and_line():
    def bad(x):
        return torch.linalg.svdvals(x * 2).sum()
    x = torch.randn(4, 4, requires_grad=True)
    e = raises(torch._dynamo.exc.BackendCompilerFailed, "svd", compiled(bad), x)
    assert isinstance(e.inner_exception, weft.Error) and "test_dynamo.py:" in str(e), str(e)
    assert "return torch.linalg.svdvals(x * 2).sum()" in str(e), str(e)


def test_fallback_is_asked_for_counted_and_said():
    def bad(x):
        return torch.linalg.svdvals(x * 2).sum()
    x = torch.randn(4, 4, requires_grad=True)
    f = compiled(bad, options={"fallback": "eager"})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        y = f(x)
        f(x)
    assert torch.equal(y, bad(x))
    told = [str(w.message) for w in said if "runs in PyTorch" in str(w.message)]
    assert len(told) == 1 and "svd" in told[0], told
    assert dynamo.stats()["fallbacks"] == 1


def test_options():
    x = of_mlp(1)[0][0][0]
    f = compiled(mlp(), options={"isa": "v3"})
    same(f(x).detach(), mlp()(x).detach(), "isa=v3")
    raises(torch._dynamo.exc.BackendCompilerFailed, "fallback", compiled(mlp(), options={"fallback": "yes"}), x)
    raises(torch._dynamo.exc.BackendCompilerFailed, "isaa", compiled(mlp(), options={"isaa": "v3"}), x)


def test_an_index_out_of_range_changes_nothing():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.e, self.n = nn.Embedding(7, 8), nn.BatchNorm1d(8)

        def forward(self, i):
            return self.n(self.e(i))
    m = Tokens()
    f = compiled(m)
    f(torch.tensor([1, 2, 3]))
    before = copy.deepcopy(m.state_dict())
    raises(weft.Error, "9", f, torch.tensor([1, 9, 3]))
    for k, v in m.state_dict().items():
        assert torch.equal(v, before[k]), k
    f(torch.tensor([1, 2, 3])).sum().backward()


def test_threads_and_modes_of_the_host_stay():
    f = compiled(mlp())
    torch.set_num_threads(2)
    try:
        cross_entropy(f(of_mlp(1)[0][0][0]), of_mlp(1)[0][1]).backward()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_memory_does_not_grow():
    m = mlp()
    f = compiled(m)
    o = torch.optim.SGD(m.parameters(), 0.01)
    data = of_mlp(1)[0]

    def steps(n):
        for k in range(n):
            o.zero_grad()
            if k % 10 == 9:
                f(*data[0])  # a forward whose backward never comes
            cross_entropy(f(*data[0]), data[1]).backward()
            o.step()
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4096
    first = steps(200)
    grown = steps(1000) - first
    assert grown < 1 << 20, f"{grown} bytes more after 1,000 steps"  # a frame of these is 4 KB: a leak of one a step is 4 MB


def test_entry_point_and_second_process():
    text = f"""
import sys; sys.path.insert(0, {str(SOURCE / 'python')!r})
import torch; from weft import dynamo
torch._dynamo.register_backend(dynamo.backend, name="weft")
m = torch.nn.Linear(4, 2); f = torch.compile(m, backend="weft"); f(torch.ones(3, 4)).sum().backward()
print(m.bias.grad.tolist(), dynamo.stats()["compiled"])
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=os.environ, timeout=300)
        assert done.stdout.strip() == "[3.0, 3.0] 1", done.stdout + done.stderr


run(globals())
