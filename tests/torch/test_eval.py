"""The evaluation form. The recorded eval.* of the cases, with which `weft verify` compares Weft, are what PyTorch computes for
the same program after torchao's move_exported_model_to_eval."""
import json
import logging

import torch
from safetensors.torch import load_file

from common import REFS, distance, run, weft
import record

logging.disable(logging.WARNING)  # of torchao, about its own parts
from torchao.quantization.pt2e import move_exported_model_to_eval  # noqa: E402

CASES = [p.parent for p in sorted(REFS.glob("*/expected.safetensors")) if any(k.startswith("eval.") for k in load_file(p))]


def norms(module):
    return [n for n in module.graph.nodes if n.target is torch.ops.aten.batch_norm.default]


def moved(program):
    """torchao puts norms of the default eps and momentum in place of all (a gap that its source names): they get their own."""
    own = [n.args[6:] for n in norms(program.module())]
    module = move_exported_model_to_eval(program.module())
    assert len(own) == len(norms(module))
    for n, rest in zip(norms(module), own):
        n.args = n.args[:6] + rest
    module.recompile()
    return module


def case(folder):
    def test():
        about = json.loads((folder / "case.json").read_text())
        inputs, values = load_file(folder / "inputs.safetensors"), load_file(folder / "expected.safetensors")
        first = "step1.micro0." if about.get("grad_accumulation", 1) > 1 else "step1."
        batch = {i["name"]: inputs[first + i["name"]] for i in about["inputs"]}
        ours = record.evaluation_form
        try:
            record.evaluation_form = moved
            got = record.evaluate(folder / about["model"], about, values, batch)
        finally:
            record.evaluation_form = ours
        want = {k: v for k, v in values.items() if k.startswith("eval.")}
        assert got.keys() == want.keys()
        for k in want:  # two runs of the same float32 program
            assert distance(got[k], want[k]) < 1e-6, (k, distance(got[k], want[k]))
    test.__name__ = f"test_{folder.name}"
    return test


for folder in CASES:
    globals()[f"test_{folder.name}"] = case(folder)


def test_there_are_the_cases():
    assert len(CASES) >= 20, len(CASES)


if __name__ == "__main__":
    run(dict(globals()))
