"""Tensors of others as weft_tensor and the other way round, always the same memory.

fill(t, x) takes a torch.Tensor, a numpy array, anything with __dlpack__, or anything with the buffer protocol; view(t, owner)
makes a torch tensor (numpy array where torch is not installed) of memory that `owner` keeps alive."""
from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from ._lib import Error, Tensor

# weft_dtype: number, PyTorch's name, numpy's (None: numpy has none), bytes
DTYPES = {1: ("float32", "float32", 4), 2: ("float64", "float64", 8), 3: ("float16", "float16", 2), 4: ("bfloat16", None, 2),
          5: ("int64", "int64", 8), 6: ("int32", "int32", 4), 7: ("int16", "int16", 2), 8: ("int8", "int8", 1),
          9: ("uint8", "uint8", 1), 10: ("bool", "bool", 1)}
NUMBERS = {names[0]: number for number, names in DTYPES.items()}
_BY_NUMPY = {np.dtype(names[1]): number for number, names in DTYPES.items() if names[1]}
_by_torch: dict[Any, int] = {}


def torch_module() -> Any:
    """torch, if it is installed; None otherwise."""
    if "torch" not in sys.modules:
        try:
            import torch  # noqa: F401
        except ImportError:
            return None
    return sys.modules["torch"]


def _fill(t: Tensor, number: int, shape: Any, address: int, what: str) -> None:
    if len(shape) > 8:
        raise Error(f"{what} has {len(shape)} dimensions, Weft takes 8 at most", status="data")
    t.dtype, t.rank, t.data = number, len(shape), address
    for d, size in enumerate(shape):
        t.shape[d] = size


def _of_torch(t: Tensor, x: Any, what: str) -> Any:
    if x.device.type != "cpu":
        raise Error(f"{what} lies on {x.device}, and Weft trains in the processor's memory", status="data", hint="Call .cpu() before.")
    if x.layout is not sys.modules["torch"].strided or x.is_nested:
        raise Error(f"{what} is no dense tensor ({x.layout}, {type(x).__name__})", status="data", hint="Call .to_dense() before.")
    if not x.is_contiguous():
        raise Error(f"{what} is not contiguous (shape {tuple(x.shape)}, strides {x.stride()})", status="data",
                    hint="Call .contiguous() before; nothing is copied behind your back.")
    if x.is_neg():  # what its memory holds is not what it says
        raise Error(f"{what} is a view that negates its memory", status="data", hint="Call .resolve_neg() before.")
    if not _by_torch:
        torch = sys.modules["torch"]
        _by_torch.update({getattr(torch, name): number for name, number in NUMBERS.items()})
    number = _by_torch.get(x.dtype)
    if number is None:
        raise Error(f"{what} is {x.dtype}, which Weft does not know", status="data",
                    hint="Types are " + ", ".join(NUMBERS) + ".")
    _fill(t, number, x.shape, x.data_ptr(), what)
    return x


def _of_numpy(t: Tensor, x: Any, what: str) -> Any:
    if not x.flags.c_contiguous:
        raise Error(f"{what} is not contiguous (shape {x.shape}, strides {x.strides})", status="data",
                    hint="Call numpy.ascontiguousarray before; nothing is copied behind your back.")
    number = _BY_NUMPY.get(x.dtype)
    if number is None:
        raise Error(f"{what} is {x.dtype}, which Weft does not know", status="data",
                    hint="Types are " + ", ".join(n[1] for n in DTYPES.values() if n[1]) + ", in the machine's byte order.")
    _fill(t, number, x.shape, x.ctypes.data, what)
    return x


def fill(t: Tensor, x: Any, what: str = "the tensor") -> Any:
    """Makes t describe the memory of x, without a copy. Returns what must stay alive as long as t is used. Raises Error for memory
    that is not the processor's, not contiguous, or of a dtype that Weft does not know."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _of_torch(t, x, what)
    if isinstance(x, np.ndarray):
        return _of_numpy(t, x, what)
    if hasattr(x, "__dlpack__"):
        device = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
        if int(device) != 1:
            raise Error(f"{what} lies on device type {int(device)} of DLPack, and Weft trains in the processor's memory", status="data",
                        hint="Copy it to the processor before.")
        try:
            return _of_numpy(t, np.from_dlpack(x), what)
        except (BufferError, RuntimeError) as e:
            raise Error(f"{what} cannot be had through DLPack: {e}", status="data") from None
    try:
        return _of_numpy(t, np.asarray(memoryview(x)), what)
    except (TypeError, ValueError):
        raise Error(f"{what} is a {type(x).__name__}, which is no tensor", status="data",
                    hint="Give a torch tensor, a numpy array, or something with __dlpack__ or the buffer protocol.") from None


def describe(x: Any, what: str = "the tensor") -> tuple[Tensor, Any]:
    """(weft_tensor of x's memory, what must stay alive while it is used). Errors: see fill."""
    t = Tensor()
    return t, fill(t, x, what)


def shape_of(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape[: t.rank])


def view(t: Tensor, owner: Any) -> Any:
    """The memory that t describes as a torch tensor, or a numpy array where torch is not installed. It is no copy; `owner` lives as
    long as the result."""
    shape, (name, numpy_name, size) = shape_of(t), DTYPES[t.dtype]
    count = 1
    for n in shape:
        count *= n
    torch = torch_module()
    if count == 0:
        return torch.empty(shape, dtype=getattr(torch, name)) if torch else np.empty(shape, numpy_name)
    memory: Any = (ctypes.c_uint8 * (count * size)).from_address(t.data)
    memory.owner = owner  # the array keeps `memory`, and that its owner
    if torch:
        return torch.frombuffer(memory, dtype=getattr(torch, name)).view(shape)
    if numpy_name is None:
        raise Error(f"numpy has no {name}", status="unsupported model", hint="Install torch to look at such tensors.")
    return np.frombuffer(memory, dtype=numpy_name).reshape(shape)
