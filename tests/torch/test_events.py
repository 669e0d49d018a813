"""Event files, read by TensorBoard's own package: the values of metrics.jsonl, also over a run that was resumed."""
import json
import struct

from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import torch

from common import REFS, run, weft

MODEL = REFS / "dynamic_batch_mlp/model.pt2"
TAGS = {"train/loss": "loss", "train/lr": "lr", "train/grad_norm": "grad_norm", "perf/step_ms": "step_ms", "perf/data_ms": "data_ms",
        "mem/rss_mb": "rss_mb", "eval/loss": "eval_loss", "eval/accuracy": "eval_accuracy"}


def train(*words):
    weft("train", MODEL, "--data", "data.safetensors", "--eval-data", "data.safetensors", "--batch-size", 8, "--threads", 1, *words)


def single(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def test_values():
    save_file({"x": torch.randn(40, 12), "y": torch.randint(0, 4, (40,))}, "data.safetensors")
    train("--steps", 10, "--checkpoint-every", 5, "--out", "run")
    train("--steps", 15, "--checkpoint-every", 5, "--resume", "run")
    lines = [json.loads(line) for line in open("run/metrics.jsonl")]
    read = EventAccumulator("run", size_guidance={"scalars": 0})
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == sorted(TAGS), read.Tags()
    for tag, key in TAGS.items():
        want = {m["step"]: single(m[key]) for m in lines if key in m}
        got = {e.step: e.value for e in read.Scalars(tag)}
        assert got.items() <= want.items(), (tag, got, want)
        assert {10, 15} <= got.keys(), (tag, got)
    walls = [e.wall_time for e in read.Scalars("train/loss")]
    assert walls == sorted(walls) and walls[0] > 1.6e9


if __name__ == "__main__":
    run(dict(globals()))
