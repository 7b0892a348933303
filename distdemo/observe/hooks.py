"""Hooks on torch: functions that are replaced once, and events of training.

`OBSERVER` hooks optimizers, DDP modules, backward passes and samplers once per process, and the
calls of modules if somebody listens to them. What wants to know of them is a `Listener`. An
exception of a listener is its own matter: it must not reach the program.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, wraps
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DistributedSampler

UNCOUNTED = " (as importlib._bootstrap)"  # ends the names of files whose frames aren't counted
STEP = (register_optimizer_step_pre_hook.__code__.co_filename, "wrapper")
"""File and name of the function around the step of every optimizer."""

_HOME = "torch.distributed"
_COUNT = len(sys.modules)
_LOADED = [module for name, module in sys.modules.items() if name.startswith(_HOME)]


def uncounted(hook: Callable[..., Any]) -> Any:
    """Hide a hook from ``stacklevel``, so that a warning of torch names the program's line.

    Python skips the frames of its own imports, which it knows by their file names.
    """
    code: CodeType = hook.__code__
    name = f"{code.co_filename}{UNCOUNTED}"
    hook.__code__ = code.replace(co_filename=name)
    return hook


def opaque(hook: Callable[..., Any]) -> Any:
    """Keep torch's compiler out of a hook and of everything that it calls.

    It is ``torch.compiler.disable`` without a wrapper and without the time to import the compiler.
    In a release of torch without these functions, compiled programs get more graph breaks.
    """
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    with suppress(AttributeError, RuntimeError, TypeError):
        dynamo: Any = torch._C._dynamo.eval_frame
        skip = dynamo._FrameAction.SKIP
        dynamo.set_code_exec_strategy(hook.__code__, dynamo._FrameExecStrategy(skip, skip))
    return hook


def in_backward() -> bool:
    """Return True while this thread computes gradients."""
    return torch._C._current_graph_task_id() != -1


def is_transformed() -> bool:
    """Return True while torch.func or torch.jit transforms the program on this thread.

    The results of everything that is computed then belong to the transform.
    """
    is_functional = torch._C._functorch.peek_interpreter_stack() is not None
    return is_functional or torch._C._is_tracing()


def is_capturing() -> bool:
    """Return True while a CUDA graph is captured, when no tensor can be copied to the CPU."""
    is_used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
    return is_used and torch.cuda.is_current_stream_capturing()


def replace_function(owner: Any, name: str, wrap: Callable[[Any], Any], mark: Any = True) -> None:
    """Replace a function of a class or module once, and where torch has imported it from there.

    Args:
        owner: Class or module.
        name: Name of the function in it.
        wrap: Function that returns the new one for the original one.
        mark: Value of the new one's attribute ``_recorded``.
    """
    original = vars(owner).get(name)
    if original is None or hasattr(original, "_recorded"):
        return
    hook = opaque(uncounted(wraps(original)(wrap(original))))
    hook._recorded = mark
    setattr(owner, name, hook)
    if isinstance(owner, ModuleType):
        for module in _torch_modules():
            if vars(module).get(name) is original:
                setattr(module, name, hook)


def _torch_modules() -> list[ModuleType]:
    """Return torch.distributed's modules; reading all modules would copy pages in a forked rank."""
    new = itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _COUNT))
    return [*_LOADED, *(sys.modules[name] for name in new if name.startswith(_HOME))]


def add_hook(
    owner: Any,
    name: str,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
) -> None:
    """Call functions with the arguments of another one: before it, or after it with its result."""

    def wrap(original: Any) -> Any:
        def hook(*args: Any, **named: Any) -> Any:
            if before is not None:
                before(*args, **named)
            result = original(*args, **named)
            if after is not None:
                after(result, *args, **named)
            return result

        return hook

    replace_function(owner, name, wrap)


# -------------------------------------------------------------------------------------- training


