"""examples/gpt.sh in its short form: the model of 10.8 M parameters is exported, takes some steps on a text, and speaks."""
import json
import os
import pathlib
import subprocess
import sys

from common import SOURCE, WEFT, run


def test_gpt():
    text = "".join(p.read_text() for p in sorted((SOURCE / "docs").glob("*.md")))
    pathlib.Path("text.txt").write_text(text)
    env = {**os.environ, "WEFT": WEFT, "TEXT": os.path.abspath("text.txt"), "STEPS": "12", "PYTHON": sys.executable, "FLAGS": "--batch-size 4"}
    done = subprocess.run([SOURCE / "examples/gpt.sh", os.path.abspath("run")], capture_output=True, text=True, errors="replace", env=env, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in open("run/metrics.jsonl")]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 12 and 5 < losses[0] < 6.2, losses  # log 256 = 5.5 before anything is known
    assert losses[-1] < losses[0] - 1, losses
    assert "10.8 M parameters" in done.stdout, done.stdout[:200]
    assert "And God said" in done.stdout


if __name__ == "__main__":
    run(dict(globals()))
