"""Files that Weft writes, read by the packages that they are for: safetensors and PyTorch."""
import zipfile

import torch
from safetensors.torch import load_file, save_file

from common import REFS, call, distance, run, weft

CASES = {"gpt_tiny_adamw": ["--optimizer", "adamw"], "resnet_tiny_bn_sgd": ["--optimizer", "sgd", "--lr", 0.01],
         "tied_transposed": ["--optimizer", "sgd", "--lr", 0.01]}


def batches(case):
    """The inputs of a case's steps: rows of all steps as data, and the batch of step 1."""
    all_steps = load_file(REFS / case / "inputs.safetensors")
    first = {k.split(".", 1)[1]: v for k, v in all_steps.items() if k.startswith("step1.")}
    steps = sorted({k.split(".")[0] for k in all_steps}, key=lambda s: int(s[4:]))
    return {k: torch.cat([all_steps[f"{s}.{k}"] for s in steps]) for k in first}, first


def trained(case):
    data, first = batches(case)
    save_file(data, "data.safetensors")
    weft("train", REFS / case / "model.pt2", "--data", "data.safetensors", "--threads", 1, *CASES[case], "--out", "run")
    return torch.export.load(REFS / case / "model.pt2"), first


def check_weights(case):
    program, first = trained(case)
    got = load_file("run/final.safetensors")
    module = program.module()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    module.load_state_dict(got, strict=True)  # raises when a name is missing or one too many
    assert any(not torch.equal(before[k], v) for k, v in got.items()), "training changed nothing"


def check_export(case):
    program, first = trained(case)
    model = REFS / case / "model.pt2"
    weft("export", model, "--weights", "run/final.safetensors", "-o", "out.pt2")
    got, want = torch.export.load("out.pt2"), load_file("run/final.safetensors")
    for k, v in got.state_dict.items():
        assert torch.equal(v, want[k]), k
    plain = program.module()
    plain.load_state_dict(want, strict=True)
    a, b = call(program, got.module(), first), call(program, plain, first)
    flat = torch.utils._pytree.tree_leaves
    assert len(flat(a)) == len(flat(b)) > 0
    for x, y in zip(flat(a), flat(b)):
        assert torch.equal(x, y)
    # the same archive but for the weights' bytes
    with zipfile.ZipFile(model) as old, zipfile.ZipFile("out.pt2") as new:
        assert new.testzip() is None
        assert [(i.filename, i.header_offset, i.file_size) for i in old.infolist()] == \
            [(i.filename, i.header_offset, i.file_size) for i in new.infolist()]
        changed = [n for n in old.namelist() if old.read(n) != new.read(n)]
    assert changed and all("/data/weights/weight_" in n for n in changed), changed
    weft("export", "out.pt2", "-o", "again.safetensors")
    again = load_file("again.safetensors")
    assert again.keys() == want.keys() and all(torch.equal(again[k], want[k]) for k in want)


def test_sharded():
    """As huggingface writes large models: an index and its files; bfloat16 is converted, each value as PyTorch does."""
    import json
    want = {k: v.bfloat16() if v.is_floating_point() else v for k, v in
            torch.export.load(REFS / "resnet_tiny_bn_sgd/model.pt2").state_dict.items()}
    names = sorted(want)
    where = {n: f"model-{1 + i % 3:05d}-of-00003.safetensors" for i, n in enumerate(names)}
    for f in set(where.values()):
        save_file({n: want[n].contiguous() for n in names if where[n] == f}, f, metadata={"format": "pt"})
    json.dump({"metadata": {"total_size": 1}, "weight_map": where}, open("model.safetensors.index.json", "w"))
    said = weft("export", REFS / "resnet_tiny_bn_sgd/model.pt2", "--weights", ".", "-o", "one.safetensors")
    assert "from bf16 to f32" in said
    got = load_file("one.safetensors")
    assert got.keys() == want.keys()
    for k in want:
        assert distance(got[k], want[k].to(got[k].dtype)) == 0, k


for case in CASES:
    for check in (check_weights, check_export):
        def test(check=check, case=case):
            check(case)
        test.__name__ = f"test_{check.__name__[6:]}_{case}"
        globals()[test.__name__] = test

def test_sixteen_bits():
    """A model of bfloat16 is refused before anything is compiled, with what to do."""
    model = torch.nn.Linear(4, 2).bfloat16()
    torch.export.save(torch.export.export(model, (torch.zeros(8, 4, dtype=torch.bfloat16),)), "half.pt2")
    said = weft("compile", "half.pt2", "--loss", "mse", "-o", "half.weft", fails=1)
    assert "error[W0409]: parameter weight is bf16" in said and "model.float()" in said, said


def test_evaluation_mode():
    """Exports after eval() are told apart from those after train(), decomposed or not; frozen norms beside dropout are meant."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm, self.drop = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3)

        def forward(self, x):
            return self.drop(self.norm(self.fc(x)))

    frozen = Net().train()
    frozen.norm.eval()
    for name, module, warned in ("eval", Net().eval(), True), ("train", Net().train(), False), ("frozen", frozen, False):
        for decomposed in False, True:
            program = torch.export.export(module, (torch.zeros(8, 4),))
            if decomposed:
                program = program.run_decompositions()
            path = f"{name}{decomposed}.pt2"
            torch.export.save(program, path)
            said = weft("compile", path, "--loss", "mse", "--accept-lost-stopgrad", "-o", f"{name}{decomposed}.weft")
            assert ("was exported in evaluation mode" in said) == warned, (path, said)


if __name__ == "__main__":
    run(dict(globals()))
