"""Weft in Python: a thin face of weft.h, which compiles the training step of an exported PyTorch model. docs/python.md describes every
name with an example.

    program = weft.export(model, (x, y), loss="cross_entropy")
    session = weft.Session(program, torch.optim.AdamW(model.parameters(), lr=1e-3))
    loss = session.step((x, y))
    model.load_state_dict(session.state_dict())
"""
from ._lib import Error, lib as _c
from ._program import Program, export, open
from ._session import Session
from ._verify import Verdict, verify
from ._world import World, shard, world

for _public in (Error, Program, Session, Verdict, World):
    _public.__module__ = "weft"  # what tracebacks and help() say
__version__ = _c.weft_version().decode()
__all__ = ["Error", "Program", "Session", "Verdict", "World", "export", "open", "shard", "verify", "world", "__version__"]
