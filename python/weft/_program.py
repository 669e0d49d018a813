"""Programs: a model exported, or opened from a file; what its export cannot do, in words."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import tempfile
import traceback
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _options
from ._lib import Context, Error, handle_of, lib
from ._memory import torch_module

LOSSES = ("cross_entropy", "nll", "mse", "l1", "smooth_l1", "huber", "bce", "bce_with_logits", "kl_div")


# A graph has forward's operators only, and Weft derives backward from those: the user's would be left out, and nobody told.
OWN_BACKWARD = "a torch.autograd.Function has a backward of its own, and a graph does not hold that"
OWN_BACKWARD_HINT = "Write what it computes with operators; x + (f(x) - x).detach() is f forward and the identity backward."


def take_text(context: Context, fn: Any, *args: Any) -> str:
    """A text that C lends: copied before anybody else can ask for one."""
    out = ctypes.c_char_p()
    with context.lock:
        context.call(fn, *args, ctypes.byref(out))
        return (out.value or b"").decode("utf-8", "replace")


class Program:
    """A training step that sessions run: of a file, or of weft.export. It holds no weights that change: every session starts from
    those of the export. Immutable, and may be shared by threads.

    path      the .pt2 or .weft that it comes from
    exported  torch's ExportedProgram, of weft.export; None of a file
    """

    def __init__(self, path: str, *, exported: Any = None, model: Any = None, options: Iterable[tuple[str, str]] = (), target: Any = None):
        self.path, self.exported, self.model, self.options, self.target = path, exported, model, list(options), target
        self._end: Any = None  # removes a file of the package's own

    def __repr__(self) -> str:
        return f"weft.Program({self.path!r})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the export as a .pt2, for weft.open or `weft train` (which wants --loss again). A compiled step, with its optimiser, is
        written by Session.save_compiled."""
        if pathlib.Path(path).suffix != ".pt2":
            raise Error(f"{path}: a program is saved as .pt2", hint="Session.save_compiled writes .weft.")
        shutil.copyfile(self.path, path)

    def graph(self, after: str | None = None, *, eval: bool = False, **options: Any) -> str:
        """The graph as `weft graph --after` prints it: as it was exported, or after a pass such as "grad/step". eval: of the evaluation
        form. options: as of Session."""
        context, handle = self.open(self.options + _options.of_keywords(options))
        try:
            return take_text(context, lib.weft_graph_text, handle, after.encode() if after else None, int(eval))
        finally:
            lib.weft_program_free(handle)

    def open(self, options: _options.Options, context: Context | None = None) -> tuple[Context, ctypes.c_void_p]:
        """A weft_program with these options, in the context (default: one of its own)."""
        context = context or Context()
        handle = handle_of(lib.weft_open, context, context.handle, os.fsencode(self.path))
        try:
            for name, value in options:
                context.call(lib.weft_set, handle, name.encode(), value.encode())
        except BaseException:
            lib.weft_program_free(handle)
            raise
        return context, handle


def open(path: str | os.PathLike[str], loss: str | None = None, **options: Any) -> Program:
    """The program in a .pt2 or .weft file. loss: as of weft.export, for a .pt2 whose forward gives predictions. Raises Error for a file
    that is missing, damaged or of another kind, and for a model that Weft cannot train (with the operators and their lines)."""
    program = Program(os.fspath(path), options=_options.of_keywords({"loss": loss, **options}))
    context, handle = program.open(program.options)
    with context.lock:
        lib.weft_program_free(handle)
    return program


# ---- export ----

def _user_line(error: BaseException) -> str:
    """Where in the user's own source it happened: the innermost frame that is not torch's or Weft's."""
    torch = torch_module()
    inside = [os.path.dirname(m) + os.sep for m in (torch.__file__, __file__, os.__file__)]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        installed = "site-packages" in frame.filename and not any(frame.filename.startswith(folder) for folder in inside[:2])
        if (installed or not any(frame.filename.startswith(folder) for folder in inside)) and not frame.filename.startswith("<"):
            return f"{frame.filename}:{frame.lineno}  {(frame.line or '').strip()}"
    return ""


