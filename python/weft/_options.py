"""Options of weft.h from Python values: keyword arguments, optimisers as dicts and of torch.optim, schedules."""
from __future__ import annotations

from typing import Any, Iterable, Mapping

from ._lib import Error

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")
# What torch.optim's groups hold that says how it computes, not what.
_HOW = {"lr", "foreach", "capturable", "differentiable", "fused"}
_OF = {"SGD": {"weight_decay", "momentum", "dampening", "nesterov", "maximize"},
       "Adam": {"betas", "eps", "weight_decay", "amsgrad", "maximize"}, "AdamW": {"betas", "eps", "weight_decay", "amsgrad", "maximize"},
       "RMSprop": {"alpha", "eps", "weight_decay", "momentum", "centered", "maximize"},
       "Adagrad": {"lr_decay", "eps", "weight_decay", "initial_accumulator_value", "maximize"}}

Options = list[tuple[str, str]]


def text(value: Any, separator: str = ",") -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return separator.join(text(v) for v in value)
    if hasattr(value, "tolist"):  # of torch or numpy
        return text(value.tolist())
    return repr(value) if isinstance(value, float) else str(value)


def of_keywords(options: Mapping[str, Any]) -> Options:
    """batch_size=8 as ("batch-size", "8"); None is left out; a list of texts is an option that is repeated."""
    out: Options = []
    for name, value in options.items():
        name = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            out += [(name, v) for v in value]
        else:
            out.append((name, text(value)))
    return out


def kind_of(name: str) -> str:
    for kind in OPTIMIZERS:
        if kind.lower() == name.lower():
            return kind
    raise Error(f"Weft has no optimiser {name}", status="unsupported model", hint="It has " + ", ".join(OPTIMIZERS) + ".")


def _literal(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _values(hyper: Mapping[str, Any]) -> str:
    return ",".join(f"{k.replace('_', '-')}={text(v, '/')}" for k, v in hyper.items())


def of_dict(given: Mapping[str, Any]) -> Options:
    """dict(type="AdamW", lr=1e-3, param_groups=[dict(params=["*.bias"], weight_decay=0)]): a case's (docs/cases.md)."""
    rest = dict(given)
    if "type" not in rest:
        raise Error("the optimiser's dict has no type", hint='Write dict(type="AdamW", lr=1e-3); types are ' + ", ".join(OPTIMIZERS) + ".")
    kind, groups = kind_of(rest.pop("type")), rest.pop("param_groups", ())
    for name in rest:
        if name != "lr" and name not in _OF[kind]:
            raise Error(f"{kind} has no {name}", hint="It has lr, " + ", ".join(sorted(_OF[kind])) + ".")
    out = [("optimizer", kind.lower())] + [(k.replace("_", "-"), text(v)) for k, v in rest.items() if v is not None and v is not False]
    for group in groups:
        hyper = {k: v for k, v in group.items() if k != "params" and v is not None}
        out += [("param-group", f"{pattern}:{_values(hyper)}") for pattern in group["params"] if hyper]
    return out


def _kind_of_torch(optimizer: Any) -> str:
    import torch

    name = type(optimizer).__name__
    kind = kind_of(name)
    if getattr(torch.optim, name, None) is not type(optimizer):  # others have these names, too, and compute otherwise
        raise Error(f"the optimiser's class {type(optimizer).__module__}.{name} is not torch.optim's, and Weft does not know what its step does",
                    status="unsupported model", hint=f"Take torch.optim.{name}.")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise Error("the optimiser has hooks around its step, and a session never calls that step", status="unsupported model",
                    hint="Do what they do between the session's steps.")
    return kind


def of_torch(optimizer: Any, names: Mapping[int, str], trained: Iterable[str], rate: str = "lr") -> Options:
    """A torch.optim optimiser. names: of its parameters, by id; trained: those that require a gradient; rate: what a group calls its learning
    rate. The first group gives the general values, the others become groups of their parameters by name. Raises Error for an optimiser, a
    group or a parameter that Weft cannot have."""
    kind = _kind_of_torch(optimizer)
    groups, first, seen = optimizer.param_groups, None, set()
    if kind == "Adam" and any(g.get("decoupled_weight_decay") for g in groups):
        kind = "AdamW"
    out: Options = [("optimizer", kind.lower())]
    for number, group in enumerate(groups):
        for key, value in group.items():
            own = key in optimizer.defaults  # what is not was put there by a scheduler or by the user
            if own and key not in _HOW | _OF[kind] and value and key != "decoupled_weight_decay":
                raise Error(f"{type(optimizer).__name__}'s {key}={value} (group {number}) is not supported", status="unsupported model",
                            hint="Weft's has lr, " + ", ".join(sorted(_OF[kind])) + ".")
        hyper = {"lr": group.get(rate, group["lr"]), **{k: group[k] for k in sorted(_OF[kind]) if k in group}}
        if kind == "Adagrad":
            hyper["initial_accumulator_value"] = optimizer.defaults["initial_accumulator_value"]
        hyper = {k: v.item() if hasattr(v, "item") else v for k, v in hyper.items()}
        if first is None:
            first = hyper
            out += [(k.replace("_", "-"), text(v)) for k, v in hyper.items() if v is not False]
        different = {k: v for k, v in hyper.items() if v != first[k]}
        for p in group["params"]:
            if id(p) not in names:
                raise Error(f"the optimiser's group {number} holds a tensor of shape {tuple(p.shape)} that is no parameter of the model",
                            hint="Make the optimiser of the parameters of the model that was exported.")
            seen.add(names[id(p)])
            if different and p.requires_grad:
                out.append(("param-group", f"{_literal(names[id(p)])}:{_values(different)}"))
    left = [n for n in trained if n not in seen]
    if left:
        raise Error(f"the optimiser leaves out {', '.join(left[:5])}{', ..' if len(left) > 5 else ''}, which the model trains",
                    hint="Freeze them before the export: parameter.requires_grad_(False).")
    return out


def of_schedule(schedule: Any) -> Options:
    """"cosine" or dict(type="cosine", total_steps=1000, warmup_steps=10): the options of `weft train`."""
    if isinstance(schedule, str):
        return [("schedule", schedule)]
    rest = dict(schedule)
    if "type" not in rest:
        raise Error("the schedule's dict has no type",
                    hint='Write dict(type="cosine", total_steps=1000); types are constant, linear, cosine, step, one-cycle.')
    return [("schedule", rest.pop("type").replace("_", "-"))] + of_keywords(rest)
