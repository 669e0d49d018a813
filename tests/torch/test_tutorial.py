"""docs/tutorial.md, word for word: its scripts are saved under the names that they begin with, its commands run one after the
other in one folder. Installing is left out: the tests have done it."""
import os
import pathlib
import re
import subprocess
import sys

from common import SOURCE, WEFT, run

INSTALLS = re.compile(r"(python3 -m venv|\. env/|pip install|make |sudo )")


def test_tutorial():
    text = (SOURCE / "docs/tutorial.md").read_text()
    folder = pathlib.Path("bin")
    folder.mkdir()
    (folder / "weft").symlink_to(WEFT)
    (folder / "python3").symlink_to(sys.executable)
    env = {**os.environ, "PATH": f"{folder.resolve()}:{os.environ['PATH']}", "PYTHONPATH": ":".join(p for p in sys.path if "site-packages" in p)}
    ran = 0
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", body).group(1)
            pathlib.Path(name).write_text(body)
            continue
        for line in body.splitlines():
            if INSTALLS.match(line):
                continue
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=300)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 16, ran
    for name in "run/final.safetensors", "run/best.safetensors", "long/final.safetensors", "trained.pt2", "compiled/final.safetensors":
        assert pathlib.Path(name).is_file(), name


if __name__ == "__main__":
    run(dict(globals()))
