"""The package weft, whole: export, sessions, optimisers, state, evaluation, checkpoints, errors, against PyTorch in the same process."""
import copy
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import SOURCE, WEFT, farthest, run
import weft

RTOL = 1e-4  # of weights after some float32 steps; smooth activations, so that no rounding decides a branch


class Net(nn.Module):
    """A linear layer, a batch norm with buffers, a tied matrix, a frozen one."""

    def __init__(self, norm=True):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.mix = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.still = nn.Linear(8, 8)
        for p in self.still.parameters():
            p.requires_grad_(False)
        self.register_buffer("scratch", torch.ones(8), persistent=False)

    def forward(self, x):
        h = self.embed(x).mean(1)
        return self.head(self.norm(torch.tanh(self.mix(h) + self.still(h))) * self.scratch)


def batches(n, rows=6):
    g = torch.Generator().manual_seed(3)
    return [(torch.randint(0, 11, (rows, 5), generator=g), torch.randint(0, 11, (rows,), generator=g)) for _ in range(n)]


def torch_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def refused(call, *words, code=None):
    try:
        call()
    except weft.Error as e:
        for word in words:
            assert word in str(e), f"{word!r} is not in: {e}"
        assert code is None or e.code == code, e
        return e
    raise AssertionError(f"nothing was refused ({words})")


def decay_groups(model):
    decay = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() > 1]
    rest = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() < 2]
    return [dict(params=decay, weight_decay=0.2), dict(params=rest, weight_decay=0.0, lr=2e-3)]


OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-3, amsgrad=True, betas=(0.8, 0.99)),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-3),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=1e-3, centered=True, momentum=0.9, eps=1e-4),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.02, initial_accumulator_value=0.1),
}


def test_steps_are_pytorchs_with_every_optimiser():
    for name, make in OPTIMIZERS.items():
        torch.manual_seed(1)
        model = Net()
        ours = copy.deepcopy(model)
        reference = make(decay_groups(model) if name == "adamw" else [p for p in model.parameters() if p.requires_grad])
        optimizer = make(decay_groups(ours) if name == "adamw" else [p for p in ours.parameters() if p.requires_grad])
        session = weft.Session(weft.export(ours, batches(1)[0], loss="cross_entropy"), optimizer)
        for x, y in batches(8):
            want, loss = torch_step(model, reference, x, y), session.step((x, y))
            assert abs(loss - want) <= RTOL * abs(want), f"{name}: loss {loss}, PyTorch's {want}"
        ours.load_state_dict(session.state_dict(), strict=True)
        worst = farthest(model.state_dict(), ours.state_dict())
        assert worst[0] < RTOL, f"{name}: {worst}"
        # the state goes into torch's optimiser, which goes on as if it had done the steps
        optimizer.load_state_dict(copy.deepcopy(session.optimizer_state_dict()))
        for x, y in batches(4):
            torch_step(model, reference, x, y)
            torch_step(ours, optimizer, x, y)
        worst = farthest(model.state_dict(), ours.state_dict())
        assert worst[0] < RTOL, f"{name}, in PyTorch again: {worst}"
        # and starts a session where it stands
        again = weft.Session(weft.export(ours, batches(1)[0], loss="cross_entropy"), optimizer)
        assert again.steps == (12 if name != "sgd" else 1), again.steps  # SGD does not count
        for x, y in batches(4):
            torch_step(model, reference, x, y)
            again.step((x, y))
        worst = farthest(model.state_dict(), dict(again.state_dict()))
        assert worst[0] < RTOL, f"{name}, in Weft again: {worst}"


