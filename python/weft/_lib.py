"""libweft: finding it, the prototypes of weft.h, errors, and contexts. Everything else of the package calls C through Context."""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
import weakref
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable


class Tensor(ctypes.Structure):
    """weft_tensor: a dense row-major tensor in somebody's memory."""

    _fields_ = [("dtype", c_int), ("rank", c_int), ("shape", c_int64 * 8), ("data", c_void_p)]


class Pointers(c_void_p):
    """An array of pointers, given as bytes: struct packs those faster than ctypes makes an array."""


class Error(RuntimeError):
    """What C says when something fails.

    code     stable, such as "W0254"; `weft explain W0254` says more ("" where the package itself complains)
    status   the kind: "usage", "data", "unsupported model", ... (weft_status_name)
    message  what happened
    place    where: the node, the line of your Python, or the file; "" where there is none
    hint     what to do; "" where there is none
    """

    def __init__(self, message: str, *, code: str = "", status: str = "usage", place: str = "", hint: str = ""):
        super().__init__(message)
        self.message, self.code, self.status, self.place, self.hint = message, code, status, place, hint

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}" if self.code else self.message
        if self.place:
            text += f"\n  --> {self.place}"
        if self.hint:
            text += f"\n  = help: {self.hint}"
        return text

    def __reduce__(self):
        return _rebuild, (self.message, self.code, self.status, self.place, self.hint)


def _rebuild(message: str, code: str, status: str, place: str, hint: str) -> Error:
    return Error(message, code=code, status=status, place=place, hint=hint)


LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
_status, _text, _handle, _out = c_int, c_char_p, c_void_p, POINTER(c_void_p)
_tensor, _number = POINTER(Tensor), POINTER(c_double)

# Every function of weft.h that the package calls: name -> (result, arguments). tests/torch/test_python_memory.py compares with the header.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "weft_version": (_text, []),
    "weft_context_new": (_handle, [c_void_p]),
    "weft_context_free": (None, [_handle]),
    "weft_message": (_text, [_handle]),
    "weft_place": (_text, [_handle]),
    "weft_hint": (_text, [_handle]),
    "weft_code": (_text, [_handle]),
    "weft_status_name": (_text, [_status]),
    "weft_on_log": (None, [_handle, LOG, c_void_p]),
    "weft_cancel_flag": (None, [_handle, POINTER(c_int)]),
    "weft_open": (_status, [_handle, _text, _out]),
    "weft_graph_new": (_status, [_handle, _out]),
    "weft_graph_input": (c_int32, [_handle, _text, c_int, c_int, POINTER(c_int64), _text]),
    "weft_graph_parameter": (c_int32, [_handle, _text, _tensor, c_int]),
    "weft_graph_node": (c_int32, [_handle, _text, _text, _text, _text]),
    "weft_graph_wants": (_status, [_handle, c_int32]),
    "weft_graph_output": (_status, [_handle, c_int32, _text]),
    "weft_graph_finish": (_status, [_handle]),
    "weft_port_count": (c_int, [_handle, c_int]),
    "weft_port_name": (_text, [_handle, c_int, c_int]),
    "weft_port": (_status, [_handle, c_int, c_int, POINTER(c_int64), _tensor]),
    "weft_size_count": (c_int, [_handle]),
    "weft_size_name": (_text, [_handle, c_int]),
    "weft_frame_bytes": (_status, [_handle, POINTER(c_int64), POINTER(c_size_t)]),
    "weft_run_forward": (_status, [_handle, POINTER(c_int64), c_uint64, Pointers, Pointers, c_void_p]),
    "weft_run_backward": (_status, [_handle, POINTER(c_int64), Pointers, Pointers, Pointers, c_void_p]),
    "weft_set": (_status, [_handle, _text, _text]),
    "weft_compile": (_status, [_handle]),
    "weft_save_compiled": (_status, [_handle, _text]),
    "weft_program_free": (None, [_handle]),
    "weft_plan_text": (_status, [_handle, POINTER(_text)]),
    "weft_graph_text": (_status, [_handle, _text, c_int, POINTER(_text)]),
    "weft_session_new": (_status, [_handle, _out]),
    "weft_session_free": (None, [_handle]),
    "weft_input_count": (c_int, [_handle]),
    "weft_input_name": (_text, [_handle, c_int]),
    "weft_input": (_status, [_handle, c_int, _tensor]),
    "weft_feed": (_status, [_handle, _text, _tensor]),
    "weft_rows": (_status, [_handle, c_int]),
    "weft_step": (_status, [_handle, _number]),
    "weft_micro": (_status, [_handle, _number]),
    "weft_micro_batches": (_status, [_handle, c_int]),
    "weft_forward": (_status, [_handle, c_int, _number]),
    "weft_output_count": (c_int, [_handle]),
    "weft_output_name": (_text, [_handle, c_int]),
    "weft_output": (_status, [_handle, c_int, _tensor]),
    "weft_predict": (_status, [_handle, _tensor]),
    "weft_metric": (_status, [_handle, _text, _number]),
    "weft_evaluate_begin": (_status, [_handle, _text]),
    "weft_evaluate": (_status, [_handle, _number]),
    "weft_evaluate_end": (_status, [_handle]),
    "weft_evaluated": (_text, [_handle, c_int, _number]),
    "weft_world_open": (_status, [_handle, c_void_p, _out]),
    "weft_world_rank": (c_int, [_handle]),
    "weft_world_size": (c_int, [_handle]),
    "weft_world_threads": (c_int, [_handle]),
    "weft_world_close": (_status, [_handle]),
    "weft_compile_together": (_status, [_handle, _handle]),
    "weft_join": (_status, [_handle, _handle]),
    "weft_parameter_count": (c_int, [_handle]),
    "weft_parameter_name": (_text, [_handle, c_int]),
    "weft_parameter_flags": (c_int, [_handle, c_int]),
    "weft_parameter_alias": (_text, [_handle, c_int, c_int]),
    "weft_parameter": (_status, [_handle, _text, _tensor]),
    "weft_parameter_replace": (_status, [_handle, _text, _tensor]),
    "weft_gradient": (_status, [_handle, _text, _tensor]),
    "weft_save": (_status, [_handle, _text]),
    "weft_load": (_status, [_handle, _text]),
    "weft_state_count": (c_int, [_handle]),
    "weft_state_parameter": (_text, [_handle, c_int]),
    "weft_state_kind": (_text, [_handle, c_int]),
    "weft_state": (_status, [_handle, c_int, _tensor]),
    "weft_set_step": (_status, [_handle, c_int64]),
    "weft_checkpoint": (_status, [_handle, _text, c_int]),
    "weft_resume": (_status, [_handle, _text, POINTER(c_int64)]),
}