class Listener:
    """Listener that is told what a program trains with. The methods here do nothing."""

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """Note that an optimizer has got parameters."""

    def before_step(self, optimizer: Optimizer) -> None:
        """Note that an optimizer begins a step that is no part of another one's."""

    def after_step(self, optimizer: Optimizer) -> None:
        """Note that such a step is over."""

    def after_compiled_step(self, optimizer: Optimizer) -> None:
        """Note that torch's compiler traces a step: it makes this function a part of it."""

    def before_backward(self, outputs: Iterable[Any]) -> None:
        """Note that the gradients of these tensors, or edges of the graph, will be computed."""

    def before_accumulation(self, outputs: Iterable[Any]) -> None:
        """Note that these gradients will be added to ``grad``, as ``backward()`` does."""

    def before_forward(self, module: Module) -> None:
        """Note that a module is called. Modules are hooked if a listener has this method."""

    def after_forward(self, module: Module, arguments: list[Any], output: Any) -> None:
        """Note that a call of a module is over; after an exception the output is None."""

    def on_ddp(self, module: DistributedDataParallel) -> None:
        """Note that a module was wrapped with DDP."""

    def before_clip(self, parameters: list[Tensor]) -> None:
        """Note that ``clip_grad_norm_`` is called with these parameters."""

    def on_clip(self, norm: Any) -> None:
        """Note that ``clip_grad_norm_`` has returned this norm."""

    def on_pass(self, sampler: DistributedSampler[Any]) -> None:
        """Note that a pass over a sampler begins."""


EVENTS = [name for name in vars(Listener) if not name.startswith("_")]


class Observer:
    """Hooks of this process on what trains."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._handlers: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}

    def add(self, listener: Listener, guard: Callable[..., Any]) -> None:
        """Tell a listener of its events from now on, after the listeners that were added before.

        Args:
            listener: What is told.
            guard: Function that calls another one and catches its exceptions.
        """
        if not self._listeners:
            self._install()
        self._listeners.append(listener)
        saw_modules = bool(self._handlers["before_forward"])
        for event, handlers in self._handlers.items():
            if getattr(type(listener), event) is not getattr(Listener, event):
                handlers.append(partial(guard, getattr(listener, event)))
        if self._handlers["before_forward"] and not saw_modules:
            register_module_forward_pre_hook(self._before_forward)
            after: Any = self._after_forward
            register_module_forward_hook(after, with_kwargs=True, always_call=True)

    def _install(self) -> None:
        add_hook(DistributedDataParallel, "__init__", after=self._after_ddp)
        add_hook(Optimizer, "add_param_group", after=self._after_group)
        add_hook(torch.autograd, "_engine_run_backward", self._before_backward)
        add_hook(DistributedSampler, "__iter__", self._before_pass)
        for module in (torch.nn.utils.clip_grad, torch.nn.utils):
            replace_function(module, "clip_grad_norm_", self._clipping)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def _tell(self, event: str, *args: Any) -> None:
        for handler in self._handlers[event]:
            handler(*args)

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        if not (torch.compiler.is_dynamo_compiling() or is_nested_step()):
            self._tell("before_step", optimizer)

    def _after_step(self, optimizer: Optimizer, *__: object) -> None:
        if torch.compiler.is_dynamo_compiling():  # which reads this as part of the step
            for listener in self._listeners:
                listener.after_compiled_step(optimizer)
        elif not is_nested_step():
            self._tell("after_step", optimizer)

    def _after_ddp(self, _: None, module: DistributedDataParallel, /, *__: Any, **___: Any) -> None:
        self._tell("on_ddp", module)

    def _after_group(self, _: None, optimizer: Optimizer, /, *__: Any, **___: Any) -> None:
        self._tell("on_optimizer", optimizer)

    def _before_backward(self, outputs: Iterable[Any], /, *_: Any, **named: Any) -> None:
        self._tell("before_backward", outputs)
        if named.get("accumulate_grad"):
            self._tell("before_accumulation", outputs)

    @opaque
    def _before_forward(self, module: Module, _: Any) -> None:
        self._tell("before_forward", module)

    @opaque
    def _after_forward(self, module: Module, args: Any, *rest: Any) -> None:
        *named, output = rest  # torch leaves the named arguments out after an exception
        values = [value for arguments in named for value in arguments.values()]
        self._tell("after_forward", module, [*args, *values], output)

    def _before_pass(self, sampler: DistributedSampler[Any], /) -> None:
        self._tell("on_pass", sampler)

    def _clipping(self, original: Any) -> Any:
        def clip_grad_norm_(parameters: Any, *args: Any, **named: Any) -> Any:
            is_one = isinstance(parameters, Tensor)
            listed = [parameters] if is_one else list(parameters)
            self._tell("before_clip", listed)
            norm = original(listed or parameters, *args, **named)  # torch warns of an empty one
            self._tell("on_clip", norm)
            return norm

        return clip_grad_norm_


OBSERVER = Observer()
"""The hooks of this process."""


def is_nested_step() -> bool:
    """Return True if a step is made within another optimizer's step, as by ZeRO for one shard."""
    steps = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and steps < 2:
        code = frame.f_code
        steps += (code.co_filename, code.co_name) == STEP
        frame = frame.f_back
    return steps > 1