def test_a_dict_says_the_same_as_an_optimiser():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy")
    a = weft.Session(program, torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.3))
    b = weft.Session(program, dict(type="AdamW", lr=2e-3, weight_decay=0.3, betas=(0.9, 0.999)))
    c = weft.Session(program, dict(type="AdamW", lr=2e-3, weight_decay=0.3, param_groups=[dict(params=["*.bias"], weight_decay=0)]))
    for batch in batches(3):
        assert a.step(batch) == b.step(batch)
        c.step(batch)
    assert farthest(dict(a.state_dict()), dict(b.state_dict()))[0] == 0
    assert farthest(dict(a.state_dict()), dict(c.state_dict()))[0] > 0
    refused(lambda: weft.Session(program, torch.optim.LBFGS(model.parameters())), "no optimiser LBFGS", "AdamW")
    refused(lambda: weft.Session(program, dict(type="AdamW", momentum=1)), "AdamW has no momentum", "betas")
    refused(lambda: weft.Session(program, torch.optim.SGD(model.mix.parameters(), lr=1)), "leaves out embed.weight", "requires_grad_(False)")
    refused(lambda: weft.Session(program, torch.optim.SGD(Net().parameters(), lr=1)), "no parameter of the model")
    refused(lambda: weft.Session(program, dict(lr=1)), "no type")


def test_batches_come_in_every_form():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy", dynamic_shapes="batch")
    (x, y), losses = batches(1)[0], []
    for batch in ((x, y), [x, y], dict(x=x, y=y), dict(y=y, x=x), (x.numpy(), y.numpy()), {"x": x, "y": y.numpy()}):
        losses.append(weft.Session(program, dict(type="SGD", lr=0.1)).step(batch))
    assert len(set(losses)) == 1, losses
    session = weft.Session(program, dict(type="SGD", lr=0.1))
    assert session.inputs == [("x", (-1, 5)), ("y", (-1,))], session.inputs
    assert np.isfinite(session.step((x[:2], y[:2])))  # a size of its own
    refused(lambda: session.step(x), "has 1 tensor, and the step takes 2: x, y")
    refused(lambda: session.step((x, y, y)), "has 3 tensors")
    refused(lambda: session.step(dict(x=x)), "It lacks y")
    refused(lambda: session.step(dict(x=x, y=y, z=y)), "Leave out z")
    refused(lambda: session.step((x.int(), y)), "input x is i32, but the model wants i64", code="W0254")
    refused(lambda: session.step((x[:, :3].contiguous(), y)), "dimension 1 is 3, but must be 5")
    refused(lambda: session.step((x.t(), y)), "input x is not contiguous")
    refused(lambda: session.step((x + 20, y)), "input x", "11")  # an index beyond the table: the line of the embedding
    before = {k: v.clone() for k, v in session.state_dict().items()}
    refused(lambda: session.step((x + 20, y)))
    assert farthest(before, dict(session.state_dict()))[0] == 0


class OneInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        return ((self.line(x) - x) ** 2).mean()


def test_a_model_may_return_its_loss():
    x = torch.randn(3, 4)
    session = weft.Session(weft.export(OneInput(), x), dict(type="SGD", lr=0.5))
    assert session.step(x) > session.step(x) > 0
    assert session.step(x.numpy()) > 0


def test_state_is_borrowed():
    model = Net()
    session = weft.Session(weft.export(model, batches(1)[0], loss="cross_entropy"), dict(type="SGD", lr=0.1))
    state = session.state_dict()
    assert list(state) == list(model.state_dict()), "names in PyTorch's order, the tied one twice, the transient buffer not"
    assert state["embed.weight"].data_ptr() == state["head.weight"].data_ptr() == session.state_dict()["embed.weight"].data_ptr()
    before = state["mix.weight"].clone()
    session.step(batches(1)[0])
    assert not torch.equal(before, state["mix.weight"]), "a view does not see the step"
    assert torch.equal(state["still.weight"], model.still.weight), "a frozen parameter has moved"
    session.load_state_dict(model.state_dict())
    assert torch.equal(state["mix.weight"], model.mix.weight)
    refused(lambda: session.load_state_dict({"mix.weight": before}), "it lacks embed.weight")
    refused(lambda: session.load_state_dict({**model.state_dict(), "more": before}), "it has more")
    refused(lambda: session.load_state_dict({**model.state_dict(), "mix.weight": before[:2]}), "mix.weight is (2, 8)")
    session.load_state_dict({"mix.weight": torch.zeros(8, 8)}, strict=False)
    assert not state["mix.weight"].any()
    session.close()
    assert not state["mix.weight"].any() and state["mix.bias"].shape == (8,)  # what was lent lives on
    refused(lambda: session.step(batches(1)[0]), "the session is closed")
    refused(lambda: session.state_dict(), "the session is closed")


