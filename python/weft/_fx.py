"""From a graph of torch.fx over ATen operators (torch's training dialect, as make_fx before dispatch gives it) to a program of Weft,
node by node."""
from __future__ import annotations

import ctypes
import operator
from typing import Any, Callable, Iterable

import torch
from torch.fx import Node

from ._lib import Context, Error, Tensor, handle_of, lib
from ._memory import NUMBERS, fill

DTYPES = {getattr(torch, name): number for name, number in NUMBERS.items()}
_TEXT = {getattr(torch, name): name.replace("float", "f").replace("uint", "u").replace("int", "i") for name in NUMBERS}  # docs/ir.md
_aten = torch.ops.aten
# Nothing is computed by these: what they claim, dynamo's guards hold already.
_CLAIMS = {"aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten._assert_scalar.default",
           "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default"}


def where(node: Node) -> str:
    """The user's line that made the node, "net.py:31  x = self.fc2(x)"; "" when dynamo does not know it."""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    for i in range(len(lines) - 1, -1, -1):
        text = lines[i].strip()
        if text.startswith('File "'):
            file, rest = text[6:].split('"', 1)
            line = rest.split("line ", 1)[1].split(",", 1)[0].strip()
            return f"{file}:{line}  {lines[i + 1].strip() if i + 1 < len(lines) else ''}".rstrip()
    return ""


def size_text(size: Any) -> str:
    """A size, which may be symbolic, in the text of docs/ir.md."""
    if isinstance(size, int):
        return str(size)
    return _expression(size.node.expr)


def _expression(e: Any) -> str:
    kind = type(e).__name__
    if e.is_Symbol or e.is_Integer:
        return str(e)
    parts = [_expression(a) for a in e.args]
    if kind == "Add":
        return "(" + " + ".join(parts) + ")"
    if kind == "Mul":
        return "(" + "*".join(parts) + ")"
    if kind in ("FloorDiv", "CleanDiv"):
        return f"({parts[0]}//{parts[1]})"
    if kind in ("Mod", "PythonMod"):
        return f"({parts[0]} % {parts[1]})"
    if kind in ("Max", "Min"):
        return f"{kind.lower()}({', '.join(parts)})"
    if kind == "Pow" and e.args[1].is_Integer and 0 < int(e.args[1]) < 8:
        return "(" + "*".join([parts[0]] * int(e.args[1])) + ")"
    raise Error(f"the size {e} is of a form that Weft does not compute ({kind})", status="unsupported model",
                hint="Compile with dynamic=False: one program for every shape.")


def _fixed(name: str, number: Any) -> Any:
    """A real number or flag of Python's becomes a constant of the program; dynamo compiles again when it is another."""
    try:
        return bool(number) if isinstance(number, torch.SymBool) else float(number)
    except Exception as e:
        raise Error(f"{name} is a number that only the data tell", status="unsupported model", hint="Keep it a tensor.") from e