VERSION = (0, 1)  # of weft.h: a library of another one is refused


def find() -> str:
    """The file of libweft: WEFT_LIBRARY; the one that came with the package; the system's."""
    given = os.environ.get("WEFT_LIBRARY")
    if given:
        if not os.path.exists(given):
            raise Error(f"WEFT_LIBRARY names {given}, which is not there", status="environment",
                        hint="Set it to a libweft.so (build/libweft.so after `make`), or unset it.")
        return given
    own = pathlib.Path(__file__).parent / "lib" / "libweft.so"
    return str(own) if own.exists() else "libweft.so.0"


def _load() -> ctypes.CDLL:
    path = find()
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise Error(f"libweft cannot be loaded: {e}", status="environment",
                    hint="Install the package with `pip install ./python`, or set WEFT_LIBRARY=/path/to/libweft.so.") from None
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            fn = getattr(lib, name)
        except AttributeError:
            raise Error(f"{path} has no {name}: it is of another version than this package", status="environment",
                        hint="Build both from the same source.") from None
        fn.restype, fn.argtypes = result, arguments
    version = lib.weft_version().decode()
    if tuple(int(n) for n in version.split(".")[:2]) != VERSION:
        raise Error(f"{path} is version {version}, this package is for {VERSION[0]}.{VERSION[1]}", status="environment",
                    hint="Build both from the same source.")
    return lib


lib = _load()


def _text_of(b: bytes | None) -> str:
    return b.decode("utf-8", "replace") if b else ""


def _free_context(handle: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child shares nothing that it could free: its threads are gone
        lib.weft_context_free(handle)


class Context:
    """A weft_context with what belongs to it: one lock (a context serves one thread at a time), the flag that ends long work,
    the process that made it. Whoever holds a program or session of it holds the context, too.

    call(fn, *args) calls fn(*args) under the lock and raises Error; wait(fn, *args) does so in a thread of its own, so that Ctrl-C
    arrives while C compiles. `log` receives C's lines (level 0 error .. 3 debug)."""

    def __init__(self, log: Callable[[int, str], None] | None = None):
        self.handle = lib.weft_context_new(None)
        if not self.handle:
            raise MemoryError("no memory for a weft_context")
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.cancel = c_int(0)
        lib.weft_cancel_flag(self.handle, ctypes.byref(self.cancel))
        self._log = LOG(lambda user, level, line: log(level, _text_of(line))) if log else None
        if self._log:
            lib.weft_on_log(self.handle, self._log, None)
        self._end = weakref.finalize(self, _free_context, self.handle, self.pid)

    def error(self, status: int) -> Error:
        """The last failure of the context."""
        h = self.handle
        return Error(_text_of(lib.weft_message(h)) or _text_of(lib.weft_status_name(status)), code=_text_of(lib.weft_code(h)),
                     status=_text_of(lib.weft_status_name(status)), place=_text_of(lib.weft_place(h)), hint=_text_of(lib.weft_hint(h)))

    def check(self, status: int) -> None:
        """Raises what a call that returned `status` left behind."""
        if status:
            raise self.error(status)

    def own(self) -> None:
        """Raises in a process that was forked from the one that made the context."""
        if os.getpid() != self.pid:
            raise Error("a program or session of Weft was made before this process was forked, and its threads are not here",
                        hint="Make the session in the process that uses it; DataLoader workers may load data, but not step.")

    def call(self, fn: Callable[..., int], *args: Any) -> None:
        self.own()
        with self.lock:
            status = fn(*args)
            if status:
                raise self.error(status)

    def wait(self, fn: Callable[..., int], *args: Any) -> None:
        """call() for what may take long. On Ctrl-C sets the flag, waits until C has left, and raises KeyboardInterrupt."""
        if threading.current_thread() is not threading.main_thread():
            return self.call(fn, *args)
        failed: list[BaseException] = []
        done = threading.Event()  # Thread.join() takes an interrupted wait for the thread's end

        def work() -> None:
            try:
                self.call(fn, *args)
            except BaseException as e:  # handed to the caller's thread
                failed.append(e)
            finally:
                done.set()

        self.own()
        threading.Thread(target=work, name="weft", daemon=True).start()
        try:
            done.wait()
        except BaseException:
            self.cancel.value = 1
            while not done.is_set():
                try:
                    done.wait()
                except KeyboardInterrupt:  # it is ending already
                    pass
            self.cancel.value = 0
            raise
        if failed:
            raise failed[0]


def handle_of(fn: Callable[..., int], context: Context, *args: Any, wait: bool = False) -> c_void_p:
    """What a constructor such as weft_open(.., &handle) makes."""
    out = c_void_p()
    (context.wait if wait else context.call)(fn, *args, ctypes.byref(out))
    return out
