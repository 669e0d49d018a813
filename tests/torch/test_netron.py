"""What Weft writes, opened by Netron: its readers run in node, without a window. An export with trained weights, the ONNX form, weights,
predictions. Left out where the package netron or node is not there."""
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

from safetensors.torch import save_file
import torch

from common import REFS, SOURCE, run, weft

MODEL = REFS / "lenet_sgd_nesterov" / "model.pt2"
SPEC = importlib.util.find_spec("netron")
NODE = shutil.which("node")
if not SPEC or not NODE:
    print("netron is not installed" if not SPEC else "node is not installed")
    sys.exit(77)


def viewer():
    """The package's sources beside a file that says that they are modules."""
    folder = pathlib.Path("netron")
    if not folder.exists():
        shutil.copytree(pathlib.Path(SPEC.origin).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "package.json").write_text('{"type": "module"}')
    return folder


def opened(path):
    """What Netron finds, or None and why it finds nothing."""
    done = subprocess.run([NODE, SOURCE / "tests/torch/netron.mjs", viewer(), path], capture_output=True, text=True, timeout=120)
    why = next((line for line in done.stderr.splitlines() if "rror: " in line or line.startswith("Error ")), done.stderr)
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, why)


def seen(path):
    found, why = opened(path)
    assert found, why
    return found


def trained():
    if not pathlib.Path("run").exists():
        torch.manual_seed(0)
        save_file({"x": torch.rand(16, 1, 28, 28), "y": torch.arange(16) % 10}, "data.safetensors")
        weft("train", MODEL, "--data", "data.safetensors", "--steps", 2, "--threads", 1, "--checkpoint-every", 2, "--out", "run")


def test_onnx():
    trained()
    weft("export", MODEL, "--weights", "run/final.safetensors", "-o", "model.onnx")
    m = seen("model.onnx")
    graph, = m["graphs"]
    assert m["format"].startswith("ONNX"), m
    assert graph["inputs"] == ["x"] and graph["outputs"] == 1 and graph["nodes"].count("Conv") == 2 and graph["nodes"].count("MatMul") == 3, graph
    assert {"c1.weight", "c2.bias", "f3.bias"} <= set(graph["tensors"]), graph["tensors"]


def test_export():
    """Netron's reader of .pt2 may be older than the PyTorch that exports (9.3 stops at 2.15's schema): what Weft wrote is to it what
    PyTorch wrote, whatever that is."""
    trained()
    weft("export", MODEL, "--weights", "run/final.safetensors", "-o", "trained.pt2")
    assert opened("trained.pt2") == opened(MODEL)


def test_weights():
    trained()
    m = seen("run/final.safetensors")
    assert m["format"].startswith("Safetensors") and m["graphs"][0]["nodes"], m


def test_predictions():
    trained()
    weft("run", MODEL, "--weights", "run/final.safetensors", "--data", "data.safetensors", "--out", "p.safetensors")
    assert seen("p.safetensors")["format"].startswith("Safetensors")


run(globals())
