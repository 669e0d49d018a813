"""torch.compile(model, backend="weft"): forward and backward of a compiled region by Weft, inside the user's own loop. Parameters stay
PyTorch's; docs/python.md has a section on it. Options (torch.compile's `options=`):

fallback  "eager": a region that Weft cannot compile runs in PyTorch, with a warning; without it, weft.Error with op and line
others    options of Weft by name, such as isa="amx" (`weft compile --help`)
"""
from __future__ import annotations

import ctypes
import os
import struct
import warnings
from typing import Any, Callable

import torch
import torch.fx.traceback
from torch._guards import TracingContext
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from ._fx import DTYPES, Builder, where
from ._lib import Context, Error, Tensor, handle_of, lib
from ._pool import Frame, Frames, Gradients, empty
from ._program import OWN_BACKWARD, OWN_BACKWARD_HINT

_INPUTS, _OUTPUTS, _COTANGENTS, _GRADIENTS, _READ, _WRITTEN = range(6)  # weft_ports
_TORCH = {number: dtype for dtype, number in DTYPES.items()}
_stats = {"compiled": 0, "fallbacks": 0, "forward": 0, "backward": 0}
_run_forward, _run_backward, _pid = lib.weft_run_forward, lib.weft_run_backward, os.getpid
_grad_enabled, _keeps_graph = torch.is_grad_enabled, torch._C._autograd._get_current_graph_task_keep_graph
_nothing = ctypes.create_string_buffer(64)
_NOTHING = ctypes.addressof(_nothing)  # what empty tensors point at


def stats(reset: bool = False) -> dict[str, int]:
    """How often, in this process: regions compiled (again for other shapes, too), regions left to PyTorch (fallback="eager"), calls of
    forward and of backward. reset: count anew."""
    now = dict(_stats)
    if reset:
        for k in _stats:
            _stats[k] = 0
    return now


def backend(gm: torch.fx.GraphModule, example_inputs: list[Any], options: dict[str, Any] | None = None, **more: Any) -> Callable[..., Any]:
    """What dynamo calls with a region and its inputs (entry point of the group torch_dynamo_backends). Raises Error, which dynamo wraps
    into BackendCompilerFailed, when Weft cannot compile the region."""
    options = dict(options or {}) | more
    fallback = options.pop("fallback", None)
    if fallback not in (None, "eager"):
        raise Error(f'fallback is {fallback!r}; it may be "eager"')
    try:
        region = _region(gm, example_inputs, options)
    except Error as e:
        if fallback != "eager" or e.status == "usage":
            raise
        _stats["fallbacks"] += 1
        warnings.warn(f"weft: a region runs in PyTorch, because Weft cannot compile it: {e}", stacklevel=2)
        return gm.forward
    _stats["compiled"] += 1
    return region


