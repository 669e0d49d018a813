#!/usr/bin/env python3
"""Checkpoints of PyTorch to what Weft reads, and back. Needs torch and safetensors.

    python tools/state.py to-weft  MODEL.pt2 --state model.pt --weights w.safetensors \\
                                   [--optimizer optim.pt --optimizer-state o.safetensors] [--names FILE] [--step N]
    python tools/state.py to-torch MODEL.pt2 --weights w.safetensors --state model.pt \\
                                   [--optimizer-state o.safetensors --like fresh.pt --optimizer optim.pt] [--names FILE]

model.pt holds module.state_dict(), optim.pt and fresh.pt optimizer.state_dict(). FILE:KEY takes one entry of a file that
holds a dict (ckpt.pt:model_state_dict). Files are loaded with weights_only=True.

An optimiser's state knows its parameters by number. Their names are, in this order of preference: those of --names (one a
line, in the optimiser's order); those that the state holds itself (an optimiser made from named_parameters()); and the
parameters of the export, all or the trainable ones, in its order, when there is one group. SGD does not count its steps:
--step says how many there were (it matters to the schedule).

fresh.pt is the state of a new optimiser over the module (torch.save(optimizer.state_dict(), "fresh.pt")): its groups and
their hyperparameters go into optim.pt. In a program with the optimiser at hand, save_optimizer and load_optimizer do the
same without files in between.
"""
import argparse
import json
import pathlib
import sys
import zipfile

import torch
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python/weft"))  # the one file of the package that needs no libweft
from _exchange import optimizer_from_weft, optimizer_to_weft

PREFIXES = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put in front


def fail(message):
    raise SystemExit(f"state: {message}")


# ---- the export's tables ----

def read_export(path):
    """[(names of one tensor, trainable)] of the export's parameters, in its order."""
    with zipfile.ZipFile(path) as z:
        tables = [n for n in z.namelist() if n.endswith("_weights_config.json")]
        if len(tables) != 1:
            fail(f"{path}: not an export of PyTorch 2.8 or later")
        config = json.loads(z.read(tables[0]))["config"]
    parameters = {}
    for name, entry in config.items():
        meta = entry["tensor_meta"]
        key = json.dumps([entry["path_name"], meta["storage_offset"], meta["sizes"], meta["strides"]])
        if entry["is_param"]:
            parameters.setdefault(key, ([], meta["requires_grad"]))[0].append(name)
    return list(parameters.values())


def load(spec):
    """The dict in FILE or FILE:KEY."""
    path, _, key = spec.partition(":")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if key:
        if not isinstance(content, dict) or key not in content:
            fail(f"{path} has no entry {key}; it holds {', '.join(map(str, list(content)[:20]))}")
        content = content[key]
    if not isinstance(content, dict):
        fail(f"{spec} holds a {type(content).__name__}, not a state_dict")
    return content


# ---- weights ----

def weights_to_weft(state):
    """A state_dict as tensors for a safetensors file."""
    for prefix in PREFIXES:
        if state and all(k.startswith(prefix) for k in state):
            state = {k[len(prefix):]: v for k, v in state.items()}
    others = [k for k, v in state.items() if not isinstance(v, torch.Tensor)]
    if others:
        fail(f"the state_dict holds {others[0]}, which is no tensor; is it one entry of a checkpoint (FILE:KEY)?")
    return {k: v.detach().contiguous().clone() for k, v in state.items()}


# ---- optimisers ----

def names_of(state, parameters, given):
    """Names of the parameters of an optimiser's state_dict, by number."""
    groups = state["param_groups"]
    numbers = [n for g in groups for n in g["params"]]
    if given:
        names = given
    elif all("param_names" in g for g in groups):
        names = [n for g in groups for n in g["param_names"]]
    elif len(groups) > 1:
        fail("the optimiser has several groups: give the names of its parameters with --names, or make it from named_parameters()")
    else:
        every = [names[0] for names, _ in parameters]
        trained = [names[0] for names, trains in parameters if trains]
        names = every if len(every) == len(numbers) else trained
    if len(names) != len(numbers):
        fail(f"the optimiser has {len(numbers)} parameters, and there are names of {len(names)}: give them with --names")
    return dict(zip(numbers, names))


def live_names(optimizer, module):
    """(names by number, tied groups) of an optimiser over the module's parameters."""
    of, tied = {}, {}
    for name, p in module.named_parameters(remove_duplicate=False):
        tied.setdefault(id(p), []).append(name)
        of.setdefault(id(p), name)
    flat = [p for g in optimizer.param_groups for p in g["params"]]
    return dict(enumerate(of[id(p)] for p in flat)), list(tied.values())


def save_optimizer(optimizer, module, path, step=None):
    """Writes the state for weft train --optimizer-state."""
    names, _ = live_names(optimizer, module)
    save_file(optimizer_to_weft(optimizer.state_dict(), names, step), path)


def load_optimizer(optimizer, module, path):
    """Takes what weft train --save-optimizer wrote; returns the number of steps done."""
    names, tied = live_names(optimizer, module)
    tensors = load_file(path)
    optimizer.load_state_dict(optimizer_from_weft(tensors, optimizer.state_dict(), names, tied))
    return int(tensors["step"])


# ---- the command ----

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("way", choices=["to-weft", "to-torch"])
    ap.add_argument("model", help="the export, .pt2")
    for name in ("state", "weights", "optimizer", "optimizer-state", "like", "names"):
        ap.add_argument("--" + name)
    ap.add_argument("--step", type=int)
    o = ap.parse_args()
    parameters = read_export(o.model)
    given = open(o.names).read().split() if o.names else None
    if not (o.state and o.weights) and not (o.optimizer and o.optimizer_state):
        fail("name --state and --weights, --optimizer and --optimizer-state, or all four")
    if o.way == "to-weft":
        if o.state:
            save_file(weights_to_weft(load(o.state)), o.weights)
        if o.optimizer:
            state = load(o.optimizer)
            save_file(optimizer_to_weft(state, names_of(state, parameters, given), o.step), o.optimizer_state)
    else:
        if o.state:
            torch.save(load_file(o.weights), o.state)
        if o.optimizer:
            if not o.like:
                fail("name the state of a new optimiser with --like (its hyperparameters go into the result)")
            like = load(o.like)
            names = names_of(like, parameters, given)
            torch.save(optimizer_from_weft(load_file(o.optimizer_state), like, names, [n for n, _ in parameters]), o.optimizer)


if __name__ == "__main__":
    try:
        main()
    except ValueError as e:  # what a state cannot express
        fail(e)