def test_evaluation_is_pytorchs():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy", dynamic_shapes="batch")
    session = weft.Session(program, dict(type="SGD", lr=0.3))
    for batch in batches(6):
        session.step(batch)
    data = batches(3) + [tuple(t[:2] for t in batches(1)[0])]
    model.load_state_dict(session.state_dict())
    model.eval()
    x, y = (torch.cat(c) for c in zip(*data))
    with torch.no_grad():
        logits = model(x)
    found = session.evaluate(data)
    want = F.cross_entropy(logits, y).item()
    assert abs(found["loss"] - want) < 1e-5 * want, (found, want)
    assert abs(found["accuracy"] - (logits.argmax(1) == y).double().mean().item()) < 1e-12
    top = session.evaluate(data, ["loss", "top3", "f1"])
    assert list(top) == ["loss", "top3", "f1"]
    best = logits.topk(3).indices
    assert abs(top["top3"] - (best == y[:, None]).any(1).double().mean().item()) < 1e-12
    assert (session.predict(x) - logits).abs().max() < 1e-5
    assert (session.predict({"x": x.numpy()}) - logits).abs().max() < 1e-5
    loss, outputs = session.forward((x, y), eval=True)
    assert abs(loss - want) < 1e-5 * want and len(outputs) == 1 and (outputs[0] - logits).abs().max() < 1e-5
    refused(lambda: session.evaluate(data, "accurate"), "no metric 'accurate'")


class OwnLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return F.cross_entropy(self.model(x), y), self.model(x)


def test_a_last_batch_of_fewer_rows_counts_as_it_is():
    whole, rest = batches(2), [tuple(t[:n] for t in batches(1)[0]) for n in (2, 1)]
    data = whole + rest                                 # of an export with six rows
    x, y = (torch.cat(c) for c in zip(*data))
    model = Net().train()
    for form, options in ((model, dict(loss="cross_entropy")), (OwnLoss(model), {})):  # labels that are ignored; a row that is taken out
        for last in ({}, dict(last_batch="pad")) if options else ({},):                # a mask in the step
            program = weft.export(form, whole[0], **options)
            session = weft.Session(program, dict(type="SGD", lr=0.1), **last)
            model.eval()
            logits, still = model(x), copy.deepcopy(data)
            model.train()
            found, want = session.evaluate(data), F.cross_entropy(logits, y).item()
            assert abs(found["loss"] - want) < 1e-5 * want, (options, last, found, want)
            if options:
                assert abs(found["accuracy"] - (logits.argmax(1) == y).double().mean().item()) < 1e-12, (last, found)
            assert all(torch.equal(a, b) for p, q in zip(data, still) for a, b in zip(p, q)), "what was fed has changed"
            refused(lambda: session.evaluate([tuple(torch.cat([t, t]) for t in whole[0])]), "12")
            refused(lambda: session.evaluate([(whole[0][0][:2], whole[0][1])]), "input y has 6 rows, in a batch of 2")
            assert session.step(whole[0]) > 0
    values = weft.export(nn.Linear(4, 3), (torch.randn(6, 4), torch.randn(6, 3)), loss="mse")
    session = weft.Session(values, dict(type="SGD", lr=0.1))
    a, b = torch.randn(8, 4), torch.randn(8, 3)
    found = session.evaluate([(a[:6], b[:6]), (a[6:], b[6:])], "loss,mse,mae")
    out = F.linear(a, *session.state_dict().values())
    for name, want in (("loss", F.mse_loss(out, b)), ("mse", F.mse_loss(out, b)), ("mae", F.l1_loss(out, b))):
        assert abs(found[name] - want.item()) < 1e-5 * want.item(), (name, found, want)


