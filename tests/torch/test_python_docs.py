"""docs/python.md: every block of Python runs, in its order; every public name of the package stands in it; README's diff
is that of the example."""
import re

import torch._dynamo

from common import SOURCE, run
import weft
import weft.dynamo

PAGE = (SOURCE / "docs/python.md").read_text()


def test_every_block_runs():
    if "weft" not in torch._dynamo.list_backends():  # which an installed package says by its entry point
        torch._dynamo.register_backend(weft.dynamo.backend, name="weft")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    assert len(blocks) >= 12, f"only {len(blocks)} blocks"
    names = {"__name__": "docs"}
    for block in blocks:
        try:
            exec(compile(block, "docs/python.md", "exec"), names)
        except Exception:
            print("\n".join("# " + line for line in block.splitlines()))
            raise


def test_every_name_is_described():
    for name in weft.__all__:
        assert name.startswith("__") or re.search(rf"weft\.{name}\b", PAGE), f"weft.{name}"
    for kind, called in ((weft.Session, "session"), (weft.Program, "program")):
        for name in vars(kind):
            if not name.startswith("_") and not (kind is weft.Program and name == "open"):
                assert re.search(rf"`?{called}\.{name}\b|`{name}\(", PAGE), f"{called}.{name}"
                assert (getattr(kind, name).__doc__ or "").strip(), f"{called}.{name} has no docstring"


def test_readmes_five_lines_are_the_examples():
    (diff,) = re.findall(r"```diff\n(.*?)```", (SOURCE / "README.md").read_text(), flags=re.S)
    plain, changed = ((SOURCE / f"examples/python/spirals{k}.py").read_text().splitlines() for k in ("", "_weft"))
    more, less = ([line[1:] for line in diff.splitlines() if line[0] == sign] for sign in "+-")
    assert more and set(more) == set(changed) - set(plain), set(more) ^ (set(changed) - set(plain))
    assert less and set(less) == set(plain) - set(changed), set(less) ^ (set(plain) - set(changed))
    assert len(more) <= 5 and len(less) <= 5


run(globals())
