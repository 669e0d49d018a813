"""torch.optim's state as the tensors of docs/exchange.md, and back. Needs torch, and nothing else of this package: tools/state.py uses
it, too. Tensors are named WHAT/PARAMETER ("exp_avg/fc.weight"); "step" says how many steps are done."""
from __future__ import annotations

from typing import Any, Iterable, Mapping

import torch


def optimizer_to_weft(state: Mapping[str, Any], names: Mapping[int, str], step: int | None = None) -> dict[str, torch.Tensor]:
    """An optimiser's state_dict as such tensors, copied; names by the optimiser's number of the parameter. step: of SGD, which does not
    count them. Raises ValueError for what they cannot express."""
    out, steps = {}, {}
    for number, values in state["state"].items():
        for what, value in values.items():
            if what == "step":
                steps[number] = int(value)
            elif isinstance(value, torch.Tensor):
                out[f"{what}/{names[number]}"] = value.detach().contiguous().clone()
            elif value is not None:
                raise ValueError(f"the state of {names[number]} holds {what}, which is no tensor")
    most = max(steps.values(), default=None)
    for number, n in steps.items():  # what no gradient has reached has no state in Weft
        if n == 0:
            out = {k: v for k, v in out.items() if k.split("/", 1)[1] != names[number]}
        elif n != most:
            raise ValueError(f"the optimiser has done {most} steps, but {n} with {names[number]}; Weft counts one number for all")
    if most is None:
        most = step if step is not None else int(bool(out))
    if step is not None and step != most:
        raise ValueError(f"the optimiser itself says that it has done {most} steps")
    out["step"] = torch.tensor(most, dtype=torch.int64)
    return out


def optimizer_from_weft(tensors: Mapping[str, torch.Tensor], like: Mapping[str, Any], names: Mapping[int, str],
                        aliases: Iterable[list[str]] = ()) -> dict[str, Any]:
    """A state_dict that load_state_dict takes, with the groups of `like`. aliases: names of tied parameters, as lists. Raises ValueError
    for a parameter that the optimiser has not."""
    other = {n: group for group in aliases for n in group}
    numbers = {n: number for number, name in names.items() for n in other.get(name, [name])}
    step = int(tensors["step"])
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        what, _, name = key.partition("/")
        if not name:
            continue
        if name not in numbers:
            raise ValueError(f"the optimiser has no parameter {name}")
        state.setdefault(numbers[name], {})[what] = value
    counts = any("betas" in g or "alpha" in g or "lr_decay" in g for g in like["param_groups"])  # SGD does not
    for values in state.values():
        if counts:
            values["step"] = torch.tensor(float(step))
    if counts and not state and step:
        state = {number: {"step": torch.tensor(float(step))} for number in names}
    kept = like.get("state", {})
    return {"state": {**kept, **state}, "param_groups": like["param_groups"]}
