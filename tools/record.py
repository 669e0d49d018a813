#!/usr/bin/env python3
"""Record a PyTorch training run as a case folder that `weft verify` replays.

As a command (needs torch and safetensors):

    python tools/record.py model.py:factory OUT --steps 5 --clip-norm 1.0

where factory() returns (module, batches, optimizer). As a library:

    record(module, batches, optimizer, "OUT", clip_norm=1.0)

module     forward(*batch) returns the loss, or a structure whose first leaf is the loss.
batches    one batch (a tuple or dict of tensors; used in every step), a list of batches, or a function of the step
           (from 0). With accumulate=M or ranks=R each step takes M or R batches: a list of lists, or a function of
           (step, part).
optimizer  an optimiser over the module's parameters, or a function that makes one from them.

The module and the optimiser are copied, never changed. The run is made twice, in float32 and in float64: their
difference says how far rounding alone carries, and sets the tolerances. docs/cases.md describes the folder.
"""
import argparse
import copy
import importlib.util
import inspect
import io
import json
import os
import re
import sys
import zipfile

import torch
import torch.utils._pytree as pytree
from safetensors.torch import save_file

RTOL = 1e-4  # of every quantity, unless float32 itself is farther from float64 than a tenth of it
RTOL64 = 1e-12  # of modules in float64, whose rounding is 1e-16
METRIC = ("max|a-b| / max(max|a|, max|b|, 0.01*M) per tensor, "
          "M = largest |value| over all tensors of the group (grad.*, param1.*, param5.*, buffer5.*, ...)")
OPTIMIZERS = {
    "SGD": ["momentum", "dampening", "nesterov", "weight_decay", "maximize"],
    "Adam": ["amsgrad", "weight_decay", "maximize", "betas", "eps"],
    "AdamW": ["amsgrad", "weight_decay", "maximize", "betas", "eps"],
    "RMSprop": ["alpha", "eps", "momentum", "centered", "weight_decay", "maximize"],
    "Adagrad": ["lr_decay", "eps", "weight_decay", "initial_accumulator_value", "maximize"],
}


# ---- the module and its optimiser, taken apart by name ----

def tied_groups(module):
    """Names of parameters that are one tensor, first name first."""
    names = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def hyperparameters(kind, group):
    plain = lambda v: v.item() if isinstance(v, torch.Tensor) else list(map(plain, v)) if isinstance(v, tuple) else v
    return {k: plain(group[k]) for k in ["lr"] + OPTIMIZERS[kind]}