def _explain(error: Exception) -> Error:
    """What torch.export's failure means, where it is, what to do."""
    kind, said, place = type(error).__name__, str(error).strip(), _user_line(error)
    first = next((line.strip() for line in said.splitlines() if line.strip()), kind)
    if "DataDependent" in kind or "data-dependent" in said or "Dynamic control flow" in said:
        return Error("the model branches on values of a tensor, which no export can follow: " + first, status="unsupported model",
                     place=place, hint="Write it with torch.where or masks, or move the decision out of forward.")
    if "Constraint" in kind or "Constraints violated" in said or "dynamic_shapes" in said or "dynamic shape" in said.lower():
        return Error("dynamic_shapes do not fit the model: " + " ".join(said.split())[:600], place=place,
                     hint='Leave sizes that the model fixes static; dynamic_shapes="batch" makes the first dimension of all samples '
                     "one size. A sample batch of 1 is taken for a fixed size: give at least 2 rows.")
    if isinstance(error, TypeError) and "argument" in said:
        return Error("forward does not take these samples: " + first,
                     hint="sample_inputs are what the model is called with: a tuple in the order of forward, or a dict by its names; "
                     "with loss= the last one is the target.")
    if "Unsupported" in kind:
        return Error("torch.export cannot follow the model: " + first, status="unsupported model", place=place,
                     hint="Take what is no tensor computation (printing, numpy, files) out of forward.")
    return Error(f"torch.export failed with {kind}: {first}", status="unsupported model", place=place,
                 hint="Does model(*sample_inputs) work? Where it does, the line above is what the export cannot follow.")


def _shapes_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    """dynamic_shapes="batch": dimension 0 of every sample is one size."""
    if dynamic_shapes != "batch":
        return dynamic_shapes
    torch = torch_module()
    batch = torch.export.Dim("batch", min=1)

    def of(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return {0: batch} if x.dim() else None
        if isinstance(x, Mapping):
            return {k: of(v) for k, v in x.items()}
        return type(x)(of(v) for v in x) if isinstance(x, (list, tuple)) else None

    return {k: of(v) for k, v in kwargs.items()} if kwargs else tuple(of(a) for a in args)


def _apart(samples: Any, torch: Any) -> Any:
    """The same samples, no two of them one tensor: torch.export would make one input of both, and never read the other."""
    seen: set[int] = set()

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or id(x) not in seen:
            seen.add(id(x))
            return x
        return x.clone()

    return torch.utils._pytree.tree_map(own, samples)


@contextlib.contextmanager
def _no_own_backward(torch: Any) -> Iterator[None]:
    """Raises Error where the model calls a torch.autograd.Function of somebody else than PyTorch on what requires a gradient."""
    function, plain = torch.autograd.Function, torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        traced = cls.__module__ == "torch._functorch.autograd_function"  # a stand-in of dynamo's for the user's, under strict=True
        own = traced or not cls.__module__.startswith("torch.")
        if own and torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in given):
            raise Error(OWN_BACKWARD if traced else f"{cls.__name__}: {OWN_BACKWARD}", status="unsupported model", hint=OWN_BACKWARD_HINT)
        return plain.__get__(None, cls)(*args, **kwargs)

    function.apply = classmethod(apply)
    try:
        yield
    finally:
        function.apply = plain


