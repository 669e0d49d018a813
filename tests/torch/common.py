"""What the tests of this folder share: Weft as a command, the recorded cases, and TAP. A test is a function test_*; run()
at a file's end runs them in the order in which they stand. Needs torch and safetensors (`make check-python`)."""
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

import torch

SOURCE = pathlib.Path(__file__).resolve().parents[2]
REFS = SOURCE / "tests/refs"
WEFT = os.environ.get("WEFT", str(SOURCE / "build/weft"))
os.environ.setdefault("WEFT_LIBRARY", str(SOURCE / "build/libweft.so"))  # what the package in python/ loads
sys.path[:0] = [str(SOURCE / "tools"), str(SOURCE / "python")]
torch.set_num_threads(1)


class ModelOutput(dict):
    """In place of the class that the export of a Hugging Face model returns, so that the package need not be there."""


torch.utils._pytree.register_pytree_node(
    ModelOutput, lambda d: (list(d.values()), list(d)), lambda values, keys: ModelOutput(zip(keys, values)),
    serialized_type_name="transformers.modeling_outputs.CausalLMOutputWithCrossAttentions")


def weft(*words, fails=None):
    """Runs Weft; returns what it wrote to stderr. fails: the exit code that is expected."""
    done = subprocess.run([WEFT, *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode != (fails or 0):
        raise AssertionError(f"weft {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stderr


def call(program, module, batch):
    """The module of an export, called as it was exported: some inputs may go by name. batch: by the name of the input."""
    args, kwargs = program.example_inputs
    names = [n for n in program.graph_signature.user_inputs if isinstance(n, str)]
    rest = [batch[n] for n in names[:len(args)]]
    return module(*rest, **{n: batch[n] for n in kwargs})


def distance(a, b, scale=0.0):
    """max|a - b| / max(max|a|, max|b|, 0.01 scale), as docs/cases.md compares; integers: 0 or inf."""
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    if a.shape != b.shape:
        return float("inf")
    a, b = a.double(), b.double()
    most = max(a.abs().max().item(), b.abs().max().item(), 0.01 * scale) if a.numel() else 0
    return (a - b).abs().max().item() / most if most else 0.0


def farthest(a, b):
    """(distance, name) of the farthest tensors of two dicts with the same names."""
    assert a.keys() == b.keys(), f"names differ: {sorted(a.keys() ^ b.keys())[:5]}"
    scale = max((v.abs().max().item() for v in a.values() if v.is_floating_point() and v.numel()), default=0)
    return max(((distance(a[k], b[k], scale), k) for k in a), default=(0.0, ""))


def run(namespace):
    """Runs the file's tests, each in a folder of its own, with a cache for all, and prints TAP."""
    tests = [f for name, f in namespace.items() if name.startswith("test_") and callable(f)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_CACHE_HOME", folder + "/cache")
        print(f"1..{len(tests)}", flush=True)
        for i, f in enumerate(tests, 1):
            os.mkdir(f"{folder}/{i}")
            os.chdir(f"{folder}/{i}")
            try:
                torch.manual_seed(0)
                f()
                print(f"ok {i} - {f.__name__}", flush=True)
            except Exception:
                bad += 1
                print(f"not ok {i} - {f.__name__}", flush=True)
                print("".join("#   " + line + "\n" for line in traceback.format_exc().splitlines()[-12:]), flush=True)
        os.chdir("/")
    sys.exit(bad > 0)