def optimizer_plan(module, optimizer):
    """(class, [(names, hyperparameters)]) of an optimiser over the module's parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(module.parameters())
    kind = type(optimizer).__name__
    if kind not in OPTIMIZERS:
        raise SystemExit(f"record: optimiser {kind} is not one of {', '.join(OPTIMIZERS)}")
    decoupled = {bool(g.get("decoupled_weight_decay")) for g in optimizer.param_groups} if kind == "Adam" else {False}
    if len(decoupled) > 1:
        raise SystemExit("record: decoupled_weight_decay must be the same in all groups: it makes an AdamW of an Adam")
    made = torch.optim.AdamW if decoupled == {True} else type(optimizer)
    names = {id(p): name for name, p in module.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        unknown = [p for p in group["params"] if id(p) not in names]
        if unknown:
            raise SystemExit("record: the optimiser holds a tensor that is no parameter of the module")
        hyper = hyperparameters(kind, group)
        if kind == "Adagrad":
            hyper["initial_accumulator_value"] = optimizer.defaults["initial_accumulator_value"]
        groups.append(([names[id(p)] for p in group["params"]], hyper))
    held = {n for of_group, _ in groups for n in of_group}
    outside = [n for n, p in module.named_parameters() if p.requires_grad and n not in held]
    if outside:  # never updated, though clipping counts their gradients
        groups.append((outside, {**groups[0][1], "lr": 0.0}))
    return made, groups


def make_optimizer(plan, module):
    kind, groups = plan
    parameters = dict(module.named_parameters())
    proper = lambda hyper: {k: tuple(v) if isinstance(v, list) else v for k, v in hyper.items()}
    # Adagrad fills its state while it is made, from the general value, whatever the groups say
    return kind([{"params": [parameters[n] for n in names], **proper(hyper)} for names, hyper in groups],
                **proper(groups[0][1]))


# ---- batches ----

def is_batch(b):
    values = b.values() if isinstance(b, dict) else b if isinstance(b, tuple) else ()
    return bool(values) and all(isinstance(v, torch.Tensor) for v in values)


def pick_batch(batches, step, part, parts):
    if callable(batches):
        return batches(step, part) if parts > 1 else batches(step)
    if is_batch(batches):
        return batches
    of_step = batches[step % len(batches)]
    return of_step[part] if parts > 1 else of_step


def by_name(module, batch):
    """The batch as a dict in the calling order of forward."""
    if not is_batch(batch):
        raise SystemExit("record: a batch must be a tuple or a dict of tensors")
    names = list(inspect.signature(module.forward).parameters)
    if isinstance(batch, dict):
        return {n: batch[n] for n in names if n in batch}
    if len(names) < len(batch):
        raise SystemExit(f"record: forward takes {len(names)} inputs, the batch has {len(batch)}")
    return dict(zip(names, batch))


def batch_table(module, batches, steps, parts):
    """All batches, made once (a function of the step may draw random numbers), as a function of (step, part); and
    whether they are given by keyword."""
    raw = [[pick_batch(batches, step, part, parts) for part in range(parts)] for step in range(max(steps, 1))]
    table = [[by_name(module, b) for b in row] for row in raw]
    return (lambda step, part: table[step][part]), isinstance(raw[0][0], dict)


def to_double(tensors):
    return {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}


def module_to_double(module):
    """module.double() makes every buffer anew, also one that stands under several names: those are one again."""
    first = {}
    same = [(m, name, first.setdefault(id(b), (m, name))) for m in module.modules() for name, b in m._buffers.items()
            if b is not None]
    module.double()
    for m, name, (of, under) in same:
        m._buffers[name] = of._buffers[under]


def tensors(kind, leaves):
    """Output leaves by name and number; those that are no tensors (None, numbers) count but have no value."""
    return {f"{kind}.{i}": t.detach().clone() for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)}


# ---- one run ----

class Run:
    """Trains copies of the module for some steps and keeps what a case records."""

    def __init__(self, module, plan, batch, *, steps, clip_norm, accumulate, ranks, scheduler, double):
        self.modules = [copy.deepcopy(module) for _ in range(ranks)]
        if double:
            for m in self.modules:
                module_to_double(m)
        self.plan = plan
        self.frozen = {n: p.detach().clone() for n, p in self.modules[0].named_parameters() if not p.requires_grad}
        self.optimizers = [make_optimizer(plan, m) for m in self.modules]
        self.schedulers = [scheduler(o) for o in self.optimizers] if scheduler else []
        self.batch, self.double = batch, double
        self.clip_norm, self.accumulate, self.ranks, self.steps = clip_norm, accumulate, ranks, steps
        self.values, self.rates, self.no_grad = {}, [], []
        self.losses = [[] for _ in range(ranks)]
        self.micro, self.norms = [], []
        for step in range(steps):
            self.one_step(step)
        self.finish()

    def forward(self, rank, step, part):
        m = self.modules[rank]
        inputs = self.batch(step, part)
        if self.double:
            inputs = to_double(inputs)
        leaves = pytree.tree_leaves(m(**inputs))
        if not leaves or leaves[0].numel() != 1:
            raise SystemExit("record: the first output of forward must be the loss, one number")
        return leaves

    def one_step(self, step):
        for o in self.optimizers:
            o.zero_grad()
        if self.ranks > 1 and step > 0:
            self.share_buffers()
        micro = []
        for rank in range(self.ranks):
            for part in range(self.accumulate):
                leaves = self.forward(rank, step, rank if self.ranks > 1 else part)
                (leaves[0] / self.accumulate).backward()
                micro.append(leaves[0].detach())
                if step == 0 and part == 0:
                    suffix = f".rank{rank}" if self.ranks > 1 else ""
                    self.values.update({f"{name}{suffix}": leaf for name, leaf in tensors("out", leaves).items() if name != "out.0"})
            self.losses[rank].append(torch.stack(micro[-self.accumulate:]).mean())
        self.micro.append(torch.stack(micro))
        self.reduce()
        first = dict(self.modules[0].named_parameters())
        if step == 0:
            self.no_grad = [n for n, p in first.items() if p.requires_grad and p.grad is None]
            self.values.update({f"grad.{n}": p.grad.clone() for n, p in first.items() if p.grad is not None})
        self.rates.append(self.optimizers[0].param_groups[0]["lr"])
        for m, o in zip(self.modules, self.optimizers):
            if self.clip_norm:
                norm = torch.nn.utils.clip_grad_norm_(m.parameters(), self.clip_norm)
            o.step()
        if self.clip_norm:
            self.norms.append(norm.detach())
        for s in self.schedulers:
            s.step()
        for group, (_, hyper) in zip(self.optimizers[0].param_groups, self.plan[1]):
            now = hyperparameters(self.plan[0].__name__, group)
            changed = [k for k in hyper if k in now and k != "lr" and now[k] != hyper[k]]
            if changed:
                raise SystemExit(f"record: the scheduler changes {changed[0]}, a case holds schedules of lr only "
                                 "(OneCycleLR: cycle_momentum=False)")
        if step + 1 in (1, self.steps):
            self.keep(step + 1)

    def share_buffers(self):
        """As DistributedDataParallel: before a forward every rank gets the buffers of rank 0."""
        for m in self.modules[1:]:
            for b, source in zip(m.buffers(), self.modules[0].buffers()):
                b.data.copy_(source)

    def reduce(self):
        """Gradients become their mean over the ranks, added in the order of the ranks."""
        if self.ranks == 1:
            return
        for same in zip(*(m.parameters() for m in self.modules)):
            if same[0].grad is None:
                continue
            total = same[0].grad.clone()
            for p in same[1:]:
                total += p.grad
            for p in same:
                p.grad.copy_(total / self.ranks)

    def keep(self, step):
        for n, p in self.modules[0].named_parameters():
            if p.requires_grad or not torch.equal(p, self.frozen[n]):
                self.values[f"param{step}.{n}"] = p.detach().clone()
        for rank, m in enumerate(self.modules):
            rank_name = f"rank{rank}." if self.ranks > 1 else ""
            for n, b in m.named_buffers():
                self.values[f"buffer{step}.{rank_name}{n}"] = b.detach().clone()

    def finish(self):
        per_rank = [torch.stack(l) for l in self.losses] if self.steps else [torch.zeros(0)]
        self.values["loss"] = torch.stack(per_rank).mean(0)
        if self.ranks > 1:
            self.values.update({f"loss.rank{r}": l for r, l in enumerate(per_rank)})
        if self.accumulate > 1:
            self.values["loss_micro"] = torch.stack(self.micro)
        if self.clip_norm:
            self.values["grad_norm"] = torch.stack(self.norms)


# ---- float32 against float64 ----

def group_of(name):
    """The comparison group of a recorded tensor: grad, param1, param5, buffer1, out, loss, ..."""
    return name.split(".")[0]


def finite(t):
    """The largest magnitude among finite elements."""
    return torch.where(t.isfinite(), t, 0.0).abs().max().item()


def differences(a, b):
    """Relative difference of every floating tensor, by the metric of the case."""
    largest = {}
    for name, t in b.items():
        if t.is_floating_point() and t.numel():
            largest[group_of(name)] = max(largest.get(group_of(name), 0.0), finite(t))
    result = {}
    for name, t in b.items():
        if not t.is_floating_point() or not t.numel():
            continue
        x, y = a[name].double(), t.double()
        same = (x == y) | (x.isnan() & y.isnan())
        if not (x.isfinite() & y.isfinite() | same).all():
            raise SystemExit(f"record: {name} is finite only in one of float32 and float64: no tolerance can be set")
        scale = max(finite(x), finite(y), 0.01 * largest[group_of(name)])
        result[name] = finite(torch.where(same, 0.0, x - y)) / scale if scale else 0.0
    return result


def worst_by_group(diffs):
    most, where = {}, {}
    for name, d in diffs.items():
        g = group_of(name)
        if g not in most or d > most[g]:
            most[g], where[g] = d, name
    return most, where


def judge(case, single, double, initial):
    """Fills in the float64 comparison, the unstable parameters and the tolerances of the case."""
    diffs = differences(single.values, double.values)
    most, where = worst_by_group(diffs)
    case["f32_vs_f64_maxrel"], case["f32_vs_f64_worst"] = most, where
    last = f"param{single.steps}."
    plain = lambda n: re.sub(r"^rank\d+\.", "", n.split(".", 1)[1])  # ranks' buffers are unstable together
    loose = lambda kind: sorted({plain(n) for n, d in diffs.items() if n.startswith(kind) and d > RTOL})
    case["unstable_params"] = [{
        "param": n,
        "f32_vs_f64_abs": finite(single.values[last + n].double() - double.values[last + n]),
        "update_abs": finite(double.values[last + n] - initial[n].double()),
    } for n in loose("param")]
    if loose("buffer"):  # they follow an unstable parameter: a running mean behind a bias, say
        case["unstable_buffers"] = loose("buffer")
    single_precision = any(v.dtype != torch.float64 for n, v in single.values.items() if n.startswith(last))
    floor = RTOL if single_precision else RTOL64
    unstable = {("param", n) for n in loose("param")} | {("buffer", n) for n in loose("buffer")}
    calm = {n: d for n, d in diffs.items() if (group_of(n).rstrip("0123456789"), plain(n) if "." in n else n) not in unstable}
    calm_most, _ = worst_by_group(calm)
    bound = lambda groups: max([floor] + [10 * d for g, d in calm_most.items() if g.startswith(groups)])
    case["tolerance"] = {"loss_rtol": bound("loss"), "grad_rtol": bound(("grad", "out")),
                         "param_rtol": bound(("param", "buffer")), "metric": METRIC}


# ---- the evaluation form ----

def evaluation_form(program):
    """The module of an exported program with the flags of training off, as move_exported_model_to_eval (torchao) has it:
    dropout is the identity, batch norms read their running statistics. Also the flags of RNNs and of attention's dropout."""
    module = program.module()
    for inner in [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in inner.graph.nodes:
            schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
            if schema is None:
                continue
            names = [a.name for a in schema.arguments]
            given = dict(zip(names, node.args)) | node.kwargs
            if "momentum" in names and given.get("running_mean") is None:
                continue  # no running statistics: those of the batch, in either form
            for name in names:
                if name in ("train", "training") or name == "dropout_p":
                    off = 0.0 if name == "dropout_p" else False
                    if names.index(name) < len(node.args):
                        node.update_arg(names.index(name), off)
                    elif name in node.kwargs:
                        node.update_kwarg(name, off)
        inner.recompile()
    return module


def evaluate(path, case, values, batch):
    """eval.{i} of a case: what the export at `path` computes in its evaluation form for a batch, with the recorded
    parameters and buffers of the last step."""
    program = torch.export.load(path)
    module = evaluation_form(program)
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    same = {n: group for group in case["tied"] for n in group}
    with torch.no_grad():
        for key, v in values.items():
            kind, _, name = key.partition(".")
            if kind in (f"param{case['steps']}", f"buffer{case['steps']}"):
                for n in same.get(name, [name]):
                    if n in state:  # a non-persistent buffer is a constant of the export
                        state[n].data = v.clone()  # not copied into: the export may share or expand its memory
        args, kwargs = program.example_inputs
        names = [i["name"] for i in case["inputs"]]
        leaves = pytree.tree_leaves(module(*[batch[n] for n in names[:len(args)]], **{n: batch[n] for n in kwargs}))
    return tensors("eval", leaves)


# ---- the folder ----

def without_machine(path, roots=None):
    """Rewrites an export so that the files in its stack traces are named from the working directory or from where Python
    found the module (`roots`: other such folders), anything else by its last name: a case says nothing of its machine."""
    if roots is None:
        here = os.getcwd()
        found = [os.path.abspath(p) for p in sys.path if p]
        found = [here] + [p for p in found if not p.startswith(here + "/") or "site-packages" in p]
        roots = found + [os.path.realpath(p) for p in found]
    roots = sorted({r.rstrip("/").encode() + b"/" for r in roots if r.rstrip("/")}, key=len, reverse=True)

    def named(m):
        root = next((r for r in roots if m[2].startswith(r)), m[2][:m[2].rfind(b"/") + 1])
        return m[1] + m[2][len(root):]

    whole = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(whole, "w") as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith(".json"):
                data = re.sub(rb'(File \\+")(/[^"\\]*)', named, data)
            entry = zipfile.ZipInfo(member.filename, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = member.compress_type
            gap = -(whole.tell() + 30 + len(member.filename.encode()) + 4) % 64  # torch.export aligns data to 64 bytes
            entry.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap
            new.writestr(entry, data)
    with open(path, "wb") as f:
        f.write(whole.getvalue())


def describe(shape, dims):
    return [dims.get(i, s) for i, s in enumerate(shape)]


def dynamic_names(dynamic_shapes, inputs):
    """{input: {dimension: name}} and {name: {min, max}} of torch.export's dynamic_shapes."""
    names, ranges = {}, {}
    for key, spec in zip(inputs, dynamic_shapes.values() if isinstance(dynamic_shapes, dict) else dynamic_shapes or []):
        for i, d in (spec.items() if isinstance(spec, dict) else enumerate(spec or [])):
            if isinstance(d, int) or d is None:
                continue
            label = getattr(d, "__name__", str(d))
            names.setdefault(key, {})[i] = label
            high = getattr(d, "max", None)
            ranges[label] = {"min": getattr(d, "min", 0) or 0, "max": high if high and high < 2**31 else None}
    return names, ranges


def write_optimizer(case, plan, rates):
    kind, groups = plan
    first = groups[0][1]
    case["optimizer"] = {**{k: v for k, v in first.items() if k != "lr"}, "type": kind.__name__, "lr": first["lr"]}
    if len(groups) > 1:
        case["param_groups"] = [{"params": names, **{k: v for k, v in hyper.items() if v != first[k]}}
                                for names, hyper in groups]
    if any(r != first["lr"] for r in rates):
        case["lr_per_step"] = rates


def record(module, batches, optimizer, folder, *, steps=5, name=None, clip_norm=None, accumulate=1, ranks=1,
           scheduler=None, dynamic_shapes=None, notes=None, label="user"):
    """Records `steps` steps into `folder` and returns the case as a dict. scheduler: a function of an optimiser that
    makes an LRScheduler, stepped once a step. accumulate and ranks exclude each other."""
    if accumulate > 1 and ranks > 1:
        raise SystemExit("record: accumulate and ranks cannot be combined")
    if steps < 0 or accumulate < 1 or ranks < 1:
        raise SystemExit("record: steps, accumulate and ranks must be positive")
    module = copy.deepcopy(module) if not isinstance(optimizer, torch.optim.Optimizer) else module
    plan = optimizer_plan(module, optimizer)
    module = copy.deepcopy(module).train()
    module.zero_grad()
    batch, by_keyword = batch_table(module, batches, steps, max(accumulate, ranks))
    initial = {n: p.detach().clone() for n, p in module.named_parameters()}
    options = dict(steps=steps, clip_norm=clip_norm, accumulate=accumulate, ranks=ranks, scheduler=scheduler)
    single = Run(module, plan, batch, double=False, **options)

    os.makedirs(folder, exist_ok=True)
    first = batch(0, 0)
    args, kwargs = ((), first) if by_keyword else (tuple(first.values()), {})
    exported = torch.export.export(copy.deepcopy(module), args, kwargs, dynamic_shapes=dynamic_shapes)
    model_path = os.path.join(folder, "model.pt2")
    torch.export.save(exported, model_path)
    without_machine(model_path)
    leaves = pytree.tree_leaves(copy.deepcopy(module)(**first))
    again = pytree.tree_leaves(torch.export.load(model_path).module()(*args, **kwargs))
    reload = differences(tensors("out", again), tensors("out", leaves))

    dim_names, ranges = dynamic_names(dynamic_shapes, list(first))
    parameters = dict(module.named_parameters())
    case = {
        "name": name or os.path.basename(os.path.normpath(folder)), "format": 1, "set": label,
        "torch_version": torch.__version__, "ir": "training", "model": "model.pt2", "steps": steps,
        "inputs": [{"name": n, "dtype": str(t.dtype).removeprefix("torch."),
                    "shape": describe(t.shape, dim_names.get(n, {}))} for n, t in first.items()],
        "loss": {"output": 0},
    }
    strides = {n: list(t.stride()) for n, t in first.items() if not t.is_contiguous()}
    if strides:
        case["input_strides"] = strides
    write_optimizer(case, plan, single.rates)
    case["trainable"] = [n for n, p in parameters.items() if p.requires_grad]
    case["frozen"] = [n for n, p in parameters.items() if not p.requires_grad]
    case["no_grad_params"] = single.no_grad
    case["tied"] = tied_groups(module)
    case["buffers"] = [n for n, _ in module.named_buffers()]
    if clip_norm:
        case["grad_clip_norm"] = clip_norm
    if accumulate > 1:
        case["grad_accumulation"] = accumulate
    if ranks > 1:
        case["data_parallel"] = ranks
    if ranges:
        case["dims"] = ranges
    case["tolerance"] = {"loss_rtol": RTOL, "grad_rtol": RTOL, "param_rtol": RTOL, "metric": METRIC}
    case["unstable_params"] = []
    try:
        judge(case, single, Run(module, plan, batch, double=True, **options), initial)
    except (RuntimeError, TypeError) as e:
        notes = " ".join(filter(None, [notes, f"No float64 reference: {str(e).splitlines()[0]}"]))
    if notes:
        case["notes"] = notes
    case["reload_maxrel"] = max(reload.values(), default=0.0)

    if ranks == 1:
        single.values.update(evaluate(model_path, case, single.values, first))
    save_file(recorded_inputs(batch, steps, accumulate, ranks), os.path.join(folder, "inputs.safetensors"))
    save_file({k: v.contiguous().cpu() for k, v in single.values.items()},
              os.path.join(folder, "expected.safetensors"))
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump(case, f, indent=1)
    return case


def recorded_inputs(batch, steps, accumulate, ranks):
    result = {}
    for step in range(max(steps, 1)):
        for part in range(max(accumulate, ranks)):
            prefix = f"step{step + 1}."
            prefix += f"rank{part}." if ranks > 1 else f"micro{part}." if accumulate > 1 else ""
            for n, t in batch(step, part).items():
                result[prefix + n] = t.detach().contiguous().clone()
    return result


def load_factory(where):
    path, _, function = where.partition(":")
    if not function:
        raise SystemExit("record: write file.py:factory")
    spec = importlib.util.spec_from_file_location("recorded", path)
    if spec is None or not os.path.exists(path):
        raise SystemExit(f"record: {path} is not there")
    source = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(source)
    if not hasattr(source, function):
        raise SystemExit(f"record: {path} has no function {function}")
    return getattr(source, function)


def main():
    p = argparse.ArgumentParser(description="Record a PyTorch training run as a case folder for `weft verify`.",
                                epilog="example: python tools/record.py model.py:factory case/ --steps 5")
    p.add_argument("factory", help="file.py:function; the function returns (module, batches, optimizer)")
    p.add_argument("folder")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--seed", type=int, default=0, help="of torch, before the factory is called")
    p.add_argument("--clip-norm", type=float)
    p.add_argument("--accumulate", type=int, default=1, metavar="M", help="micro-batches in a step")
    p.add_argument("--ranks", type=int, default=1, metavar="R", help="data-parallel ranks, simulated one by one")
    p.add_argument("--notes")
    a = p.parse_args()
    torch.manual_seed(a.seed)
    module, batches, optimizer = load_factory(a.factory)()
    case = record(module, batches, optimizer, a.folder, steps=a.steps, clip_norm=a.clip_norm, accumulate=a.accumulate,
                  ranks=a.ranks, notes=a.notes)
    print(f"{a.folder}: {len(case['trainable'])} parameters, {case['steps']} steps; float32 is "
          f"{case.get('f32_vs_f64_maxrel', {}).get('grad', float('nan')):.1e} from float64 in the gradients, "
          f"{len(case['unstable_params'])} unstable parameter(s)\nnext: weft verify {a.folder}")


if __name__ == "__main__":
    main()
