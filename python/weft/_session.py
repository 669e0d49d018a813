"""Sessions: what trains. The calls of weft.h with Python's tensors."""
from __future__ import annotations

import ctypes
import logging
import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from ctypes import byref, c_double, c_int64
from typing import Any

from . import _options
from ._lib import Context, Error, Tensor, handle_of, lib
from ._memory import fill, shape_of, torch_module, view
from ._program import Program, open as open_program, take_text
from ._world import World, world

TRAINABLE, BUFFER, TRANSIENT = 1, 2, 4  # flags of weft_parameter_flags
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_log = logging.getLogger("weft")


def _free(context: Context, program: ctypes.c_void_p) -> None:
    if os.getpid() == context.pid:
        with context.lock:
            lib.weft_program_free(program)


class _Live:
    """The C half of a session. Views of its memory hold it, so a closed session's memory goes when the last of them does."""

    def __init__(self, context: Context, program: ctypes.c_void_p, handle: ctypes.c_void_p):
        self.context, self.program, self.handle = context, program, handle
        self._end = weakref.finalize(self, _free, context, program)
        self._end.atexit = False  # the context goes then, and all with it


class _Slot:
    """An input of the step, and the weft_tensor that it is fed through."""

    __slots__ = ("name", "c_name", "what", "tensor", "ref", "dtype", "shape")

    def __init__(self, name: str, like: Tensor):
        self.name, self.c_name, self.what = name, name.encode(), "input " + name
        self.tensor = Tensor()
        self.ref = byref(self.tensor)
        self.dtype, self.shape = like.dtype, shape_of(like)


