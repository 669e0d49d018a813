"""Ranks: the world that a launcher (torchrun, mpirun, srun, weft train --nproc) made this process a rank of. It is opened once, by the
first session or weft.world(), and closed when Python ends."""
from __future__ import annotations

import atexit
import sys
import threading
from typing import Any, Sequence

from ._lib import Context, handle_of, lib


class World:
    """rank, size: this process's number, and of how many; threads: its share of the host's cores (0: all)."""

    def __init__(self, rank: int, size: int, threads: int, context: Context | None, handle: Any):
        self.rank, self.size, self.threads = rank, size, threads
        self.context, self.handle = context, handle  # of several ranks: what their programs are made in

    def __repr__(self) -> str:
        return f"weft.World(rank={self.rank}, size={self.size})"


_world: World | None = None
_lock = threading.Lock()
_failed = False


def world() -> World:
    """The ranks that train together: of one where nothing launched this process. Every rank calls it (or makes a session) at the same
    place. Raises Error when not all ranks come."""
    global _world
    with _lock:
        if _world is None:
            context = Context()
            handle = handle_of(lib.weft_world_open, context, context.handle, None, wait=True)
            rank, size = lib.weft_world_rank(handle), lib.weft_world_size(handle)
            if size == 1:
                context.call(lib.weft_world_close, handle)
                _world = World(0, 1, 0, None, None)
            else:
                _world = World(rank, size, lib.weft_world_threads(handle), context, handle)
                _watch()
        return _world


def _watch() -> None:
    """At the end of Python: waits for the other ranks, unless this one ends with an error, which they are to learn at once."""
    before = sys.excepthook

    def hook(kind: Any, value: BaseException, trace: Any) -> None:
        global _failed
        _failed = True
        before(kind, value, trace)

    sys.excepthook = hook
    atexit.register(_close)


def _close() -> None:
    w = _world
    if w is None or w.context is None:
        return
    if not _failed:
        lib.weft_world_close(w.handle)


def shard(indices: Sequence[Any]) -> list[Any]:
    """This rank's share of `indices` (or of range(n), for a number): every size-th, filled up from the front so that all ranks get as
    many, as torch.utils.data.DistributedSampler(shuffle=False) deals them out."""
    w = world()
    items = list(range(indices)) if isinstance(indices, int) else list(indices)
    if not items:
        return []
    each = -(-len(items) // w.size)
    while len(items) < each * w.size:
        items += items[: each * w.size - len(items)]
    return items[w.rank : each * w.size : w.size]
