"""torch.compile(backend="weft") among the other tools of a PyTorch loop: autocast, GradScaler, hooks, copies of the module, DataParallel
and DistributedDataParallel, checkpointing, anomaly detection. Right results, or an error that says what and where."""
import copy
import gc
import io
import os
import pickle
import resource
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from common import run
from compiled import compiled, cross_entropy, mlp, of_mlp, raises, same
import weft
from weft import dynamo

REFUSED = torch._dynamo.exc.BackendCompilerFailed


def batch():
    (x,), y = of_mlp(1)[0]
    return x, y


def gradients(a, b):
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        same(q.grad, p.grad, f"gradient of {name}")


class Own(nn.Module):
    """A module of the user's: dynamo leaves the forward of torch's own containers alone."""

    def __init__(self):
        super().__init__()
        self.m = mlp()

    def forward(self, x):
        return self.m(x)


class Mixed(Own):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.m(x)


def test_autocast_is_refused():
    x, y = batch()
    f = compiled(mlp())
    before = f(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # dynamo compiles again: the region that it has is not for autocast
        e = raises(REFUSED, "torch.autocast is on", f, x)
    assert isinstance(e.inner_exception, weft.Error) and e.inner_exception.status == "unsupported model"
    assert torch.equal(f(x), before)
    e = raises(REFUSED, "torch.autocast is on", compiled(Mixed()), x)
    assert "test_dynamo_loop.py:" in e.inner_exception.place, e.inner_exception.place


def test_autocast_falls_back_when_asked():
    x, y = batch()
    m = mlp()
    f = compiled(m, options={"fallback": "eager"})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, expected = f(x), m(x)
    assert out.dtype == torch.bfloat16 and torch.equal(out, expected)
    assert dynamo.stats()["fallbacks"] == 1


def test_export_of_mixed_precision_is_refused():
    x, y = batch()

    def under():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            weft.export(mlp(), (x, y), loss="cross_entropy")
    raises(weft.Error, "torch.autocast is on", under)
    e = raises(weft.Error, "mixed precision is not available", weft.export, Mixed(), (x, y), "cross_entropy")
    assert e.code == "W0409", e.code


def test_a_session_does_not_see_autocast():
    x, y = batch()
    program = weft.export(mlp(), (x, y), loss="cross_entropy")
    plain, under = (weft.Session(program, dict(type="SGD", lr=0.1)) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = under.step((x, y))
    assert loss == plain.step((x, y))


def test_grad_scaler():
    x, y = batch()
    a, b = mlp(), mlp()
    for m, f in ((a, a), (b, compiled(b))):
        o, scaler = torch.optim.SGD(m.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(3):
            o.zero_grad()
            scaler.scale(cross_entropy(f(x), y)).backward()
            scaler.unscale_(o)
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(o)
            scaler.update()
    for p, q in zip(a.parameters(), b.parameters()):
        same(q.detach(), p.detach(), "weights after steps of a GradScaler")


def test_second_derivative_of_the_input_is_refused():
    x, y = batch()
    x.requires_grad_()
    loss = compiled(mlp())(x).square().sum()
    e = raises(weft.Error, "create_graph=True", lambda: torch.autograd.grad(loss, x, create_graph=True))
    assert e.status == "unsupported model" and e.hint


def test_hooks():
    x, y = batch()
    told = {}
    for key, m in (("eager", mlp()), ("weft", mlp())):
        log = told[key] = []
        m[0].weight.register_hook(lambda g, log=log: log.append("gradient") or g * 2)
        m[0].weight.register_post_accumulate_grad_hook(lambda p, log=log: log.append("accumulated"))
        m[1].register_forward_hook(lambda mod, i, o: o * 2)
        m.register_forward_hook(lambda mod, i, o, log=log: log.append("forward"))
        out = (m if key == "eager" else compiled(m))(x)
        out.register_hook(lambda g, log=log: log.append("output"))
        cross_entropy(out, y).backward()
        told[key + " gradient"] = m[0].weight.grad
    assert told["weft"] == told["eager"] == ["forward", "output", "gradient", "accumulated"], told
    same(told["weft gradient"], told["eager gradient"], "gradient with hooks")


def test_copies_of_a_compiled_module():
    x, y = batch()
    m = mlp()
    f = compiled(m)
    cross_entropy(f(x), y).backward()
    stream = io.BytesIO()
    torch.save(f, stream)
    stream.seek(0)
    for other in (copy.deepcopy(f), pickle.loads(pickle.dumps(f)), torch.load(stream, weights_only=False)):
        other.zero_grad()
        cross_entropy(other(x), y).backward()
        gradients(m, other)
        with torch.no_grad():
            next(other.parameters()).zero_()  # its own
        assert next(m.parameters()).abs().sum() > 0
    in_place = mlp()
    in_place.compile(backend=dynamo.backend)
    cross_entropy(in_place(x), y).backward()
    gradients(m, in_place)
    same(pickle.loads(pickle.dumps(in_place))(x).detach(), m(x).detach(), "a module compiled in place, from a pickle")


def test_data_parallel():
    x, y = batch()
    a, b = mlp(), mlp()
    cross_entropy(a(x), y).backward()
    cross_entropy(nn.DataParallel(compiled(b))(x), y).backward()
    gradients(a, b)


def test_distributed_data_parallel():
    x, y = batch()
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        try:
            a, inside, outside = Own(), Own(), Own()
            cross_entropy(a(x), y).backward()
            cross_entropy(nn.parallel.DistributedDataParallel(compiled(inside))(x), y).backward()
            cross_entropy(compiled(nn.parallel.DistributedDataParallel(outside))(x), y).backward()
            gradients(a, inside)
            gradients(a, outside)
            assert dynamo.stats()["backward"] >= 1 and dynamo.stats()["fallbacks"] == 0, dynamo.stats()
        finally:
            dist.destroy_process_group()


class Checkpointed(Own):
    def forward(self, x):
        return checkpoint(self.m, x, use_reentrant=False)


def test_checkpointing_inside():
    x, y = batch()
    a, b = Checkpointed(), Checkpointed()
    cross_entropy(a(x), y).backward()
    cross_entropy(compiled(b)(x), y).backward()
    gradients(a, b)
    assert dynamo.stats()["compiled"] == 1


def test_checkpointing_around():
    x, y = batch()
    a, b = mlp(), mlp()
    cross_entropy(a(x), y).backward()
    cross_entropy(checkpoint(compiled(b), x, use_reentrant=False), y).backward()
    gradients(a, b)


def test_anomaly_detection_and_hooks_of_saved_tensors():
    x, y = batch()
    a, b = mlp(), mlp()
    cross_entropy(a(x), y).backward()
    f = compiled(b)
    with torch.autograd.detect_anomaly(check_nan=True):
        cross_entropy(f(x), y).backward()
    b.zero_grad()
    with torch.autograd.graph.save_on_cpu():
        cross_entropy(f(x), y).backward()
    gradients(a, b)


def test_an_input_changed_before_backward_is_told():
    x, y = batch()
    loss = cross_entropy(compiled(mlp())(x), y)
    x.add_(1)
    raises(RuntimeError, "modified by an inplace operation", loss.backward)


def advised(address):
    """Does the kernel know that the memory at an address is meant for huge pages? None: there is no such memory."""
    inside = None
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0] and ":" not in words[0]:
            first, end = (int(w, 16) for w in words[0].split("-"))
            inside = first <= address < end
        elif inside and words[0] == "VmFlags:":
            return "hg" in words
    return None


def test_large_frames_lie_in_huge_pages_and_go_with_the_region():
    torch.manual_seed(3)
    wide = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 8))
    other = copy.deepcopy(wide)
    x = torch.randn(2048, 64)  # the frame keeps f32[2048, 1024], 8 MB
    y = compiled(other)(x)
    address = y.grad_fn.frame.pointer
    assert advised(address)
    y.square().mean().backward()
    wide(x).square().mean().backward()
    gradients(wide, other)
    del y
    torch._dynamo.reset()
    gc.collect()
    assert advised(address) is None, "the frame is still there"


