#!/usr/bin/env python3
"""Adds eval.{i}, what the evaluation form computes (docs/cases.md), to recorded cases: eval.py CASE... Needs torch."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "torch"))
import common  # noqa: E402, F401  finds tools/, and knows what exports return
from record import evaluate  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402


def add(folder):
    case = json.loads((folder / "case.json").read_text())
    inputs, values = (load_file(folder / f"{n}.safetensors") for n in ("inputs", "expected"))
    values = {k: v for k, v in values.items() if not k.startswith("eval.")}
    first = "step1.micro0." if case.get("grad_accumulation", 1) > 1 else "step1."
    batch = {i["name"]: inputs[first + i["name"]] for i in case["inputs"]}
    values.update(evaluate(folder / case["model"], case, values, batch))
    save_file(values, folder / "expected.safetensors")


for word in sys.argv[1:]:
    add(pathlib.Path(word))
    print(word)
