#!/usr/bin/env python3
"""Records what PyTorch's losses give for the options of --loss: values and gradients, in float64, for tests/unit/test_loss.c.

    python tests/refs/losses.py tests/refs/losses

cases.json holds the options of each case; tensors.safetensors its predictions x, its target y, the weights, the loss and
the gradient of x. Predictions and targets are numbers that float32 holds too, so that one record serves both types.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

D = torch.float64


def rand(*shape):
    return torch.randn(*shape).to(D)


def unit(*shape):
    return torch.rand(*shape).clamp(0.02, 0.98).to(D)


def rounded(t):  # to what float32 holds
    return t.float().to(D)


def labels(classes, *shape):
    return torch.randint(0, classes, shape)


def holes(y, *values):  # the first elements of y replaced
    y.view(-1)[: len(values)] = torch.tensor(values, dtype=y.dtype)
    return y


def cases():
    """name, options, function of (x, y), x, y, files of weights"""
    ce, w = F.cross_entropy, rounded(unit(5) + 0.5)
    yield "ce", {}, ce, rand(7, 5), labels(5, 7)
    yield "ce_sum", {"reduction": "sum"}, lambda x, y: ce(x, y, reduction="sum"), rand(7, 5), labels(5, 7)
    yield "ce_one_row", {}, ce, rand(5), labels(5)
    yield "ce_image", {}, ce, rand(2, 5, 3, 4), labels(5, 2, 3, 4)
    yield "ce_large_logits", {}, ce, rounded(rand(4, 5) * 200), labels(5, 4)
    ignored = holes(labels(5, 9), -100, 3, -100)
    yield "ce_ignore_default", {}, ce, rand(9, 5), ignored
    yield "ce_ignore_class", {"ignore-index": "3"}, lambda x, y: ce(x, y, ignore_index=3), rand(9, 5), holes(labels(5, 9), 3, 3, 1)
    yield ("ce_ignore_beyond_int", {"ignore-index": "-4294967297"}, lambda x, y: ce(x, y.clamp(min=-100)), rand(6, 5),
           holes(labels(5, 6), -4294967297, 2))
    yield "ce_smooth", {"label-smoothing": "0.1"}, lambda x, y: ce(x, y, label_smoothing=0.1), rand(9, 5), ignored
    yield "ce_all_smooth", {"label-smoothing": "1"}, lambda x, y: ce(x, y, label_smoothing=1.0), rand(9, 5), ignored
    yield "ce_weights", {"loss-weights": w}, lambda x, y: ce(x, y, w), rand(9, 5), ignored
    yield ("ce_weights_image_smooth_sum", {"loss-weights": w, "label-smoothing": "0.3", "reduction": "sum"},
           lambda x, y: ce(x, y, w, label_smoothing=0.3, reduction="sum"), rand(2, 5, 6), holes(labels(5, 2, 6), -100))
    yield ("ce_everything", {"loss-weights": w, "label-smoothing": "0.2", "ignore-index": "2"},
           lambda x, y: ce(x, y, w, label_smoothing=0.2, ignore_index=2), rand(2, 5, 3, 2), holes(labels(5, 2, 3, 2), 2, 1))
    soft = rounded(torch.softmax(rand(6, 5), 1))
    yield "ce_soft", {"soft-target": "true"}, ce, rand(6, 5), soft
    yield ("ce_soft_weights_smooth", {"soft-target": "true", "loss-weights": w, "label-smoothing": "0.2"},
           lambda x, y: ce(x, y, w, label_smoothing=0.2), rand(6, 5), soft)
    yield ("ce_soft_image_sum", {"soft-target": "true", "reduction": "sum"}, lambda x, y: ce(x, y, reduction="sum"),
           rand(2, 5, 3), rounded(torch.softmax(rand(2, 5, 3), 1)))

    logs = lambda *s: rounded(torch.log_softmax(rand(*s), 1 if len(s) > 1 else 0))
    yield "nll", {}, F.nll_loss, logs(7, 5), labels(5, 7)
    yield "nll_image_sum", {"reduction": "sum"}, lambda x, y: F.nll_loss(x, y, reduction="sum"), logs(2, 5, 3), labels(5, 2, 3)
    yield ("nll_weights_ignore", {"loss-weights": w, "ignore-index": "1"},
           lambda x, y: F.nll_loss(x, y, w, ignore_index=1), logs(8, 5), holes(labels(5, 8), 1, 1, 4))

    x = rounded(rand(4, 6) * 2)
    y = rand(4, 6)
    y[0, :3] = x[0, :3]  # ties
    y[1, 0], y[1, 1] = rounded(x[1, 0] - 0.5), rounded(x[1, 1] + 0.5)
    for kind, f, options in [
        ("mse", F.mse_loss, {}), ("l1", F.l1_loss, {}), ("smooth_l1", F.smooth_l1_loss, {}),
        ("smooth_l1", F.smooth_l1_loss, {"beta": 0.5}), ("smooth_l1", F.smooth_l1_loss, {"beta": 0.0}),
        ("huber", F.huber_loss, {}), ("huber", F.huber_loss, {"delta": 0.5}), ("huber", F.huber_loss, {"delta": 2.5})]:
        for reduction in ["mean", "sum"]:
            name = "_".join([kind] + [f"{k}{v}" for k, v in options.items()] + [reduction])
            yield (name, {"reduction": reduction, **{k: str(v) for k, v in options.items()}},
                   lambda x, y, f=f, o=options, r=reduction: f(x, y, reduction=r, **o), x, y)

    p, t = unit(4, 6), unit(4, 6)
    p[0, :4], t[0, :4] = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=D), torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=D)
    row, whole = rounded(unit(6) + 0.5), unit(4, 6)
    bce, logits = F.binary_cross_entropy, F.binary_cross_entropy_with_logits
    yield "bce", {}, bce, p, t
    yield "bce_sum", {"reduction": "sum"}, lambda x, y: bce(x, y, reduction="sum"), p[1:], t[1:]
    yield "bce_weights", {"loss-weights": whole}, lambda x, y: bce(x, y, whole), p, t
    yield "bce_row_weights", {"loss-weights": row}, lambda x, y: bce(x, y, row), p, t
    z = rounded(rand(4, 6) * 4)
    z[0, :2] = torch.tensor([120.0, -120.0], dtype=D)
    yield "bcel", {}, logits, z, t
    yield "bcel_sum", {"reduction": "sum"}, lambda x, y: logits(x, y, reduction="sum"), z, t
    yield "bcel_weights", {"loss-weights": whole}, lambda x, y: logits(x, y, whole), z, t
    yield "bcel_pos", {"pos-weight": row}, lambda x, y: logits(x, y, pos_weight=row), z, t
    yield ("bcel_both", {"loss-weights": whole, "pos-weight": row, "reduction": "sum"},
           lambda x, y: logits(x, y, whole, pos_weight=row, reduction="sum"), z, t)

    q, lq = rounded(torch.softmax(rand(4, 6), 1)), logs(4, 6)
    q[0, 0] = 0
    for reduction in ["mean", "sum", "batchmean"]:
        for log in [False, True]:
            yield (f"kl_{reduction}" + "_log" * log, {"reduction": reduction, "log-target": str(log).lower()},
                   lambda x, y, r=reduction, l=log: F.kl_div(x, y, reduction=r, log_target=l), logs(4, 6), lq if log else q)


KINDS = {"ce": "cross_entropy", "kl": "kl_div", "bcel": "bce_with_logits", "smooth": "smooth_l1"}


def main(out):
    torch.manual_seed(0)
    table, tensors = [], {}
    for name, options, f, x, y in cases():
        x, first = x.clone().requires_grad_(), name.split("_")[0]
        loss = f(x, y)
        loss.backward()
        row = {"name": name, "loss": KINDS.get(first, first), "options": {}, "files": []}
        for key, value in options.items():
            if isinstance(value, str):
                row["options"][key] = value
            else:
                row["files"].append(key)
                tensors[f"{name}.{key}"] = value
        table.append(row)
        tensors.update({f"{name}.x": x.detach(), f"{name}.y": y, f"{name}.loss": loss.detach(), f"{name}.grad": x.grad})
    os.makedirs(out, exist_ok=True)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, os.path.join(out, "tensors.safetensors"))
    with open(os.path.join(out, "cases.json"), "w") as file:
        json.dump({"torch_version": torch.__version__, "cases": table}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
