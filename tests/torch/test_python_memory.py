"""The package weft at its lower end: prototypes against weft.h, errors as C says them, memory without copies."""
import array
import ctypes
import os
import re
import signal
import threading
import time

import numpy as np
import torch

from common import SOURCE, run
import weft
from weft import _lib, _memory

KINDS = {ctypes.c_int: "int", ctypes.c_int64: "int64_t", ctypes.c_double: "double", ctypes.c_char_p: "text", ctypes.c_uint64: "uint64_t", None: "void"}


def kind_of_c(text):
    """What a C type of weft.h is to ctypes."""
    text = re.sub(r"\b(const|volatile|struct)\b", "", text).strip()
    text = re.sub(r"\s*\[\d*\]$", " *", re.sub(r"\s*\b[a-z_]\w*(?=(\[\d*\])?$)", "", text) if not text.endswith("*") and " " in text else text)
    text = text.replace(" ", "")
    return {"weft_status": "int", "weft_value": "int", "weft_ports": "int", "uint64_t": "uint64_t", "size_t*": "->uint64_t", "weft_dtype": "int", "char*": "text", "double*": "->double", "int*": "->int", "int64_t*": "->int64_t",
            "weft_tensor*": "->tensor", "char**": "->text"}.get(text, "->handle" if text.endswith("**") else "handle" if text.endswith("*") else text)


def kind_of_python(t):
    if t in KINDS:
        return KINDS[t]
    if t is ctypes.c_void_p:
        return "handle"
    if t is _lib.LOG:
        return "function"
    if t is _lib.Pointers:
        return "->handle"
    inner = t._type_
    return {_lib.Tensor: "->tensor", ctypes.c_void_p: "->handle", ctypes.c_char_p: "->text"}.get(inner) or "->" + KINDS[inner]


def header():
    """name -> [kind of result, kinds of arguments] of weft.h."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCE / "include/weft.h").read_text(), flags=re.S)
    found = {}
    for result, star, name, arguments in re.findall(r"WEFT_API\s+([\w ]+?)\s*(\*?)\s*(weft_\w+)\((.*?)\);", text, flags=re.S):
        arguments = re.sub(r"void \(\*fn\)\([^)]*\)", "FN", " ".join(arguments.split()))
        kinds = ["function" if a == "FN" else kind_of_c(a) for a in arguments.split(", ") if a != "void"]
        found[name] = [kind_of_c(result + " " + star if star else result), kinds]
    return found


def test_prototypes_are_those_of_the_header():
    of_c = header()
    assert len(of_c) > 40, f"only {len(of_c)} functions found in weft.h"
    for name, (result, arguments) in _lib.PROTOTYPES.items():
        mine = [kind_of_python(result), [kind_of_python(a) for a in arguments]]
        assert mine == of_c[name], f"{name}: {mine}, weft.h says {of_c[name]}"
    left = set(of_c) - set(_lib.PROTOTYPES)
    others = re.compile(r"weft_(graph_|port|size_|frame_|run_)")  # graphs by hand; halves, which torch.compile's backend calls
    assert all(others.match(n) for n in left), f"functions that nobody calls: {sorted(left)}"


def test_the_tensor_is_that_of_the_header():
    assert ctypes.sizeof(_lib.Tensor) == 4 + 4 + 8 * 8 + 8
    names = re.search(r"WEFT_F32 = 1, (.*?)}", (SOURCE / "include/weft.h").read_text(), flags=re.S).group(1)
    order = ["F32", *re.findall(r"WEFT_(\w+)", names)]
    short = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "BOOL": "bool"}
    for number, name in enumerate(order, 1):
        letters, digits = re.match(r"([A-Z]+)(\d*)", name).groups()
        assert _memory.DTYPES[number][0] == short[letters] + digits, name


def refused(x, *words):
    try:
        _memory.describe(x, "input x")
    except weft.Error as e:
        for word in ("input x", *words):
            assert word in str(e), f"{word!r} is not in: {e}"
        return
    raise AssertionError(f"{type(x)} was taken")


def test_memory_is_never_copied():
    for x in (torch.arange(6.).view(2, 3), torch.arange(4, dtype=torch.int64), torch.tensor(True), torch.ones(3, dtype=torch.bfloat16),
              torch.ones(2, requires_grad=True), torch.zeros(0, 4)):
        t, keep = _memory.describe(x)
        back = _memory.view(t, keep)
        assert torch.equal(back, x) and back.dtype == x.dtype and back.shape == x.shape
        assert x.numel() == 0 or back.data_ptr() == x.data_ptr()
    for x in (np.arange(6, dtype="f4").reshape(2, 3), np.ones(3, "f2"), np.float64([1, 2])):
        t, keep = _memory.describe(x)
        assert t.data == x.ctypes.data and _memory.shape_of(t) == x.shape
    a = array.array("f", [1, 2, 3])
    t, keep = _memory.describe(a)
    assert t.data == a.buffer_info()[0] and _memory.shape_of(t) == (3,)


class OnlyDlpack:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_dlpack_is_enough():
    for x in (torch.arange(6.), np.arange(6, dtype="i4")):
        t, keep = _memory.describe(OnlyDlpack(x))
        address = x.data_ptr() if isinstance(x, torch.Tensor) else x.ctypes.data
        assert t.data == address and _memory.shape_of(t) == (6,)


def test_what_does_not_fit_is_said():
    refused(torch.ones(3, 4).t(), "not contiguous", "strides (1, 4)", ".contiguous()")
    refused(np.ones((3, 4)).T, "not contiguous")
    refused(torch.ones(2, device="meta"), "lies on meta", ".cpu()")
    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_mkldnn()):
        refused(sparse, "no dense tensor", ".to_dense()")
    refused(torch._neg_view(torch.ones(3)), "negates", ".resolve_neg()")  # its memory holds the opposite
    refused(torch.ones(2, dtype=torch.complex64), "complex64", "float32")
    refused(np.ones(2, ">f4"), ">f4")
    refused("text", "str", "__dlpack__")
    refused(torch.ones([1] * 9), "9 dimensions")


def test_errors_are_those_of_c():
    context = _lib.Context()
    try:
        _lib.handle_of(_lib.lib.weft_open, context, context.handle, b"missing.pt2")
        raise AssertionError("it was opened")
    except weft.Error as e:
        assert e.code == "W0301" and e.status == "io" and "missing.pt2" in e.message, e
        import pickle
        again = pickle.loads(pickle.dumps(e))
        assert str(again) == str(e) and again.code == e.code


def test_a_forked_child_is_told():
    context = _lib.Context()
    child = os.fork()
    if not child:
        try:
            context.call(_lib.lib.weft_compile, None)
        except weft.Error as e:
            os._exit(0 if "forked" in str(e) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_ends_a_long_call_through_the_flag():
    context, seen = _lib.Context(), []

    def spins():  # as C does: looks at the flag now and then, and takes a while to leave
        end = time.monotonic() + 30
        while not context.cancel.value and time.monotonic() < end:
            time.sleep(0.01)
        seen.append(context.cancel.value)
        time.sleep(0.3)
        seen.append("left")
        return 0

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        context.wait(spins)
        raise AssertionError("nobody interrupted it")
    except KeyboardInterrupt:
        assert seen == [1, "left"], seen  # the call has ended before the exception arrives
    assert context.cancel.value == 0
    context.wait(lambda: 0)


run(globals())
