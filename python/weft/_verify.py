"""verify: the user's own model trained for some steps by Weft and by PyTorch, quantity by quantity. PyTorch runs it in float32 and in
float64: their difference says how far rounding alone carries, and sets the tolerances, as tools/record.py has it."""
from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Iterable

from ._lib import Error
from ._program import export
from ._session import Session

RTOL = 1e-4  # of every quantity, unless float32 itself is farther from float64 than a tenth of it


@dataclass
class Row:
    """One kind of quantity: its largest error, where, and what is allowed. Errors are max|a-b| / max(max|a|, max|b|, M/100) of a tensor, M
    the largest value of its kind."""

    what: str
    tensors: int
    error: float
    tolerance: float
    worst: str

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance


@dataclass
class Verdict:
    """What verify found: its rows, and ok when all are within tolerance. str() is the table."""

    rows: list[Row] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(r.ok for r in self.rows)

    def __str__(self) -> str:
        lines = [f"{'quantity':<24} {'tensors':>7} {'largest error':>14} {'tolerance':>10}      where"]
        lines += [f"{r.what:<24} {r.tensors:>7} {r.error:>14.2e} {r.tolerance:>10.1e}  {'ok  ' if r.ok else 'FAIL'} {r.worst}" for r in self.rows]
        return "\n".join(lines)


def _distance(a: Any, b: Any, scale: float) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.is_floating_point():
        return 0.0 if bool((a == b).all()) else float("inf")
    a, b = a.double(), b.double()
    most = max(a.abs().max().item(), b.abs().max().item(), 0.01 * scale) if a.numel() else 0.0
    error = (a - b).abs().max().item() / most if most else 0.0
    return error if error == error else float("inf")


def _worst(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float, str]:
    scale = max((v.abs().max().item() for v in a.values() if v.is_floating_point() and v.numel()), default=0.0)
    return max(((_distance(a[k], b[k], scale), k) for k in a), default=(0.0, ""))


def _loss(name: str, options: Mapping[str, Any], result: Any, target: Any) -> Any:
    import torch.nn.functional as F
    functions = {"cross_entropy": F.cross_entropy, "nll": F.nll_loss, "mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss,
                 "huber": F.huber_loss, "bce": F.binary_cross_entropy, "bce_with_logits": F.binary_cross_entropy_with_logits, "kl_div": F.kl_div}
    options = {k: v for k, v in options.items() if k != "target"}
    return functions[name](_first(result), target, **options)


class _Torch:
    """The same training in PyTorch, in one precision."""

    def __init__(self, model: Any, optimizer: Any, double: bool):
        self.model = copy.deepcopy(model)
        names = {id(p): n for n, p in model.named_parameters()}
        if double:
            self.model.double()
        own = dict(self.model.named_parameters())
        groups = [{**{k: v for k, v in g.items() if k not in ("params", "param_names")}, "params": [own[names[id(p)]] for p in g["params"]]}
                  for g in optimizer.param_groups]
        self.optimizer = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k in type(optimizer).__init__.__code__.co_varnames})
        self.double = double
        self.losses: list[float] = []

    def step(self, batch: Any, loss: str | None, options: Mapping[str, Any]) -> None:
        batch = {k: self.cast(v) for k, v in batch.items()} if isinstance(batch, Mapping) else [self.cast(v) for v in batch]
        target = None
        if loss is not None and isinstance(batch, dict):
            target = batch.pop(list(batch)[-1])
        elif loss is not None:
            *batch, target = batch
        self.optimizer.zero_grad()
        result = self.model(**batch) if isinstance(batch, dict) else self.model(*batch)
        value = _loss(loss, options, result, target) if loss is not None else _first(result)
        value.backward()
        if not self.losses:
            self.gradients = {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
        self.optimizer.step()
        self.losses.append(value.detach())

    def cast(self, x: Any) -> Any:
        return x.double() if self.double and x.is_floating_point() else x

    def weights(self) -> dict[str, Any]:
        return {n: p.detach().clone() for n, p in self.model.named_parameters() if p.requires_grad}

    def buffers(self) -> dict[str, Any]:
        kept = self.model.state_dict()
        return {n: b.detach().clone() for n, b in self.model.named_buffers() if n in kept}


def _first(result: Any) -> Any:
    """The first tensor of what a model returns, also of Hugging Face's outputs."""
    import torch
    return torch.utils._pytree.tree_leaves(result)[0]


def verify(model: Any, batches: Iterable[Any], optimizer: Any, loss: str | None = None, *, steps: int = 5, dynamic_shapes: Any = None,
           **options: Any) -> Verdict:
    """Trains a copy of the model for some steps with Weft and with PyTorch, and compares.

    model      as of weft.export; neither it nor the optimiser is changed
    batches    tuples or dicts of tensors; steps take them in turn
    optimizer  a torch.optim optimiser over the model's parameters, without state
    loss       as of weft.export; label_smoothing and the like are options
    steps      how many (5)
    dynamic_shapes  as of weft.export, for batches of different sizes

    Returns a Verdict: losses, gradients of the first step, weights and buffers after the first and the last; print it. Raises Error for what
    Weft cannot train, and for a model that draws random numbers, which PyTorch draws otherwise."""
    import torch
    random = [n for n, m in model.named_modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0]
    if random:
        raise Error(f"{random[0]} draws random numbers, and Weft's are others than PyTorch's, so that nothing can be compared",
                    hint="Set its p to 0 for the comparison.")
    if not hasattr(optimizer, "param_groups"):
        raise Error(f"the optimiser is a {type(optimizer).__name__}, and PyTorch trains with it, too",
                    hint="Give one of torch.optim over the model's parameters.")
    if optimizer.state_dict()["state"]:
        raise Error("the optimiser has state, with which the comparison cannot begin", hint="Give a new one over the same parameters.")
    batches = [tuple(b) if isinstance(b, list) else b if isinstance(b, (tuple, Mapping)) else (b,) for b in batches]
    if not batches or steps < 1:
        raise Error("there is nothing to compare: give batches and at least one step")
    runs = [_Torch(model, optimizer, False), _Torch(model, optimizer, True)]
    session = Session(export(model, batches[0], loss, dynamic_shapes=dynamic_shapes, **options), optimizer, ranks=False)
    losses, taken, weft = [], {}, {}
    for t in range(steps):
        batch = batches[t % len(batches)]
        for r in runs:
            r.step(batch, loss, options)
        losses.append(torch.tensor(session.step(batch)))
        if t == 0:
            weft["gradients"] = {n: session.gradient(n).clone() for n in runs[0].gradients}
            taken["gradients"] = [r.gradients for r in runs]
        if t + 1 in (1, steps):
            now = {n: v.clone() for n, v in session.state_dict().items()}
            after = f" after step {t + 1}"
            taken["weights" + after], taken["buffers" + after] = [r.weights() for r in runs], [r.buffers() for r in runs]
            weft["weights" + after] = {n: now[n] for n in taken["weights" + after][0]}
            weft["buffers" + after] = {n: now[n] for n in taken["buffers" + after][0]}
    taken["losses"] = [{f"step {i + 1}": v for i, v in enumerate(r.losses)} for r in runs]
    weft["losses"] = {f"step {i + 1}": v for i, v in enumerate(losses)}
    verdict = Verdict()
    for what in ["losses", *[k for k in taken if k != "losses"]]:
        single, double = taken[what]
        if single:
            rounding, _ = _worst(single, double)
            error, where = _worst(single, weft[what])
            verdict.rows.append(Row(what, len(single), error, max(RTOL, 10 * rounding), where))
    session.close()
    return verdict