def test_predictions_of_fewer_rows_than_the_export():
    model = Net().train()
    x, y = batches(1)[0]
    for form, options in ((model, dict(loss="cross_entropy")), (OwnLoss(model), {})):
        session = weft.Session(weft.export(form, (x, y), **options), dict(type="SGD", lr=0.1))
        whole = session.predict(x)
        for n in (1, 4, 6):
            for given in (x[:n], x[:n].numpy(), {"x": x[:n]}, (x[:n], y[:n])):
                found = session.predict(given)
                assert tuple(found.shape) == (n, 11) and torch.equal(found, whole[:n]), (n, found.shape)
        assert torch.equal(session.predict((x[:2], y)), whole[:2])  # a target is not read
        refused(lambda: session.predict({"y": y}), "input x was not fed")
        refused(lambda: session.predict({"x": x, "z": y}), "the batch has x, z, and the step takes x, y")
        for empty in (x[:0], x[:0].numpy()):
            refused(lambda: session.predict(empty), "input x: dimension 0 is 0, but must be 6")
            refused(lambda: session.evaluate([(empty, y[:0])]), "the batch has no rows")
        refused(lambda: session.predict(torch.cat([x, x])), "12")
    total = weft.Session(weft.export(Total(), (x,)), dict(type="SGD", lr=0.1))
    refused(lambda: total.predict(x[:2]), "the batch has 2 rows of 6, and the predictions have no row for each")


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 5)

    def forward(self, x, scale):
        return (self.inner(x) * scale).transpose(1, 2)


def test_predictions_need_what_they_are_made_from():
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2, max=99)
    x, scale, y = torch.randn(6, 7, 4), torch.rand(6, 7, 1), torch.randint(0, 5, (6, 7))
    model = Scaled()
    exported = weft.export(model, {"x": x, "scale": scale, "y": y}, loss="cross_entropy", dynamic_shapes={n: {0: batch, 1: length} for n in ("x", "scale")})
    session = weft.Session(exported, dict(type="SGD", lr=0.1))
    session.step((x, scale, y))
    model.load_state_dict(session.state_dict())
    for rows, long in ((6, 7), (2, 9), (1, 3)):  # sizes of the target, which is not given, are those of the inputs
        a, b = torch.randn(rows, long, 4), torch.rand(rows, long, 1)
        found, want = session.predict((a, b)), model(a, b).detach()
        assert found.shape == want.shape and (found - want).abs().max() < 1e-5, (rows, long)
    refused(lambda: session.predict({"x": x}), "input scale was not fed")  # and not what an earlier step was fed


