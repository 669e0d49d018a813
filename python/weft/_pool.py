"""Memory of compiled regions that is used again: fresh pages cost as much as to fill them. What the calls of a region need is given out here."""
from __future__ import annotations

import math
import mmap
import threading
from typing import Any, Callable

import torch

# What follows is not promised by PyTorch: there is another way where it is missing.
try:  # a quarter of the time of torch.empty
    from torch._C._dynamo.guards import _empty_strided_cpu as empty
except ImportError:
    def empty(shape: Any, strides: Any, dtype: Any) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype)
_uses: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)  # how many tensors lie in a storage

_HUGE = 1 << 21   # bytes of a huge page
_LARGE = 1 << 16  # bytes of a gradient from which on its memory is kept


def _pages(size: int) -> mmap.mmap:
    """Zeros: in huge pages where there are any, as a step's own memory is; products walk through it in long strides."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            pass
    return pages


class Frame:
    """What a call's forward keeps for its backward; `pointer` is aligned. Its memory goes back to the pool when nobody has it any more."""

    __slots__ = ("spare", "memory", "pointer")

    def __init__(self, spare: list[torch.Tensor], memory: torch.Tensor):
        self.spare, self.memory = spare, memory
        self.pointer = (memory.data_ptr() + 63) & ~63

    def __del__(self) -> None:
        self.spare.append(self.memory)


class Frames:
    """Memory of frames: a frame is as long out as the graph of a call lives. Without a lock, since a list's pop and append are whole: frames
    are taken in one thread and collected in another."""

    def __init__(self) -> None:
        self.free: dict[int, list[torch.Tensor]] = {}  # by size

    def take(self, size: int) -> Frame:
        spare = self.free.get(size)
        if spare is None:
            while len(self.free) > 8:  # sizes that come no more
                self.free.pop(next(iter(self.free)), None)
            spare = self.free.setdefault(size, [])
        try:
            return Frame(spare, spare.pop())
        except IndexError:
            room = size + 64
            return Frame(spare, torch.empty(room, dtype=torch.uint8) if room < _HUGE else torch.frombuffer(_pages(room), dtype=torch.uint8))


class Gradients:
    """Tensors for the gradients of a region. The memory of large ones, of sizes that never change (fixed), is used again when no tensor lies in
    it any more: after zero_grad(), say. There are two sets of it, since a gradient that is added to another one lives beside it."""

    def __init__(self, fixed: list[bool]):
        self.any = _uses is not None and any(fixed)
        self.large = [_uses is not None and f for f in fixed]  # as far as known before the first call
        self.sets: list[dict[int, tuple[torch.Tensor, int, int]]] = []  # by number: a tensor that fills the place; its storage, and the uses of that
        self.lock = threading.Lock()

    def _more(self, shapes: list[tuple[Any, ...]]) -> None:
        """Another set."""
        places, size = {}, 0
        for k, (shape, _, dtype) in enumerate(shapes):
            bytes_ = math.prod(shape) * dtype.itemsize
            self.large[k] = self.large[k] and bytes_ >= _LARGE
            if self.large[k]:
                places[k] = size
                size += -(-bytes_ // 64) * 64
        self.any = bool(places)
        pages, made = _pages(size) if size else None, {}
        for k, at in places.items():
            shape, strides, dtype = shapes[k]
            whole = torch.frombuffer(pages, dtype=dtype, count=math.prod(shape), offset=at).as_strided(shape, strides)  # which holds the pages
            made[k] = whole, whole.untyped_storage()._cdata
        self.sets.append({k: (whole, storage, _uses(storage)) for k, (whole, storage) in made.items()})

    def _take(self, k: int, shapes: list[tuple[Any, ...]]) -> torch.Tensor:
        for i in range(2):
            if i == len(self.sets):
                self._more(shapes)
            if not self.large[k]:
                break
            whole, storage, idle = self.sets[i][k]
            if _uses(storage) == idle:
                return whole.detach()
        return empty(*shapes[k])

    def take(self, shapes: list[tuple[Any, ...]]) -> list[torch.Tensor]:
        """shapes: (shape, strides, dtype) of each."""
        if not self.any:
            return [empty(*shape) for shape in shapes]
        with self.lock:
            return [self._take(k, shapes) if large else empty(*shapes[k]) for k, large in enumerate(self.large)]