class Builder:
    """One program while it is built. `value` maps nodes to Weft's values (a list of them for several results)."""

    def __init__(self, context: Context, graph: torch.fx.GraphModule):
        self.context, self.module = context, graph
        self.program = handle_of(lib.weft_graph_new, context, context.handle)
        self.value: dict[Node, Any] = {}
        self.symbols: set[str] = set()  # that some input's shape tells
        self.grad = True

    def _size(self, size: Any) -> str:
        """A size in a node's arguments. A whole number that is no tensor's size becomes a constant, which dynamo guards."""
        known = isinstance(size, int) or all(str(s) in self.symbols for s in size.node.expr.free_symbols)
        return size_text(size if known else int(size))

    def _checked(self, value: int) -> int:
        if not value:  # the failure is kept until the program is finished
            self.context.call(lib.weft_graph_finish, self.program)
            raise Error("a node could not be added", status="internal")
        return value

    def input(self, name: str, dtype: torch.dtype, shape: Iterable[Any], wanted: bool) -> int:
        """An input; shape may hold symbols. wanted: backward gives its gradient."""
        shape = list(shape)
        if dtype not in DTYPES:
            raise Error(f"input {name} is {dtype}, which Weft does not know", status="unsupported model", hint="Types are " + ", ".join(NUMBERS) + ".")
        sizes = (ctypes.c_int64 * 8)(*[s if isinstance(s, int) else -1 for s in shape][:8])
        names = [size_text(s) for s in shape if not isinstance(s, int)]
        self.symbols.update(names)
        symbols = ",".join(names)
        v = self._checked(lib.weft_graph_input(self.program, name.encode(), DTYPES[dtype], len(shape), sizes, symbols.encode() or None))
        if wanted:
            self.context.call(lib.weft_graph_wants, self.program, v)
        return v

    def constant(self, name: str, x: torch.Tensor) -> int:
        t = Tensor()
        kept = fill(t, x.detach().contiguous(), name)
        v = self._checked(lib.weft_graph_parameter(self.program, name.encode(), ctypes.byref(t), 0))
        del kept
        return v

    def emit(self, op: str, args: str, name: str, place: str) -> int:
        return self._checked(lib.weft_graph_node(self.program, op.encode(), args.encode(), name.encode(), place.encode() or None))

    def output(self, value: int, name: str) -> None:
        self.context.call(lib.weft_graph_output, self.program, value, name.encode())

    # ---- nodes ----

    def text(self, a: Any) -> str:
        """An argument as text; raises Error for what is no argument of Weft."""
        if isinstance(a, Node):
            v = a.meta.get("val")
            if isinstance(v, (torch.SymInt, int)) and not isinstance(v, bool):
                return self._size(v)
            if isinstance(v, (torch.SymFloat, torch.SymBool, float)):
                return self.text(_fixed(a.name, v))
            v = self.value[a]
            return "[" + ", ".join(f"%{x}" for x in v) + "]" if isinstance(v, list) else f"%{v}"
        if isinstance(a, torch.SymInt):
            return self._size(a)
        if isinstance(a, (torch.SymFloat, torch.SymBool)):
            return self.text(_fixed("an argument", a))
        if a is None or isinstance(a, (bool, int)):
            return str(a)
        if isinstance(a, float):
            return repr(a) if a == a and abs(a) != float("inf") else str(a)
        if isinstance(a, (list, tuple)):
            return "[" + ", ".join(self.text(x) for x in a) + "]"
        if isinstance(a, torch.dtype) and a in _TEXT:
            return _TEXT[a]
        if isinstance(a, str):
            return '"' + a.replace("\\", "\\\\").replace('"', '\\"') + '"'
        raise Error(f"an argument is {a!r}, which Weft does not take", status="unsupported model")

    def add(self, node: Node) -> None:
        """One node of the graph that is neither placeholder nor output."""
        if node.op == "get_attr":
            self.value[node] = self.constant(node.name, getattr(self.module, node.target))
            return
        target = node.target
        if target is torch._C._set_grad_enabled:
            self.grad = bool(node.args[0])
        elif target is operator.getitem:
            self.value[node] = self.value[node.args[0]][node.args[1]]
        elif isinstance(target, torch._ops.OpOverload):
            self._operator(node, target)
        elif isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            pass  # arithmetic of sizes: its users read the expression
        else:
            raise Error(f"{getattr(target, '__name__', target)} is nothing that Weft compiles", status="unsupported model", place=where(node))

    def _operator(self, node: Node, op: torch._ops.OpOverload) -> None:
        place, name = where(node), str(op)
        val = node.meta.get("val")
        if name in _CLAIMS or isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            return
        if name == "aten.lift_fresh_copy.default":
            self.value[node] = self.value[node.args[0]]
            return
        name = name.removesuffix(".default")
        schema = op._schema.arguments
        given = dict(zip((a.name for a in schema), node.args)) | node.kwargs
        parts, named = [], False
        try:
            for a in schema:
                if a.name not in given or isinstance(given[a.name], (torch.device, torch.layout, torch.memory_format)) or a.name == "generator":
                    named = True
                    continue
                text = self.text(given[a.name])
                if a.alias_info and a.alias_info.is_write and not self.grad:  # a write that autograd does not record
                    text = f"%{self.emit('aten.detach', text, node.name, place)}"
                named |= a.kwarg_only
                parts.append(f"{a.name}={text}" if named else text)
        except Error as e:
            e.place = e.place or place
            raise
        first = self.emit(name, ", ".join(parts), node.name, place)
        if isinstance(val, (list, tuple)):
            results: Any = [first + i for i in range(len(val))]
        else:
            results = first
        if not self.grad:  # what no_grad computes is a constant to the backward pass
            if isinstance(results, list):
                results = [self._constant(r, v, node, place) for r, v in zip(results, val)]
            else:
                results = self._constant(results, val, node, place)
        self.value[node] = results

    def _constant(self, value: int, val: Any, node: Node, place: str) -> int:
        real = isinstance(val, torch.Tensor) and val.is_floating_point()
        return self.emit("aten.detach", f"%{value}", node.name, place) if real else value