class Total(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (x * self.weight).sum()


def test_schedules_are_pytorchs():
    model = Net(norm=False)
    program = weft.export(model, batches(1)[0], loss="cross_entropy")
    optimizer = torch.optim.SGD(decay_groups(model), lr=0.4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    session = weft.Session(program, optimizer, schedule=scheduler)
    other = weft.Session(program, dict(type="SGD", lr=0.4), schedule=dict(type="step", step_size=2, gamma=0.5))
    for t, batch in enumerate(batches(6)):
        assert abs(session.lr - 0.4 * 0.5 ** (t // 2)) < 1e-12, (t, session.lr)
        session.step(batch)
        other.step(batch)
        assert abs(other.metric("lr") - 0.4 * 0.5 ** (t // 2)) < 1e-12, (t, other.lr)
    refused(lambda: weft.Session(program, dict(type="SGD", lr=1), schedule="cosine"), "number of steps is not known", "total-steps")
    refused(lambda: weft.Session(program, dict(type="SGD", lr=1), schedule=scheduler), "of another optimiser")

    def one_cycle(**more):
        optimizer = torch.optim.Adam(decay_groups(model), lr=0.4)
        optimizer.param_groups[0]["name"] = "all of them"  # the user's, as max_lr and others are the scheduler's
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9, **more)
    optimizer, scheduler = one_cycle(cycle_momentum=False)
    followed = weft.Session(program, optimizer, schedule=scheduler)
    twin, course = one_cycle(cycle_momentum=False)
    for batch in batches(6):
        assert abs(followed.lr - twin.param_groups[0]["lr"]) < 1e-12
        followed.step(batch)
        twin.step()
        course.step()
    refused(lambda: weft.Session(program, one_cycle()[0], schedule=one_cycle()[1]), "of another optimiser")
    optimizer, scheduler = one_cycle()
    refused(lambda: weft.Session(program, optimizer, schedule=scheduler), "cycles the momentum", "cycle_momentum=False")
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    refused(lambda: weft.Session(program, optimizer, schedule=plateau), "wants a metric", "session.lr =")
    session.lr = 0
    before = session.state_dict()["mix.bias"].clone()
    session.step(batches(1)[0])
    assert torch.equal(before, session.state_dict()["mix.bias"])


def test_a_warm_up_begins_at_zero():
    model = Net(norm=False)
    twin, program = copy.deepcopy(model), weft.export(model, batches(1)[0], loss="cross_entropy")

    def made(m, *rates):
        first, *rest = m.parameters()
        optimizer = torch.optim.SGD([{"params": [first], "lr": rates[0]}, {"params": rest, "lr": rates[1]}])
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 4)  # as of Hugging Face's get_linear_schedule_with_warmup
    optimizer, scheduler = made(model, 0.1, 0.2)
    session = weft.Session(program, optimizer, schedule=scheduler)
    other, course = made(twin, 0.1, 0.2)
    for x, y in batches(4):
        session.step((x, y))
        other.zero_grad()
        F.cross_entropy(twin(x), y).backward()
        other.step()
        course.step()
    for name, want in twin.state_dict().items():
        assert torch.allclose(session.state_dict()[name], want, rtol=1e-5, atol=1e-6), name
    optimizer, scheduler = made(model, 0.0, 0.2)
    refused(lambda: weft.Session(program, optimizer, schedule=scheduler), "the first group's learning rate is 0", "first")


def test_what_a_session_would_leave_out_is_told():
    model, batch = Net(norm=False), batches(1)[0]
    program = weft.export(model, batch, loss="cross_entropy")
    refused(lambda: weft.Session(model, dict(type="SGD", lr=0.1)), "the program is a Net", "weft.export")

    class SGD(torch.optim.SGD):  # another optimiser of that name
        pass
    refused(lambda: weft.Session(program, SGD(model.parameters(), lr=0.1)), "SGD is not torch.optim's", "torch.optim.SGD")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = optimizer.register_step_post_hook(lambda *_: None)
    refused(lambda: weft.Session(program, optimizer), "hooks around its step")
    hook.remove()
    weft.Session(program, optimizer)
    parameter = model.mix.weight
    for hook, what in ((lambda: parameter.register_hook(lambda g: 2 * g), "mix.weight"),
                       (lambda: parameter.register_post_accumulate_grad_hook(lambda p: None), "mix.weight"),
                       (lambda: model.mix.register_full_backward_hook(lambda *_: None), "mix"),
                       (lambda: model.register_full_backward_pre_hook(lambda *_: None), "the model")):
        handle = hook()
        refused(lambda: weft.export(model, batch, loss="cross_entropy"), f"{what} has a hook of its gradients")
        handle.remove()
    weft.export(model, batch, loss="cross_entropy")


def test_checkpoints_resume_to_the_bit():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy")
    make = lambda: weft.Session(program, dict(type="AdamW", lr=1e-2), seed=5)
    first, second = make(), make()
    assert second.resume("none") == -1
    data = batches(7)
    for batch in data[:4]:
        first.step(batch)
    first.save("kept", keep=1)
    assert second.resume("kept") == 4
    for batch in data[4:]:
        assert first.step(batch) == second.step(batch)
    assert farthest(dict(first.state_dict()), dict(second.state_dict()))[0] == 0
    first.save("kept", keep=1)
    assert os.listdir("kept/checkpoints/step-7") and not os.path.exists("kept/checkpoints/step-4")
    refused(lambda: weft.Session(program, dict(type="SGD", lr=1e-2), seed=5).resume("kept"), "which this training has not")
    first.save_weights("w.safetensors")
    third = make()
    third.load_weights("w.safetensors")
    assert farthest(dict(first.state_dict()), dict(third.state_dict()))[0] == 0


def test_programs_are_files():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy", label_smoothing=0.1)
    program.save("net.pt2")
    session = weft.Session(program, dict(type="SGD", lr=0.1))
    session.save_compiled("net.weft")
    again = weft.Session(weft.open("net.pt2", loss="cross_entropy", label_smoothing=0.1), dict(type="SGD", lr=0.1))
    compiled = weft.Session("net.weft")
    for batch in batches(3):
        loss = session.step(batch)
        assert loss == again.step(batch) == compiled.step(batch)
    named = torch.optim.SGD(model.named_parameters(), lr=0.1)
    weft.Session(weft.open("net.pt2", loss="cross_entropy"), named).step(batches(1)[0])
    refused(lambda: weft.Session(weft.open("net.pt2", loss="cross_entropy"), torch.optim.SGD(model.parameters(), lr=0.1)), "named_parameters")
    refused(lambda: weft.open("net.pt3"), "net.pt3", code="W0301")
    refused(lambda: program.save("net.txt"), ".pt2")
    refused(lambda: weft.Session("net.weft", clip_norm=1), "clip-norm")


def test_texts_are_those_of_the_command():
    model = Net()
    program = weft.export(model, batches(1)[0], loss="cross_entropy")
    program.save("net.pt2")
    session = weft.Session(program, dict(type="AdamW", lr=1e-3), threads=1)
    told = subprocess.run([WEFT, "plan", "net.pt2", "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "1e-3", "--threads", "1"],
                          capture_output=True, text=True).stdout
    strip = lambda text: [line for line in text.splitlines() if " ms" not in line]  # predictions know the machine
    assert strip(session.plan()) == strip(told) and "largest buffers" in told
    told = subprocess.run([WEFT, "graph", "net.pt2", "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "1e-3", "--after", "grad/step"],
                          capture_output=True, text=True).stdout
    assert session.graph(after="grad/step") == told and "graph joint" in told
    assert "graph aten" in program.graph() and "graph aten" in session.graph()
    assert np.isfinite(session.step(batches(1)[0]))
    refused(lambda: session.graph(after="grad/walk"), "grad/walk")


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:  # here
            x = x + 1
        return self.line(x)


class Prints(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        return self.line(torch.linalg.eigvals(x @ x.t()).real[:, None] * x)


def test_what_cannot_be_exported_is_said():
    x, y = torch.randn(3, 4), torch.randint(0, 4, (3,))
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)).eval()
    refused(lambda: weft.export(model, (x, y), loss="cross_entropy"), "evaluation mode", "model.train()")
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))
    model[1].eval()
    refused(lambda: weft.export(model, (x, y), loss="cross_entropy"), "1 is in evaluation mode")
    e = refused(lambda: weft.export(Branches(), (x, y), loss="cross_entropy"), "branches on values", "torch.where")
    assert "test_python.py" in e.place and "here" in e.place, e.place
    e = refused(lambda: weft.export(Prints(), (x, y), loss="cross_entropy"), "eig")
    refused(lambda: weft.export(nn.Linear(4, 4, device="meta"), (x, y), loss="cross_entropy"), "weight lies on meta", "model.cpu()")
    refused(lambda: weft.export(Branches(), (x,), loss="cross_entropy"), "only one sample")
    refused(lambda: weft.export(Branches(), (x, y), loss="hinge"), "no loss hinge", "cross_entropy")
    refused(lambda: weft.export(nn.Linear(4, 4), (x, x, y), loss="cross_entropy"), "forward does not take")
    refused(lambda: weft.export("net", (x, y)), "not a torch.nn.Module")
    refused(lambda: weft.Session(weft.export(nn.Linear(4, 4), (x, x), loss="mse"), dict(type="SGD", lr=1), clipnorm=1), "clipnorm", "clip-norm")


class Tokens(nn.Module):
    """Scores as sequence models have them; where 1: with the classes behind the samples."""

    def __init__(self, where):
        super().__init__()
        self.table, self.where = nn.Embedding(9, 9), where

    def forward(self, x):
        scores = self.table(x)
        return scores.transpose(1, 2) if self.where == 1 else scores.flatten(0, 1) if self.where == 0 else scores


def test_classes_that_are_not_in_dimension_1_are_told():
    x, y = torch.randint(0, 9, (4, 6)), torch.randint(0, 9, (4, 6))
    for shapes in None, "batch":
        e = refused(lambda: weft.export(Tokens(2), (x, y), loss="cross_entropy", dynamic_shapes=shapes), "classes in dimension 1",
                    "6, 9], whose dimension 1 is the length of input x", ".transpose(1, 2)", ".flatten(0, 1)", code="W0419")
        assert "module table" in e.place, e.place
    length = {"x": {1: torch.export.Dim("length", min=2, max=50)}}
    refused(lambda: weft.export(Tokens(2), (x, y), loss="cross_entropy", dynamic_shapes=length), "length of input x", code="W0419")
    right = weft.Session(weft.export(Tokens(1), (x, y), loss="cross_entropy"), dict(type="SGD", lr=0.1))
    own = copy.deepcopy(Tokens(1))
    own.load_state_dict(right.state_dict())
    want = F.cross_entropy(own(x), y).item()
    assert abs(right.step((x, y)) - want) < 1e-6 * want  # a mean of 24 float32
    refused(lambda: right.step((x, y.flatten())), "has 1 dimension, but the model wants 2", "y is the target of --loss cross_entropy", "[N, ...]")
    flat = weft.Session(weft.export(Tokens(0), (x, y), loss="cross_entropy"), dict(type="SGD", lr=0.1))
    refused(lambda: flat.step((x, y)), "has 2 dimensions, but the model wants 1", "[N * T, C]")
    line = weft.Session(weft.export(nn.Linear(4, 1), (torch.randn(6, 4), torch.randn(6, 1)), loss="mse"), dict(type="SGD", lr=0.1))
    refused(lambda: line.step((torch.randn(6, 4), torch.randn(6))), "has 1 dimension", "the target of --loss mse", ".squeeze(1)")


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Embedding(5, 3), nn.Embedding(5, 3)

    def forward(self, a, b):
        return self.a(a) + self.b(b)


def test_samples_that_are_one_tensor_stay_two_inputs():
    """torch.export makes one of them; what was fed for the other changed nothing."""
    one, two, y = torch.randint(0, 5, (8,)), torch.randint(0, 5, (8,)), torch.randint(0, 3, (8,))
    torch.manual_seed(4)
    model = Pair()
    want = F.cross_entropy(model(one, two), y).item()
    session = weft.Session(weft.export(model, (one, one, y), loss="cross_entropy"), dict(type="SGD", lr=0.1))
    assert abs(session.step((one, two, y)) - want) < 1e-6 * want  # a mean of 8 float32
    folder = tempfile.mkdtemp()
    torch.export.save(torch.export.export(Pair().train(), (one, one)), folder + "/merged.pt2")
    said = subprocess.run([WEFT, "compile", folder + "/merged.pt2", "--loss", "cross_entropy", "-o", folder + "/s.weft"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    said = subprocess.run([WEFT, "train", folder + "/s.weft", "--dry-run", "--data", folder + "/none.npz"], capture_output=True, text=True)
    assert "the model reads no value of its input a" in said.stderr, said.stderr


def test_verify_prints_what_differs():
    torch.manual_seed(2)
    model = Net()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=1e-3)
    before = copy.deepcopy(model.state_dict())
    verdict = weft.verify(model, batches(3), optimizer, loss="cross_entropy")
    assert verdict.ok, str(verdict)
    assert [r.what for r in verdict.rows] == ["losses", "gradients", "weights after step 1", "buffers after step 1", "weights after step 5",
                                             "buffers after step 5"], str(verdict)
    assert farthest(before, model.state_dict())[0] == 0 and not optimizer.state
    rows = copy.deepcopy(verdict)
    rows.rows[0].error = 1.0
    assert not rows.ok and "FAIL" in str(rows) and "tolerance" in str(rows)
    refused(lambda: weft.verify(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), [(torch.randn(2, 4), torch.zeros(2).long())],
                                optimizer, loss="cross_entropy"), "random numbers")
    ragged = [*batches(1), tuple(t[:4] for t in batches(1)[0])]
    assert weft.verify(model, ragged, optimizer, loss="cross_entropy", dynamic_shapes="batch").ok
    refused(lambda: weft.verify(model, ragged, optimizer, loss="cross_entropy"), "dimension 0 is 4, but must be 6", "dynamic_shapes", "last-batch=pad")
    refused(lambda: weft.verify(model, ragged, dict(type="SGD", lr=0.1), loss="cross_entropy"), "the optimiser is a dict")
    F.cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]).backward()
    optimizer.step()
    refused(lambda: weft.verify(model, batches(3), optimizer, loss="cross_entropy"), "has state")


def test_a_forked_child_may_load_but_not_step():
    session = weft.Session(weft.export(Net(), batches(1)[0], loss="cross_entropy"), dict(type="SGD", lr=0.1))
    session.step(batches(1)[0])
    child = os.fork()
    if not child:
        try:
            session.step(batches(1)[0])
        except weft.Error as e:
            os._exit(0 if "forked" in str(e) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    data = [(x[0], y[0]) for x, y in batches(24)]
    loader = torch.utils.data.DataLoader(data, batch_size=6, num_workers=2, multiprocessing_context="fork")
    losses = [session.step(batch) for batch in loader]
    assert len(losses) == 4 and all(np.isfinite(losses))


def test_sessions_of_two_threads_step_at_once():
    programs = [weft.export(Net(), batches(1)[0], loss="cross_entropy") for _ in range(2)]
    alone = []
    for p in programs:
        session = weft.Session(p, dict(type="AdamW", lr=1e-2), threads=1)
        alone.append([session.step(b) for b in batches(40)])
    sessions, together = [weft.Session(p, dict(type="AdamW", lr=1e-2), threads=1) for p in programs], [None, None]

    def work(i):
        together[i] = [sessions[i].step(b) for b in batches(40)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


LOOP = """
import sys, torch, torch.nn as nn, weft
model = nn.Linear(64, 64)
x = torch.randn(64, 64)
session = weft.Session(weft.export(model, (x, x), loss="mse"), dict(type="SGD", lr=1e-3))
print("ready", flush=True)
try:
    while True:
        session.step((x, x))
except KeyboardInterrupt:
    print("stopped after", session.steps > 0, torch.isfinite(session.state_dict()["weight"]).all().item(), flush=True)
"""
COMPILE = """
import torch, torch.nn as nn, weft
model = nn.Sequential(*[m for i in range(60) for m in (nn.Linear(16 + i, 17 + i), nn.Tanh())])
x, y = torch.randn(4, 16), torch.randn(4, 76)
program = weft.export(model, (x, y), loss="mse")
print("ready", flush=True)
try:
    weft.Session(program, dict(type="SGD", lr=1e-3), cache=False)
    print("compiled", flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
    print(weft.Session(weft.export(nn.Linear(4, 4), (x[:, :4].contiguous(),) * 2, loss="mse"), dict(type="SGD", lr=1)).step((x[:, :4].contiguous(),) * 2) > 0)
"""


def interrupted(script, after):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
    p = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert p.stdout.readline().strip() == "ready"
    time.sleep(after)
    p.send_signal(signal.SIGINT)
    sent = time.monotonic()
    said = p.communicate(timeout=120)[0].split("\n")
    return said, time.monotonic() - sent, p.returncode


def test_ctrl_c_ends_a_loop_and_a_compilation():
    said, _, code = interrupted(LOOP, 0.5)
    assert said[0] == "stopped after True True" and code == 0, (said, code)
    said, _, code = interrupted(COMPILE, 0.3)
    assert said[:2] == ["stopped", "True"] and code == 0, (said, code)


run(globals())
