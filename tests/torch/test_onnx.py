"""ONNX models that Weft writes: onnxruntime computes what PyTorch does in evaluation mode, for every case of the spine."""
import json
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.torch import load_file, save_file

from common import REFS, distance, run, weft

RTOL = 1e-5
CASES = [p.parent for p in sorted(REFS.glob("*/expected.safetensors")) if any(k.startswith("eval.") for k in load_file(p))]
REFUSED = {"f64_recurrent": "recurrent layers in another precision than float32"}  # onnxruntime has no others


def state_of(folder, about, values):
    """The export's weights, with those that the case recorded after its last step in their place, as a file."""
    program = torch.export.load(folder / about["model"])
    state = dict(program.state_dict)
    same = {n: group for group in about["tied"] for n in group}
    for key, v in values.items():
        kind, _, name = key.partition(".")
        if kind in (f"param{about['steps']}", f"buffer{about['steps']}"):
            for n in same.get(name, [name]):
                if n in state:
                    state[n] = v
    save_file({k: v.detach().clone().contiguous() for k, v in state.items()}, "w.safetensors")


def session(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), model


def case(folder):
    def test():
        about = json.loads((folder / "case.json").read_text())
        inputs, values = load_file(folder / "inputs.safetensors"), load_file(folder / "expected.safetensors")
        first = "step1.micro0." if about.get("grad_accumulation", 1) > 1 else "step1."
        state_of(folder, about, values)
        leaves = [k for k in sorted(values) if k.startswith("eval.") and k != "eval.0"]
        for leaf in leaves:
            if folder.name in REFUSED:
                assert REFUSED[folder.name] in weft("export", folder / about["model"], "--predictions", leaf[5:], "-o", "model.onnx", fails=1)
                continue
            weft("export", folder / about["model"], "--weights", "w.safetensors", "--predictions", leaf[5:], "-o", "model.onnx")
            run_it, model = session("model.onnx")
            got, = run_it.run(None, {i.name: inputs[first + i.name].numpy() for i in run_it.get_inputs()})
            assert [o.name for o in run_it.get_outputs()] == ["predictions"]
            far = distance(torch.from_numpy(np.array(got)), values[leaf])
            print(f"#   {folder.name}, {leaf}: {far:.1e}, {len(model.graph.node)} nodes of {len({n.op_type for n in model.graph.node})} kinds")
            assert far < RTOL, far
        assert leaves
    test.__name__ = f"test_{folder.name}"
    return test


def test_weights_in_a_second_file_are_found():
    """As those of more than 2 GB; here the limit is 1 KB. From another folder, as onnxruntime looks beside the model."""
    folder = next(c for c in CASES if c.name == "resnet_tiny_bn_sgd")
    pathlib.Path("there").mkdir()
    weft("export", folder / "model.pt2", "-o", "one.onnx")
    os.environ["WEFT_ONNX_LIMIT"] = "1K"
    try:
        weft("export", folder / "model.pt2", "-o", "there/two.onnx")
    finally:
        del os.environ["WEFT_ONNX_LIMIT"]
    kept = onnx.load("there/two.onnx", load_external_data=False).graph.initializer
    assert sum(t.data_location == onnx.TensorProto.EXTERNAL for t in kept) > 3
    onnx.checker.check_model("there/two.onnx", full_check=True)
    (one, model), (two, _) = session("one.onnx"), session("there/two.onnx")
    g = torch.Generator().manual_seed(0)
    feed = {i.name: torch.randn([4 if isinstance(d, str) else d for d in i.shape], generator=g).numpy() for i in one.get_inputs()}
    got, want = two.run(None, feed)[0], one.run(None, feed)[0]
    assert (got == want).all()  # the same nodes over the same weights


def test_no_initializer_is_left_unread():
    """onnxruntime warns of each that is."""
    names = "bert_tiny_mask convnext_tiny_adamw gpt_tiny_adamw lenet_sgd_nesterov lstm_char_adam_clip resnet_tiny_bn_sgd".split()
    for folder in [f for f in CASES if f.name in names]:
        weft("export", folder / json.loads((folder / "case.json").read_text())["model"], "-o", "model.onnx")
        graph = onnx.load("model.onnx").graph
        unread = {t.name for t in graph.initializer} - {n for node in graph.node for n in node.input}
        assert not unread, (folder.name, unread)


for folder in CASES:
    globals()[f"test_{folder.name}"] = case(folder)

if __name__ == "__main__":
    run(dict(globals()))