def _gradient_hooks(x: Any) -> bool:
    """Has a module or parameter hooks that backward would call? A graph has forward's operators only."""
    return any(getattr(x, name, None) for name in ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"))


def export(model: Any, sample_inputs: Any, loss: str | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
           **options: Any) -> Program:
    """The training step of a torch.nn.Module, by torch.export.

    model           in training mode. Without `loss` its forward gives the loss, a scalar, alone or first of its results
    sample_inputs   a tuple (or a dict by name, or one tensor) of what it is called with; their shapes are those of all batches,
                    unless dynamic_shapes says otherwise. With `loss` the last sample is the target, which forward does not see
    loss            of forward's first result and the target: cross_entropy, nll, mse, l1, smooth_l1, huber, bce, bce_with_logits, kl_div
    dynamic_shapes  as of torch.export.export; or "batch": dimension 0 of all samples is one size that each batch chooses
    options         of the loss, as of `weft train`: label_smoothing=0.1, ignore_index=-100, ...

    Raises Error, with the line of your source, when the model is in evaluation mode, branches on data, or uses what torch.export or Weft
    cannot follow. The model is not changed; its weights now are those that sessions start from."""
    torch = torch_module()
    if torch is None:
        raise Error("weft.export needs torch", status="environment", hint="pip install torch; weft.open works without.")
    if torch.is_autocast_enabled("cpu"):
        raise Error("torch.autocast is on, and Weft computes every op in the dtype of its operands", status="unsupported model",
                    hint="Leave autocast away, or give the model the dtype: model.bfloat16().")
    if not isinstance(model, torch.nn.Module):
        raise Error(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    away = next(((n, t) for n, t in [*model.named_parameters(), *model.named_buffers()] if t.device.type != "cpu"), None)
    if away:
        raise Error(f"{away[0]} lies on {away[1].device}, and Weft trains in the processor's memory",
                    hint="Call model.cpu() before; of a model on meta, give it memory: model.to_empty(device=\"cpu\"), and values.")
    hooked = next((n or "the model" for n, x in [*model.named_modules(), *model.named_parameters()] if _gradient_hooks(x)), None)
    if hooked:
        raise Error(f"{hooked} has a hook of its gradients, and a step of Weft calls no Python", status="unsupported model",
                    hint="Remove it, or do what it does in forward or between steps.")
    quiet = [name or "the model" for name, m in model.named_modules() if not m.training]
    if quiet:
        raise Error(f"{quiet[0]} is in evaluation mode, so its training step would not be that of training",
                    hint="Call model.train() before; set dropout to 0 or freeze parameters to leave a part alone.")
    if loss is not None and loss not in LOSSES:
        raise Error(f"there is no loss {loss}", hint="They are " + ", ".join(LOSSES) + "; another loss goes into forward.")
    samples = sample_inputs if isinstance(sample_inputs, (Mapping, tuple, list)) else (sample_inputs,)
    target = None
    if loss is not None:
        if len(samples) < 2:
            raise Error(f"loss={loss!r} takes the last sample as its target, and there is only one sample",
                        hint="sample_inputs=(x, y); without loss= the model's forward gives the loss.")
        if isinstance(samples, Mapping):
            *rest, target_name = samples
            target, samples = samples[target_name], {k: samples[k] for k in rest}
            options = {"target": target_name, **options}
        else:
            *rest, target = samples
            samples = tuple(rest)
    samples = _apart(samples, torch)
    args, kwargs = ((), dict(samples)) if isinstance(samples, Mapping) else (tuple(samples), {})
    try:
        with _no_own_backward(torch):
            exported = torch.export.export(model, args, kwargs, dynamic_shapes=_shapes_of(args, kwargs, dynamic_shapes), strict=strict)
    except Error as e:
        e.place = _user_line(e)
        raise
    except Exception as e:  # of many kinds, private ones too
        raise _explain(e) from e
    names = [n for n in exported.graph_signature.user_inputs if isinstance(n, str)]
    if loss is not None and "target" not in options and "y" in names:
        options = {"target": "target", **options}
    folder = tempfile.mkdtemp(prefix="weft-")
    path = os.path.join(folder, "model.pt2")
    program = Program(path, exported=exported, model=model, options=_options.of_keywords({"loss": loss, **options}), target=target)
    program._end = weakref.finalize(program, _remove, folder, os.getpid())
    torch.export.save(exported, path)
    if loss is None:
        context, handle = program.open(program.options)  # says now what cannot be imported
        with context.lock:
            lib.weft_program_free(handle)
    else:
        program.graph(after="grad/joint")  # and of what the loss cannot be
    return program


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