def faults(f):
    """How many pages f() was given by the system."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    f()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_memory_of_large_gradients_is_used_again():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3072, 3072), nn.Tanh(), nn.Linear(3072, 64))  # malloc gives 36 MB back to the system at once
    twin, x = copy.deepcopy(model), torch.randn(8, 3072)
    f, places, pages = compiled(model), [], []
    for _ in range(4):
        loss = f(x).square().mean()
        pages.append(faults(loss.backward))
        places.append([p.grad.data_ptr() for p in model.parameters() if p.numel() > 3072])
        twin(x).square().mean().backward()
        gradients(twin, model)
        model.zero_grad()
        twin.zero_grad()
    assert places[0] == places[1] == places[3]
    assert pages[-1] < 64, f"pages in each backward: {pages}"  # 36 MB are 9216


def test_a_gradient_that_is_kept_stays():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256))
    twin, f = copy.deepcopy(model), compiled(model)
    kept, expected = [], []
    for step in range(5):  # more than there are sets
        x = torch.randn(8, 256)
        for m, call, saved in ((model, f, kept), (twin, twin, expected)):
            m.zero_grad()
            call(x).square().mean().backward()
            saved.append([m[0].weight.grad, m[2].weight.grad.numpy(), m[2].weight.grad[:, 3]])  # itself, an array, a view
    for mine, right in zip(kept, expected):
        for a, b in zip(mine, right):
            same(torch.as_tensor(a), torch.as_tensor(b), "a gradient that was kept")
    for m, call in ((model, f), (twin, twin)):  # summed up over calls, which are there together
        m.zero_grad()
        for k in range(3):
            (call(x + k).square().mean() + call(x - k).sum()).backward()
    gradients(twin, model)


class Rounded(torch.autograd.Function):
    """Straight through: what the operators of forward have for a gradient is zero."""

    @staticmethod
    def forward(ctx, x):
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx, g):
        return g


class Quantised(nn.Module):
    def __init__(self, early):
        super().__init__()
        self.a, self.b, self.early = nn.Linear(16, 8), nn.Linear(8, 10), early

    def forward(self, x):
        return self.b(self.a(Rounded.apply(x))) if self.early else self.b(Rounded.apply(self.a(x)))


def test_a_backward_of_the_users_own_is_not_left_out_silently():
    x, y = batch()
    model = Quantised(early=False)
    e = raises(REFUSED, "has a backward of its own", compiled(model), x).inner_exception
    assert isinstance(e, weft.Error) and "Rounded.apply(self.a(x))" in e.place and "detach()" in e.hint, e
    with torch.no_grad():
        same(compiled(model)(x), model(x), "without a gradient")
    for strict in (False, True):
        e = raises(weft.Error, "has a backward of its own", lambda: weft.export(model, (x, y), loss="cross_entropy", strict=strict))
        assert strict or "Rounded.apply(self.a(x))" in e.place, e
    early = Quantised(early=True)  # of what needs no gradient it is never called
    same(compiled(early)(x), early(x), "of an input")
    weft.export(early, (x, y), loss="cross_entropy")


def test_what_cannot_be_taken_apart_is_said_in_words():
    m = mlp()
    x, _ = batch()

    def f(p):
        return torch.func.grad(lambda q: torch.func.functional_call(m, q, (x,)).sum())(p)
    e = raises(REFUSED, "cannot take the region apart", compiled(f), dict(m.named_parameters()))
    assert isinstance(e.inner_exception, weft.Error) and e.inner_exception.hint


run(globals())