class Session:
    """Trains a program: owns weights, buffers and optimiser state, and one planned slab of memory.

    program    of weft.export or weft.open; or the path of a .pt2 or .weft
    optimizer  a torch.optim optimiser over the exported model's parameters (its groups become Weft's, its state, if it has any, is where
               the session starts), or a dict: dict(type="AdamW", lr=1e-3, param_groups=[dict(params=["*.bias"], weight_decay=0)])
    schedule   of the learning rate: "cosine" or dict(type="cosine", total_steps=1000, warmup_steps=10) as of `weft train`; or a
               scheduler of torch.optim.lr_scheduler, which the session steps and follows
    threads    of a step (default: all cores, shared among the ranks of a host)
    ranks      False: train alone, even where a launcher made this process a rank
    options    those of `weft train` with underscores: clip_norm=1.0, accumulate=4, seed=1, check_finite=True, ...

    The step is compiled here, or taken from the cache; Ctrl-C ends that. One thread at a time uses a session; different sessions may
    step in different threads at once. After os.fork() only the process that made it may use it. Raises Error."""

    def __init__(self, program: Program | str | os.PathLike[str], optimizer: Any = None, *, schedule: Any = None,
                 threads: int | None = None, ranks: bool = True, **options: Any):
        if not isinstance(program, (Program, str, os.PathLike)):
            raise Error(f"the program is a {type(program).__name__}", hint="weft.export(model, samples) makes one; a path opens one.")
        program = program if isinstance(program, Program) else open_program(program)
        self.program = program
        self._optimizer: Any = None
        self._scheduler: Any = None
        self._rates: list[float] = []                # of the optimiser's groups, which the scheduler scales
        self._now_rates: list[float] | None = None
        self._world = world() if ranks else World(0, 1, 0, None, None)
        follows = schedule is not None and hasattr(schedule, "get_last_lr")
        given = list(program.options) + self._optimizer_options(optimizer, "initial_lr" if follows else "lr")
        if follows:
            self._follow(schedule)
        elif schedule is not None:
            given += _options.of_schedule(schedule)
        if self._world.size > 1:
            given.append(("nproc", str(self._world.size)))
            threads = threads or self._world.threads or None
        given += _options.of_keywords({"threads": threads, **options})
        context = self._world.context or Context(lambda level, line: _log.log(_LEVELS[min(level, 3)], "%s", line))
        _, handle = program.open(given, context)
        try:
            if self._world.size > 1:
                context.wait(lib.weft_compile_together, handle, self._world.handle)
            session = handle_of(lib.weft_session_new, context, handle, wait=True)
        except BaseException:
            _free(context, handle)
            raise
        self._live: _Live | None = _Live(context, handle, session)
        self._slots = self._inputs(session)
        self._names = [s.name for s in self._slots]
        self._loss = c_double()
        self._loss_ref = byref(self._loss)
        self._parameters = self._table(session)
        if self._scheduler is not None:
            self._take_rates()
        if self._optimizer is not None and self._optimizer.state_dict()["state"]:
            self.load_optimizer_state_dict(self._optimizer.state_dict())
        if self._world.size > 1:
            context.wait(lib.weft_join, session, self._world.handle)

    # ---- making ----

    def _optimizer_options(self, optimizer: Any, rate: str) -> _options.Options:
        if optimizer is None:
            return []
        if isinstance(optimizer, Mapping):
            return _options.of_dict(optimizer)
        if not hasattr(optimizer, "param_groups"):
            raise Error(f"the optimiser is a {type(optimizer).__name__}",
                        hint='Give one of torch.optim over the model\'s parameters, or dict(type="AdamW", lr=1e-3).')
        names: dict[int, str] = {}
        if self.program.model is not None:
            trained = [n for n, p in self.program.model.named_parameters() if p.requires_grad]
            names = {id(p): n for n, p in self.program.model.named_parameters()}
        else:
            for group in optimizer.param_groups:
                names.update({id(p): n for n, p in zip(group.get("param_names", ()), group["params"])})
            trained = list(names.values())
            if not names:
                raise Error("the program comes from a file, so nobody knows which parameter of the optimiser is which",
                            hint="Make the optimiser from model.named_parameters(), or give a dict.")
        self._optimizer, self._optimizer_names = optimizer, names
        return _options.of_torch(optimizer, names, trained, rate)

    def _follow(self, scheduler: Any) -> None:
        if self._optimizer is None or scheduler.optimizer is not self._optimizer:
            raise Error("the scheduler is of another optimiser than the session's", hint="Session(program, optimizer, schedule=Scheduler(optimizer, ..))")
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            raise Error("ReduceLROnPlateau wants a metric at each of its steps, which a session has not", status="unsupported model",
                        hint='Step it yourself: scheduler.step(loss); session.lr = optimizer.param_groups[0]["lr"].')
        if getattr(scheduler, "cycle_momentum", False):
            raise Error(f"the {type(scheduler).__name__} cycles the momentum, too, and Weft's stays as it is", status="unsupported model",
                        hint="Make it with cycle_momentum=False.")
        self._scheduler = scheduler
        self._optimizer._opt_called = True  # what makes its first step() silent: Weft does what optimizer.step() would
        self._rates = [float(g["initial_lr"]) for g in self._optimizer.param_groups]  # a warm-up may begin at zeros, which have no ratio
        if not self._rates[0] and any(self._rates):
            raise Error(f"the first group's learning rate is 0, and Weft's others follow it by their ratio: {self._rates}", status="unsupported model",
                        hint="Give the optimiser a group with a learning rate first, or freeze what does not train: parameter.requires_grad_(False).")

    def _inputs(self, session: ctypes.c_void_p) -> list[_Slot]:
        slots = []
        for i in range(lib.weft_input_count(session)):
            t = Tensor()
            self._check(lib.weft_input(session, i, byref(t)))
            slots.append(_Slot(lib.weft_input_name(session, i).decode(), t))
        return slots

    def _table(self, session: ctypes.c_void_p) -> "OrderedDict[str, tuple[str, int]]":
        """Every name of a parameter or buffer: (its first name, flags)."""
        table: OrderedDict[str, tuple[str, int]] = OrderedDict()
        for i in range(lib.weft_parameter_count(session)):
            name, flags, k = lib.weft_parameter_name(session, i).decode(), lib.weft_parameter_flags(session, i), 0
            table[name] = (name, flags)
            while (alias := lib.weft_parameter_alias(session, i, k)) is not None:
                table[alias.decode()] = (name, flags)
                k += 1
        if self.program.model is not None:  # in PyTorch's order
            order = {n: i for i, n in enumerate(self.program.model.state_dict())}
            table = OrderedDict(sorted(table.items(), key=lambda item: order.get(item[0], len(order))))
        return table

    # ---- calling ----

    @property
    def _c(self) -> _Live:
        if self._live is None:
            raise Error("the session is closed")
        return self._live

    def _check(self, status: int) -> None:
        if status:
            raise self._c.context.error(status)

    def close(self) -> None:
        """Frees the session's memory, as soon as no tensor that it lent is used any more. Later calls raise Error."""
        self._live = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def inputs(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of what a batch holds, in order; -1 stands for a size that the batch chooses."""
        return [(s.name, s.shape) for s in self._slots]

    def _items(self, batch: Any, names: list[str]) -> Iterable[Any]:
        """The batch's tensors in the order of the inputs."""
        if isinstance(batch, Mapping):
            missing, more = [n for n in names if n not in batch], [k for k in batch if k not in names]
            if missing or more:
                raise Error(f"the batch has {', '.join(map(str, batch))}, and the step takes {', '.join(names)}", status="data",
                            hint=f"It lacks {', '.join(missing)}." if missing else f"Leave out {', '.join(map(str, more))}.")
            return [batch[n] for n in names]
        items = batch if isinstance(batch, (tuple, list)) else (batch,)
        if any(isinstance(x, (tuple, list, Mapping)) for x in items):
            items = list(_leaves(items))
        if len(items) != len(names):
            raise Error(f"the batch has {len(items)} tensor{'s' if len(items) != 1 else ''}, and the step takes {len(names)}: {', '.join(names)}",
                        status="data")
        return items

    def _feed(self, live: _Live, batch: Any, rows: int | None, names: list[str] | None = None) -> list[Any]:
        """Feeds the inputs (names: these, and takes back the others); returns what must live until the call that reads them has ended. Under
        the context's lock."""
        keep, handle, slots = [], live.handle, self._slots
        if names is not None:
            slots = [s for s in slots if s.name in names]
            for slot in self._slots:
                self._check(lib.weft_feed(handle, slot.c_name, None))
        for slot, x in zip(slots, self._items(batch, self._names if names is None else names)):
            keep.append(fill(slot.tensor, x, slot.what))
            status = lib.weft_feed(handle, slot.c_name, slot.ref)
            if status:
                raise live.context.error(status)
        if rows is not None:
            self._check(lib.weft_rows(handle, rows))
        return keep

    def _run(self, fn: Any, batch: Any, rows: int | None, *args: Any) -> float:
        live = self._live
        if live is None:
            raise Error("the session is closed")
        context = live.context
        context.own()
        with context.lock:
            keep = self._feed(live, batch, rows)
            status = fn(live.handle, *args, self._loss_ref)
            del keep
            if status:
                raise context.error(status)
            return self._loss.value

    # ---- training ----

    def step(self, batch: Any, *, rows: int | None = None) -> float:
        """Forward, backward, update; returns the loss (its mean over micro-batches and ranks).

        batch  a tuple or list of tensors in the order of the export, the target last; a dict by name; or a single tensor. Of torch, numpy,
               or anything with __dlpack__ or the buffer protocol, in the processor's memory, contiguous, of the export's dtypes and shapes;
               read in place
        rows   only so many of its rows are samples, the others padding (last_batch="pad")

        Raises Error; weights and optimiser state are then those of before the step. The GIL is free meanwhile; Ctrl-C arrives after the
        step that is running."""
        loss = self._run(lib.weft_step, batch, rows)
        if self._scheduler is not None:
            self._scheduler.step()
            self._take_rates()
        return loss

    def micro(self, batch: Any, *, rows: int | None = None) -> float:
        """With accumulate=K: forward and backward of one of the K - 1 micro-batches before step(); returns its loss."""
        return self._run(lib.weft_micro, batch, rows)

    def _take_rates(self) -> None:
        rates = [float(g["lr"]) for g in self._optimizer.param_groups]
        if rates == self._now_rates:
            return
        if any(abs(r * self._rates[0] - rates[0] * b) > 1e-9 * abs(rates[0] * b) for r, b in zip(rates, self._rates)):
            raise Error(f"the scheduler set the groups' learning rates to {rates}, and Weft's keep the ratio that they began with: {self._rates}",
                        status="unsupported model", hint="Give all groups one course.")
        self.lr = rates[0]
        self._now_rates = rates

    @property
    def lr(self) -> float:
        """The learning rate (of the first group; others keep their ratio to it). May be set between steps."""
        return self.metric("lr")

    @lr.setter
    def lr(self, value: float) -> None:
        live = self._c
        live.context.call(lib.weft_set, live.program, b"lr", repr(float(value)).encode())

    @property
    def steps(self) -> int:
        """Steps that the optimiser has done."""
        return int(self.metric("step"))

    def metric(self, name: str) -> float:
        """Of the last step: loss, mean_loss, loss_count, grad_norm, lr, step, step_s, slab_bytes, state_bytes."""
        live, out = self._c, c_double()
        live.context.call(lib.weft_metric, live.handle, name.encode(), byref(out))
        return out.value

    def gradient(self, name: str) -> Any:
        """The last step's gradient of a parameter, before clipping; the memory is reused by the next step."""
        live, t = self._c, Tensor()
        live.context.call(lib.weft_gradient, live.handle, name.encode(), byref(t))
        return view(t, live)

    # ---- evaluation ----

    def evaluate(self, batches: Iterable[Any], metrics: str | Iterable[str] | None = None) -> dict[str, float]:
        """Loss and metrics of the evaluation form (no dropout, running statistics) over batches, each as of step(): one mean over all their
        rows, and over those of all ranks, each of which evaluates its own.

        metrics  "loss,accuracy,top5,f1,perplexity,mse,mae" or a list; default: the loss, and accuracy where there are classes

        A last batch may have fewer rows, which count as they are. Raises Error."""
        names = metrics if isinstance(metrics, str) or metrics is None else ",".join(metrics)
        live = self._c
        live.context.call(lib.weft_evaluate_begin, live.handle, names.encode() if names is not None else None)
        for batch in batches:
            self._run(lib.weft_evaluate, batch, None)
        live.context.wait(lib.weft_evaluate_end, live.handle)
        out, value, i = {}, c_double(), 0
        while (name := lib.weft_evaluated(live.handle, i, byref(value))) is not None:
            if names is not None or value.value == value.value:
                out[name.decode()] = value.value
            i += 1
        return out

    def forward(self, batch: Any, *, eval: bool = False) -> tuple[float, list[Any]]:
        """(loss, what the model's forward gives, as a flat list of copies), without an update: in training form, or in evaluation form. The
        loss is nan where the program has none."""
        live = self._c
        with live.context.lock:
            loss = self._run(lib.weft_forward, batch, None, int(eval))
            return loss, [v for name, v in self._outputs(live) if name != "predictions"]

    def predict(self, inputs: Any) -> Any:
        """The predictions for a batch, in evaluation form, as `weft run` writes them: what the loss scores; of a model without a loss its
        first output. A copy. inputs: as of step(); what the predictions do not depend on (a target) is not read, and may be left out. They may
        have fewer rows than an export with a fixed batch, and the predictions then have as many. Raises Error."""
        live, t = self._c, Tensor()
        if not isinstance(inputs, Mapping):
            items = list(_leaves(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
            inputs = dict(zip(self._names, items)) if len(items) <= len(self._names) else items
        known = isinstance(inputs, Mapping) and all(n in self._names for n in inputs)
        names = [n for n in self._names if n in inputs] if known else self._names
        live.context.own()
        with live.context.lock:
            keep = self._feed(live, inputs, None, names)
            self._check(lib.weft_predict(live.handle, byref(t)))
            del keep
            return _copied(view(t, live))

    def _outputs(self, live: _Live) -> list[tuple[str, Any]]:
        out = []
        for i in range(lib.weft_output_count(live.handle)):
            t = Tensor()
            self._check(lib.weft_output(live.handle, i, byref(t)))
            out.append((lib.weft_output_name(live.handle, i).decode(), _copied(view(t, live))))
        return out

    # ---- weights and state ----

    def _view(self, name: str) -> Any:
        live, t = self._c, Tensor()
        live.context.call(lib.weft_parameter, live.handle, name.encode(), byref(t))
        return view(t, live)

    def state_dict(self) -> "OrderedDict[str, Any]":
        """Weights and buffers under PyTorch's names, as module.load_state_dict(.., strict=True) takes them. They are the live memory: a later
        step changes them, and what is written into them is trained on."""
        once = {first: self._view(first) for first, flags in self._parameters.values() if not flags & TRANSIENT}
        return OrderedDict((name, once[first]) for name, (first, _) in self._parameters.items() if first in once)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Copies weights and buffers in, as module.load_state_dict does. Raises Error for missing and unexpected names (strict) and for other
        shapes; nothing changes then."""
        live = self.state_dict()
        missing, more = [n for n in live if n not in state], [n for n in state if n not in live]
        if strict and (missing or more):
            raise Error("the state_dict does not fit:" + (f" it lacks {', '.join(missing[:5])}" if missing else "")
                        + (f" it has {', '.join(more[:5])}, which the model has not" if more else ""), status="data", hint="strict=False leaves them out.")
        for name in live.keys() & state.keys():
            if tuple(live[name].shape) != tuple(state[name].shape):
                raise Error(f"{name} is {tuple(state[name].shape)}, and the model's {tuple(live[name].shape)}", status="data")
        for name in live.keys() & state.keys():
            _copy(live[name], state[name])

    def _optimizer_like(self) -> tuple[dict[str, Any], dict[int, str]]:
        """(a torch optimiser's state_dict for its groups, names of its parameters by number)."""
        if self._optimizer is None:
            raise Error("the session's optimiser was not one of torch.optim, so there is none that takes its state",
                        hint="Give the session a torch.optim optimiser; Session.save keeps the state in any case.")
        flat = [p for g in self._optimizer.param_groups for p in g["params"]]
        return self._optimizer.state_dict(), {i: self._optimizer_names[id(p)] for i, p in enumerate(flat)}

    def _states(self) -> "OrderedDict[str, Any]":
        """The optimiser's live tensors as docs/exchange.md names them."""
        live, out = self._c, OrderedDict()
        for i in range(lib.weft_state_count(live.handle)):
            t = Tensor()
            live.context.call(lib.weft_state, live.handle, i, byref(t))
            kind, of = lib.weft_state_kind(live.handle, i), lib.weft_state_parameter(live.handle, i)
            out[f"{kind.decode()}/{of.decode()}"] = view(t, live)
        return out

    def optimizer_state_dict(self) -> dict[str, Any]:
        """What optimizer.load_state_dict takes, for the optimiser that the session was given. Its tensors are the live memory."""
        import torch

        from ._exchange import optimizer_from_weft
        like, names = self._optimizer_like()
        tensors = {**self._states(), "step": torch.tensor(self.steps)}
        return optimizer_from_weft(tensors if self.steps else {"step": tensors["step"]}, {**like, "state": {}}, names, self._first_names())

    def load_optimizer_state_dict(self, state: Mapping[str, Any], step: int | None = None) -> None:
        """Copies the state of the torch.optim optimiser that the session was given. step: how many steps SGD has done, which does not count
        them. Raises Error for what does not fit."""
        from ._exchange import optimizer_to_weft
        _, names = self._optimizer_like()
        try:
            tensors = optimizer_to_weft(state, names, step)
        except ValueError as e:
            raise Error(str(e), status="data") from None
        first = {alias: group[0] for group in self._first_names() for alias in group}
        given = {f"{k.split('/', 1)[0]}/{first.get(k.split('/', 1)[1], '?')}": v for k, v in tensors.items() if k != "step"}
        live = self._states()
        missing, more = [k for k in live if k not in given], [k for k in given if k not in live]
        if given and (missing or more):
            raise Error("the optimiser's state does not fit:" + (f" it lacks {', '.join(missing[:5])}" if missing else "")
                        + (f" it has {', '.join(more[:5])}" if more else ""), status="data")
        for key, value in given.items():
            if tuple(live[key].shape) != tuple(value.shape):
                raise Error(f"{key} is {tuple(value.shape)}, and the step's {tuple(live[key].shape)}", status="data")
        for key, value in given.items():
            _copy(live[key], value)
        self._c.context.call(lib.weft_set_step, self._c.handle, int(tensors["step"]))

    def _first_names(self) -> list[list[str]]:
        """Names of each tensor, the one that C uses first."""
        groups: dict[str, list[str]] = {}
        for name, (first, _) in self._parameters.items():
            groups.setdefault(first, [first]).append(name)
        return list(groups.values())

    # ---- files ----

    def save(self, folder: str | os.PathLike[str], keep: int = 3) -> None:
        """A checkpoint (weights, buffers, optimiser state, step) in FOLDER/checkpoints, as `weft train` writes them; the newest `keep` stay.
        Every rank calls it. Raises Error; earlier ones are untouched then."""
        live = self._c
        live.context.wait(lib.weft_checkpoint, live.handle, os.fsencode(folder), keep)

    def resume(self, folder: str | os.PathLike[str]) -> int:
        """Goes on from the newest whole checkpoint of the folder; returns how many steps are done, -1 when there is none. Damaged ones are
        left out with a warning (logger "weft"). Raises Error for one of another model or optimiser. Every rank calls it."""
        live, step = self._c, c_int64()
        live.context.wait(lib.weft_resume, live.handle, os.fsencode(folder), byref(step))
        return step.value

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Weights and buffers as safetensors, atomically."""
        live = self._c
        live.context.wait(lib.weft_save, live.handle, os.fsencode(path))

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Weights and buffers from safetensors, an index of several, or a folder of either."""
        live = self._c
        live.context.wait(lib.weft_load, live.handle, os.fsencode(path))

    def save_compiled(self, path: str | os.PathLike[str]) -> None:
        """The compiled step with its optimiser and the export's weights, as .weft: weft.open and `weft train` then need no compiler."""
        live = self._c
        live.context.wait(lib.weft_save_compiled, live.program, os.fsencode(path))

    # ---- texts ----

    def plan(self) -> str:
        """Memory table, largest buffers, time line and micro-batches of the step, as `weft plan` prints them."""
        live = self._c
        return take_text(live.context, lib.weft_plan_text, live.program)

    def graph(self, after: str | None = None, *, eval: bool = False) -> str:
        """The graph as `weft graph` prints it: as it was exported, or after a pass such as "grad/step" or "fuse/group"."""
        live = self._c
        return take_text(live.context, lib.weft_graph_text, live.program, after.encode() if after else None, int(eval))


def _leaves(x: Any) -> Iterable[Any]:
    if isinstance(x, Mapping):
        for v in x.values():
            yield from _leaves(v)
    elif isinstance(x, (tuple, list)):
        for v in x:
            yield from _leaves(v)
    else:
        yield x


def _copied(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy()


def _copy(to: Any, value: Any) -> None:
    torch = torch_module()
    if torch is not None:
        with torch.no_grad():
            to.copy_(value if isinstance(value, torch.Tensor) else torch.as_tensor(value))
    else:
        to[...] = value
