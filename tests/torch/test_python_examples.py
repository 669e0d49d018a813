"""examples/python: each script and the same with Weft differ in five lines at most, and print the same, but for rounding. And the wheel:
what `pip install ./python` makes, without torch."""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

from common import REFS, SOURCE, run

EXAMPLES = SOURCE / "examples/python"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE / "python"), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}


def printed(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, f"{path.name}: {done.stderr[-2000:]}"
    return done.stdout


def compare(name):
    plain, changed = EXAMPLES / f"{name}.py", EXAMPLES / f"{name}_weft.py"
    lines = list(difflib.unified_diff(plain.read_text().splitlines(), changed.read_text().splitlines(), lineterm="", n=0))[2:]
    more, less = [line for line in lines if line[0] == "+"], [line for line in lines if line[0] == "-"]
    assert len(more) <= 5 and len(less) <= 5, f"{name}: {len(more)} lines more, {len(less)} less"
    a, b = printed(plain), printed(changed)
    number = re.compile(r"\d+\.\d+")
    assert number.sub("N", a) == number.sub("N", b), f"{a}\n{b}"
    for x, y in zip(number.findall(a), number.findall(b)):
        # some hundred steps in float32, printed with four digits: rounding moves the last ones
        assert abs(float(x) - float(y)) <= 2e-3 + 1e-2 * abs(float(x)), f"{name}: {x}, with Weft {y}\n{a}\n{b}"
    assert len(number.findall(a)) >= 2


def test_the_plain_script():
    compare("spirals")


def test_the_lightning_module():
    compare("lightning_sum")


def test_the_transformers_model():
    compare("transformers_count")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not there
import numpy as np, weft
session = weft.Session(weft.open(sys.argv[1]), dict(type="AdamW", lr=1e-3))
batch = (np.ones((8, 1, 28, 28), "f4"), np.arange(8))
first = session.step(batch)
assert session.step(batch) < first
weights = session.state_dict()
assert all(isinstance(v, np.ndarray) for v in weights.values())
session.load_state_dict({k: np.zeros_like(v) for k, v in weights.items()})
assert abs(session.evaluate([batch])["loss"] - np.log(10)) < 1e-5
print(weft.__file__)
"""


def test_the_wheel():
    """Of the library that is built already: what WEFT_LIBRARY names."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", "wheels",
                    str(SOURCE / "python")], check=True)
    (wheel,) = pathlib.Path("wheels").glob("*.whl")
    assert re.fullmatch(r"weft_train-\d+\.\d+\.\d+-py3-none-linux_x86_64\.whl", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        assert {"weft/lib/libweft.so", "weft/__init__.py", "weft/py.typed"} <= set(names), names
        entry = next(n for n in names if n.endswith("entry_points.txt"))
        assert "weft = weft.dynamo:backend" in z.read(entry).decode()
        z.extractall("installed")
    environment = {k: v for k, v in ENVIRONMENT.items() if k != "WEFT_LIBRARY"}
    environment["PYTHONPATH"] = os.path.abspath("installed")
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(REFS / "mlp_mnist_adamw/model.pt2")], capture_output=True, text=True,
                          env=environment, timeout=120)
    assert done.returncode == 0 and "installed" in done.stdout, done.stderr


run(globals())