def _region(gm: torch.fx.GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> "_Region":
    nodes = list(gm.graph.nodes)
    inside = [i for i, n in enumerate(nodes) if n.target is torch.amp.autocast_mode._enter_autocast]
    if inside or torch.is_autocast_enabled("cpu"):
        place = next(filter(None, map(where, nodes[inside[0]:])), "") if inside else ""  # of what comes first in it
        raise Error("torch.autocast is on, and Weft computes every op in the dtype of its operands", status="unsupported model", place=place,
                    hint="Leave autocast away, or give the model the dtype: model.bfloat16().")
    try:
        return _Region(gm, example_inputs, options)
    except (Error, torch._dynamo.exc.TorchDynamoException):
        raise
    except Exception as e:
        said = next((line for line in str(e).splitlines() if line.strip()), "")
        raise Error(f"PyTorch cannot take the region apart into tensor operators: {type(e).__name__}: {said}", status="unsupported model",
                    hint="Keep torch.func, subclasses of tensors and operators of your own out of what is compiled.") from e


# ---- from dynamo's graph to ATen ----

class _Interpreter(torch.fx.Interpreter):
    """Runs a region for make_fx. What torch.utils.checkpoint wraps is part of it: what is computed again is Weft's choice."""

    def run_node(self, n: Node) -> Any:
        if n.target is torch.ops.higher_order.autograd_function_apply and torch.is_grad_enabled():
            args = (self.env.get(a) for a in n.all_input_nodes)
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
                raise Error(OWN_BACKWARD, status="unsupported model", place=where(n), hint=OWN_BACKWARD_HINT)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.higher_order.tag_activation_checkpoint:
            return type(self)(args[0]).run(*args[1:])
        return super().call_function(target, args, kwargs)


def _aten(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> torch.fx.GraphModule:
    """The region over ATen operators as autograd would see them, with shapes (meta["val"]) and lines (meta["stack_trace"])."""
    mode = TracingContext.get().fake_mode
    fakes = [mode.from_tensor(e) if isinstance(e, torch.Tensor) else e for e in example_inputs]
    for i, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder"):
        if isinstance(node.meta.get("example_value"), torch.SymInt):
            fakes[i] = node.meta["example_value"]

    def run(*args: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return _Interpreter(gm).run(*args)

    with mode, torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):  # the caller's are not for what tracing saves
        return make_fx(run, pre_dispatch=True)(*fakes)


def _dense_order(t: torch.Tensor) -> list[int] | None:
    """The order of t's dimensions in memory, slowest first, when it is dense in some order; None otherwise."""
    order = sorted(range(t.dim()), key=lambda d: (-int(_hint(t.stride(d))), d))
    expect: Any = 1
    for d in reversed(order):
        if _hint(t.shape[d]) != 1 and _hint(t.stride(d)) != _hint(expect):
            return None
        expect = expect * t.shape[d]
    return order


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def _laid(t: Tensor, order: list[int] | None) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Shape, strides and dtype of a tensor whose dimensions, as they lie (order), are t's."""
    shape, strides, step = list(t.shape[:t.rank]), [0] * t.rank, 1
    for d in range(t.rank - 1, -1, -1):
        strides[d] = step
        step *= max(shape[d], 1)
    turn = _inverse(order) if order else range(t.rank)
    return tuple(shape[d] for d in turn), tuple(strides[d] for d in turn), _TORCH[t.dtype]


def _is_view(node: Any) -> bool:
    """Does the result show the first operand's memory?"""
    if not isinstance(node, Node) or not isinstance(node.target, torch._ops.OpOverload) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    source = node.args[0] if node.args else None
    return isinstance(source, Node) and isinstance(source.meta.get("val"), torch.Tensor) and not node.target._schema.is_mutable \
        and _storage(source) == _storage(node)


def _storage(node: Node) -> int:
    return node.meta["val"].untyped_storage()._cdata


def _replay(chain: list[Node]) -> Callable[[torch.Tensor, Callable[[Node], int]], torch.Tensor]:
    """The views of a chain, made again by PyTorch of the tensor below; `size` gives the value of a node that is a symbolic size."""
    def run(x: torch.Tensor, size: Callable[[Node], int]) -> torch.Tensor:
        for node in chain:
            rest = torch.fx.node.map_arg(node.args[1:], size)
            x = node.target(x, *rest, **node.kwargs)
        return x
    return run


class _Region:
    """A compiled region: called with dynamo's inputs, returns its outputs."""

    def __init__(self, gm: torch.fx.GraphModule, example_inputs: list[Any], options: dict[str, Any]):
        graph = _aten(gm, example_inputs)
        self.context = Context(None)
        self.frames = Frames()
        nodes = list(graph.graph.nodes)
        places = [n for n in nodes if n.op == "placeholder"]
        grad = torch.is_grad_enabled()
        wanted = [grad and isinstance(e, torch.Tensor) and e.requires_grad for e in example_inputs]
        builder = Builder(self.context, graph)
        self._inputs(builder, places, example_inputs, wanted)
        for node in nodes:
            if node.op in ("call_function", "get_attr"):
                builder.add(node)
            elif node.op not in ("placeholder", "output"):
                raise Error(f"{node.op} {node.target} is nothing that Weft compiles", status="unsupported model", place=where(node))
        self._outputs(builder, places, nodes[-1].args[0])
        self.random = any(_draws(n) for n in nodes)
        self.context.call(lib.weft_graph_finish, builder.program)
        settings = {"threads": torch.get_num_threads(), "halves": "both"} | {k.replace("_", "-"): v for k, v in options.items()}
        for name, value in settings.items():
            self.context.call(lib.weft_set, builder.program, name.encode(), str(value).lower().encode())
        self.context.wait(lib.weft_compile, builder.program)
        self.session = handle_of(lib.weft_session_new, self.context, builder.program)
        self.program = builder.program
        self._ports(places, example_inputs, wanted)

    # ---- made once ----

    def _inputs(self, builder: Builder, places: list[Node], examples: list[Any], wanted: list[bool]) -> None:
        """Tensors become inputs i0, i1, ...: in the order of their memory, so that nothing has to be copied; sizes are read off."""
        self.order: list[list[int] | None] = []     # by input: its dimensions as they lie, when that is not row-major
        self.copied: list[int] = []                 # inputs that have gaps or negate their memory, and are copied at every call
        self.sizes: dict[str, tuple[int, int]] = {}  # symbol -> (input, dimension; -1: the input itself)
        for i, (node, example) in enumerate(zip(places, examples)):
            val = node.meta["val"]
            self.order.append(None)
            if isinstance(val, torch.SymInt) and val.node.expr.is_Symbol:
                self.sizes.setdefault(str(val.node.expr), (i, -1))
            if not isinstance(val, torch.Tensor):
                continue
            if val.device.type != "cpu":
                raise Error(f"{node.target} lies on {val.device}, and Weft computes on the processor", status="unsupported model")
            order = None if example.is_neg() else _dense_order(val)
            if order is None and isinstance(example, torch.nn.Parameter):
                raise Error(f"{node.target} is a parameter with gaps in its memory (strides {tuple(val.stride())})", status="unsupported model",
                            hint="Make it dense: p.data = p.data.contiguous().")
            if order is None:
                self.copied.append(i)
            order = order or list(range(val.dim()))
            for d, size in enumerate(val.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self.sizes.setdefault(str(size.node.expr), (i, d))
            v = builder.input(f"i{i}", val.dtype, [val.shape[d] for d in order], wanted[i])
            if order != list(range(val.dim())):
                self.order[i] = order
                v = builder.emit("aten.permute", f"%{v}, {_inverse(order)}", f"{node.name}_as_given", "")
            builder.value[node] = v

    def _outputs(self, builder: Builder, places: list[Node], results: Any) -> None:
        """Every result is None or a number, an input, a view of an input or of an output, or an output of the program."""
        number = {n: i for i, n in enumerate(places)}
        inputs = {_storage(n): n for n in places if isinstance(n.meta["val"], torch.Tensor)}
        made: dict[Node, int] = {}
        uses: dict[int, int] = {}
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        for r in results:
            if isinstance(r, Node) and isinstance(r.meta.get("val"), torch.Tensor):
                uses[_storage(r)] = uses.get(_storage(r), 0) + 1
        self.results: list[tuple[Any, ...]] = []
        self.laid: list[list[int] | None] = []       # by output: its dimensions as they lie, when that is not row-major
        for r in results:
            if not isinstance(r, Node):
                self.results.append(("constant", r))
                continue
            val = r.meta.get("val")
            if not isinstance(val, torch.Tensor):
                if not isinstance(val, (int, float, torch.SymInt)):
                    raise Error(f"{r.name} is a number that only the data tell", status="unsupported model", place=where(r), hint="Return a tensor.")
                self.results.append(("size", val) if isinstance(val, torch.SymInt) else ("constant", val))
                continue
            if r in number:
                self.results.append(("input", number[r]))
                continue
            chain: list[Node] = []
            base = r
            of_input = _storage(r) in inputs
            while (of_input or uses[_storage(r)] > 1) and _is_view(base):
                chain.insert(0, base)
                base = base.args[0]
            if of_input and base not in number:
                base = inputs[_storage(r)] if base.op != "placeholder" and _same(base, inputs[_storage(r)]) else base
            if base in number:
                self.results.append(("view", ("input", number[base]), _replay(chain)))
                continue
            if base not in made:
                made[base] = len(made)
                v, order = builder.value[base], _dense_order(base.meta["val"])
                turned = order is not None and order != list(range(len(order)))
                if turned:
                    v = builder.emit("aten.permute", f"%{v}, {order}", f"{base.name}_as_wanted", where(base))
                self.laid.append(order if turned else None)
                builder.output(v, base.name)
            self.results.append(("view", ("output", made[base]), _replay(chain)) if chain else ("output", made[base]))
        self.outputs = len(made)
        self.plain = self.results == [("output", k) for k in range(self.outputs)]

    def _names(self, ports: int) -> list[str]:
        return [lib.weft_port_name(self.session, ports, i).decode() for i in range(lib.weft_port_count(self.session, ports))]

    def _shapes(self, ports: int, orders: list[list[int] | None], sizes: Any) -> list[tuple[Any, ...]]:
        out, t = [], Tensor()
        for i, order in enumerate(orders):
            self.context.call(lib.weft_port, self.session, ports, i, sizes, ctypes.byref(t))
            out.append(_laid(t, order))
        return out

    def _ports(self, places: list[Node], examples: list[Any], wanted: list[bool]) -> None:
        """What goes where, by number, and where nothing needs to go."""
        def index(name: str) -> int:
            return int(name[1:]) if name[:1] == "i" and name[1:].isdigit() else -1
        self.inputs = [index(n) for n in self._names(_INPUTS)]             # -1: a constant, which the session has
        self.gradients = [index(n) for n in self._names(_GRADIENTS)]
        self.cotangents = [int(n) for n in self._names(_COTANGENTS)]
        self.written = [index(n) for n in self._names(_WRITTEN)]
        self.read = sorted({index(n) for n in self._names(_READ)} - {-1})  # by backward
        self.symbols = []
        for i in range(lib.weft_size_count(self.session)):
            name = lib.weft_size_name(self.session, i).decode()
            if name not in self.sizes:
                raise Error(f"no input tells the size {name}", status="unsupported model", hint="Compile with dynamic=False.")
            self.symbols.append(self.sizes[name])
        for i in self.written:
            if wanted[i] or i in self.copied:
                raise Error(f"{places[i].target} is changed in place, and " + ("requires a gradient" if wanted[i] else "has gaps in its memory"),
                            status="unsupported model", hint="Change a copy of it.")
            shared = [k for k, e in enumerate(examples) if k != i and isinstance(e, torch.Tensor) and e.untyped_storage().data_ptr() ==
                      examples[i].untyped_storage().data_ptr() and e.numel() and examples[i].numel()]
            if shared:
                raise Error(f"{places[i].target} is changed in place, and shares its memory with {places[shared[0]].target}", status="unsupported model",
                            hint="Change a copy of it.")
        self.kept = [self.read.index(i) if i in self.read else -1 for i in self.inputs]  # by input port: which saved tensor
        self.turned = [(k, self.laid[k]) for k in self.cotangents]
        self.constant = [k for k in range(self.outputs) if k not in self.cotangents]
        self.pack_inputs, self.pack_outputs, self.pack_cotangents, self.pack_gradients = (  # pointers, one at least
            struct.Struct(f"{n + 1}P").pack for n in (len(self.inputs), self.outputs, len(self.cotangents), len(self.gradients)))
        self.memory = Gradients([all(isinstance(n, int) for n in places[i].meta["val"].shape) for i in self.gradients])
        number = {i: k for k, i in enumerate(self.gradients)}
        self.places = [None, None, *[number.get(i) for i in range(len(places))]]  # by argument of _Call.apply: which gradient
        self.known: dict[tuple[int, ...], Any] = {}
        self.static = None if self.symbols else self._sized(())

    def _sized(self, values: tuple[int, ...]) -> Any:
        """Shapes of outputs and gradients, and the frame's size, under values of the symbols."""
        sizes = (ctypes.c_int64 * max(1, len(values)))(*values)
        frame = ctypes.c_size_t()
        self.context.call(lib.weft_frame_bytes, self.session, sizes, ctypes.byref(frame))
        return (sizes, frame.value, self._shapes(_OUTPUTS, self.laid, sizes),
                self._shapes(_GRADIENTS, [self.order[i] for i in self.gradients], sizes))

    # ---- at every call ----

    def _at(self, inputs: Any) -> Any:
        values = tuple(inputs[i] if d < 0 else inputs[i].shape[d] for i, d in self.symbols)
        found = self.known.get(values)
        if found is None:
            if len(self.known) > 256:
                self.known.clear()
            found = self.known[values] = self._sized(values)
        return found

    def __call__(self, *inputs: Any) -> list[Any]:
        given = inputs
        if self.copied:
            given = tuple(x.resolve_neg().contiguous() if i in self.copied else x for i, x in enumerate(inputs))
        plan = self.static or self._at(inputs)
        if not self.outputs and not self.written:
            outputs: Any = ()
        elif self.gradients and _grad_enabled():
            outputs = _Call.apply(self, plan, *given)
        else:
            outputs = self.forward(plan, given)[0]
        for i in self.written:
            torch.autograd.graph.increment_version(inputs[i])
        return list(outputs) if self.plain else [self._result(r, inputs, outputs) for r in self.results]

    def _result(self, r: tuple[Any, ...], inputs: Any, outputs: Any) -> Any:
        kind = r[0]
        if kind == "output":
            return outputs[r[1]]
        if kind == "input":
            return inputs[r[1]]
        if kind == "view":
            return r[2](self._result(r[1], inputs, outputs), lambda n: self._size(n.meta["val"], inputs))
        if kind == "size":
            return self._size(r[1], inputs)
        return r[1]

    def _size(self, size: Any, inputs: Any) -> int:
        """The value of a size that may be symbolic."""
        if isinstance(size, int):
            return size
        e = size.node.expr
        return int(e.subs({s: inputs[i] if d < 0 else inputs[i].shape[d] for s in e.free_symbols for i, d in [self.sizes[str(s)]]}))

    # What follows runs at every step of small models, for which each call of Python counts: it goes to C by itself, as Context.call would.

    def forward(self, plan: Any, inputs: Any) -> tuple[tuple[torch.Tensor, ...], Frame | None]:
        _stats["forward"] += 1
        sizes, bytes_, shapes, _ = plan
        outputs = tuple([empty(*shape) for shape in shapes])
        frame = self.frames.take(bytes_) if bytes_ else None
        seed = int(torch.randint(0, 2**62, (), dtype=torch.int64)) if self.random else 0
        given = self.pack_inputs(*[0 if i < 0 else inputs[i].data_ptr() or _NOTHING for i in self.inputs], 0)
        made = self.pack_outputs(*[x.data_ptr() or _NOTHING for x in outputs], 0)
        context = self.context
        if _pid() != context.pid:
            context.own()
        with context.lock:
            status = _run_forward(self.session, sizes, seed, given, made, frame.pointer if frame else None)
            if status:
                raise context.error(status)
        return outputs, frame


class _Call(torch.autograd.Function):
    """A call of a region, as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, region: _Region, plan: Any, *inputs: Any) -> Any:
        outputs, ctx.frame = region.forward(plan, inputs)
        ctx.of = region, plan
        ctx.save_for_backward(*[inputs[i] for i in region.read])
        if region.constant:
            ctx.mark_non_differentiable(*[outputs[k] for k in region.constant])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if _grad_enabled():
            raise Error("a region that Weft compiled has no second derivative (create_graph=True)", status="unsupported model",
                        hint="Leave the part that is differentiated twice outside of torch.compile, or compile it with another backend.")
        _stats["backward"] += 1
        saved, (region, (sizes, _, _, shapes)), frame = ctx.saved_tensors, ctx.of, ctx.frame  # saved: the inputs of region.read, in order
        gradients = region.memory.take(shapes)
        seeds = [cotangents[k] if order is None else cotangents[k].permute(order) for k, order in region.turned]
        seeds = [x if x.is_contiguous() and not x.is_neg() else x.resolve_neg().contiguous() for x in seeds]
        given = region.pack_inputs(*[0 if i < 0 else saved[i].data_ptr() or _NOTHING for i in region.kept], 0)
        wanted = region.pack_cotangents(*[x.data_ptr() or _NOTHING for x in seeds], 0)
        made = region.pack_gradients(*[x.data_ptr() or _NOTHING for x in gradients], 0)
        context = region.context
        if _pid() != context.pid:
            context.own()
        with context.lock:
            status = _run_backward(region.session, sizes, given, wanted, made, frame.pointer)
            if status:
                raise context.error(status)
        if not _keeps_graph():
            ctx.frame = None
        return *[None if k is None else gradients[k] for k in region.places],


def _same(a: Node, b: Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return x.shape == y.shape and x.stride() == y.stride() and x.storage_offset() == y.storage_offset()


def _draws(node: Node) -> bool:
    """Does it draw random numbers?"""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = dict(zip((a.name for a in node.target._schema.arguments), node.args)) | node.kwargs
    return given.get("train", True) is not False and given.get("dropout_p", 1) != 0
