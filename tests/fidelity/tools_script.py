"""Trains in half precision under one instrument after another and prints what each has seen. No test itself."""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import pickle
import pickletools
import random
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.set_num_threads(1)

ACTIONS: dict[str, Callable[[], object]] = {}


def section(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def keep(function: Callable[[], object]) -> Callable[[], object]:
        ACTIONS[name] = function
        return function

    return keep


class Net(nn.Module):
    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace), nn.LayerNorm(16))
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def digest(*values: object) -> str:
    state = hashlib.sha256()
    for value in values:
        state.update(
            value.detach().cpu().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode()
        )
    return state.hexdigest()[:16]


def train(
    steps: int = 2,
    model: nn.Module | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    scaler: Any = None,
    forward: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> nn.Module:
    """Every step is a whole fp16 step: autocast, scaled backward, unscale, clip, step, update."""
    torch.manual_seed(3)
    model = Net() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaler is None else scaler
    for _ in range(steps):
        with around():
            x = torch.randn(4, 8)
            with torch.autocast("cpu", torch.float16):
                y = model(x) if forward is None else forward(model, x)
                loss = y.float().pow(2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return model


@section("flop counter")
def flop_counter() -> object:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        train()
    counts = counter.get_flop_counts()
    return counter.get_total_flops(), sorted((k, str(o), n) for k, v in counts.items() for o, n in v.items())


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@section("dispatch mode")
def dispatch_mode() -> object:
    with Log() as whole:
        train()
    steps: list[int] = []

    class PerStep(Log):
        def __exit__(self, *info: Any) -> None:
            steps.append(len(self.seen))
            super().__exit__(*info)  # type: ignore[no-untyped-call]

    train(around=PerStep)
    return whole.seen, steps


@section("function mode")
def function_mode() -> object:
    seen: list[str] = []

    class LogFunctions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    with LogFunctions():
        train()
    return seen


@section("profiler")
def profiler() -> object:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as whole:
        train()
    return sorted((event.key, event.count) for event in whole.key_averages())


@section("anomaly mode")
def anomaly_mode() -> object:
    with torch.autograd.detect_anomaly(check_nan=True):
        return digest(*train().parameters())


@section("selective checkpointing")
def selective_checkpointing() -> object:
    def forward(model: nn.Module, x: Tensor) -> Tensor:
        def contexts() -> Any:
            return create_selective_checkpoint_contexts(
                [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
            )

        y = checkpoint(model.body, x, use_reentrant=False, context_fn=contexts)
        return checkpoint(model.head, y, use_reentrant=True)  # type: ignore[no-any-return]

    return digest(*train(model=Net(inplace=False), forward=forward).parameters())


@section("global module hooks")
def global_module_hooks() -> object:
    seen: list[str] = []
    module = nn.modules.module
    handles = [
        module.register_module_forward_pre_hook(lambda m, x: seen.append(f"> {type(m).__name__}")),
        module.register_module_forward_hook(lambda m, x, y: seen.append(f"< {type(m).__name__} {y.dtype}")),
        module.register_module_full_backward_hook(lambda m, x, y: seen.append(f"b {type(m).__name__}")),
    ]
    plain = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    weights = digest(*train(model=plain).parameters())
    for handle in handles:
        handle.remove()
    train()
    return seen, weights


@section("tensor hooks")
def tensor_hooks() -> object:
    seen: list[str] = []
    model = Net()
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda g, n=name: seen.append(f"{n} {digest(g)}"))
        parameter.register_post_accumulate_grad_hook(
            lambda p, n=name: seen.append(f"{n} post {digest(p.grad)}")
        )
    train(model=model)
    return seen


@section("patched scaler")
def patched_scaler() -> object:
    calls: list[str] = []
    plain = torch.amp.GradScaler.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(type(optimizer).__name__)
        return plain(self, optimizer, *args, **kwargs)

    torch.amp.GradScaler.step = step  # type: ignore[method-assign]
    try:
        train()
    finally:
        torch.amp.GradScaler.step = plain  # type: ignore[method-assign]
    return calls


@section("scaler subclass")
def scaler_subclass() -> object:
    calls: list[object] = []

    class Mine(torch.amp.GradScaler):
        def update(self, new_scale: Any = None) -> None:
            calls.append(self.get_scale())
            super().update(new_scale)

    scaler = Mine("cpu", init_scale=2.0, growth_interval=1)
    train(scaler=scaler)
    return calls, scaler.state_dict()


@section("pickle")
def pickles() -> object:
    model = train()
    file = io.BytesIO()
    torch.save(model, file)
    scaler = torch.amp.GradScaler("cpu")
    objects = [scaler, torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler, torch.optim.SGD.step, Net]
    # The addresses of storages are in a pickled model: compare its instructions instead.
    instructions = [op.name for op, _, _ in pickletools.genops(pickle.dumps(model))]
    return len(file.getvalue()), digest(*instructions), [digest(pickle.dumps(o)) for o in objects]


@section("deepcopy")
def deepcopies() -> object:
    model = train()
    twin = copy.deepcopy(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(train(model=twin))
    return digest(*average.parameters()), sorted(vars(twin)), sorted(vars(next(twin.parameters())))


@section("script")
def script() -> object:
    model = torch.jit.script(train())
    trained = train(model=model)
    return str(model.graph), model.code, digest(*trained.parameters())


@section("trace")
def trace() -> object:
    traced = torch.jit.trace(train(), torch.randn(4, 8))
    return str(traced.graph), str(traced.inlined_graph)


@section("fx")
def fx() -> object:
    graph = torch.fx.symbolic_trace(train())
    return graph.code, digest(*train(model=graph).parameters())


@section("dynamo")
def dynamo() -> object:
    graphs: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append([node.name for node in graph.graph.nodes])
        return graph.forward

    model = Net()
    train(model=torch.compile(model, backend=backend))  # type: ignore[arg-type]
    return [sorted(names) for names in graphs], digest(*model.parameters())


@section("functorch")
def functorch() -> object:
    train()
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))

    def loss(p: dict[str, Tensor], x: Tensor) -> Any:
        return torch.func.functional_call(model, p, (x,)).pow(2).mean()

    parameters: dict[str, Tensor] = {k: v.detach() for k, v in model.named_parameters()}
    torch.manual_seed(0)
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, torch.randn(5, 8))
    hessian = torch.func.hessian(loss)(parameters, torch.randn(8))
    return digest(*gradients.values()), sorted(hessian)


@section("tracebacks")
def tracebacks() -> object:
    def bad_closure() -> float:
        raise KeyError("closure")

    def shapes() -> None:
        train(model=nn.Linear(3, 3))

    def twice() -> None:
        loss = Net()(torch.randn(2, 8)).sum()
        loss.backward()
        loss.backward()

    def nonfinite() -> None:
        model = Net()
        model(torch.full((2, 8), float("inf"))).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

    optimizer = torch.optim.SGD(Net().parameters(), lr=0.1)
    attempts: list[Callable[[], object]] = [
        lambda: torch.amp.GradScaler("cpu").step(optimizer),
        lambda: torch.amp.GradScaler("cpu").update(),
        lambda: optimizer.step(bad_closure),
        lambda: torch.optim.SGD([], lr=0.1),
        twice,
        nonfinite,
        shapes,
    ]
    texts = []
    for attempt in attempts:
        try:
            attempt()
        except Exception:
            texts.append(traceback.format_exc())
    # Frames inside torch's own Module.__call__ differ as soon as anyone has a global hook.
    return [[line for line in text.splitlines() if "nn/modules/module.py" not in line] for text in texts[:-1]]


@section("signatures")
def signatures() -> object:
    places: list[Any] = [
        torch.amp.GradScaler.scale, torch.amp.GradScaler.step, torch.amp.GradScaler.update,
        torch.amp.GradScaler.unscale_, torch.amp.GradScaler.__init__, torch.autocast.__init__, torch.autocast.__enter__,
        torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_, torch.Tensor.backward,
        torch.autograd.backward, torch.optim.AdamW.step, torch.optim.Optimizer.zero_grad, nn.Module.__call__,
        nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict,
    ]  # fmt: skip
    return [
        (f.__name__, f.__qualname__, f.__module__, str(inspect.signature(f)), (f.__doc__ or "")[:40])
        for f in places
    ]


@section("warnings")
def warned() -> object:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
        torch.cuda.amp.GradScaler(enabled=False)
        optimizer = torch.optim.SGD(Net().parameters(), lr=1.0)
        torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
    return [
        (w.category.__name__, str(w.message)[:60], w.filename.rpartition("/")[2], w.lineno) for w in caught
    ]


@section("random state")
def random_state() -> object:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    train()
    return digest(torch.get_rng_state(), np.random.get_state(), random.getstate())


@section("threads")
def threads() -> object:
    train()
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    return [t.name for t in others], threading.active_count()


@section("default dtype")
def default_dtype() -> object:
    torch.set_default_dtype(torch.float64)
    try:
        return digest(*train(model=Net().float(), forward=lambda m, x: m(x.float())).parameters())
    finally:
        torch.set_default_dtype(torch.float32)


@section("default device")
def default_device() -> object:
    model, x = Net(), torch.randn(4, 8)
    with torch.device("meta"):
        model(x).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        made = nn.Linear(2, 2)(torch.ones(1, 2))
    return made.device.type, digest(*model.parameters())


@section("fake tensors")
def fake_tensors() -> object:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = nn.Linear(4, 2)
        y = model(torch.ones(3, 4))
        y.sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return type(y).__name__, str(y.shape)


@section("deterministic")
def deterministic() -> object:
    torch.use_deterministic_algorithms(True)
    try:
        return digest(*train().parameters())
    finally:
        torch.use_deterministic_algorithms(False)


@section("saved tensors")
def saved_tensors() -> object:
    packed: list[str] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(str(x.dtype))
        return x

    weights = train(around=lambda: torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x))
    return packed, digest(*weights.parameters())


@section("tensorboard")
def tensorboard() -> object:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return "not installed"
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        model = train()
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter, 0)
    return "written"


@section("gradients")
def gradients() -> object:
    model = train()
    return [
        (n, digest(p.grad), p.grad is not None and p.grad._version) for n, p in model.named_parameters()
    ], Counter(type(m)._call_impl.__qualname__ for m in model.modules())


@section("signals")
def signals() -> object:
    train()
    return [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)], (
        sys.gettrace(), sys.getprofile(), threading.gettrace(), sys.getswitchinterval(), sys.getrecursionlimit(),
    )  # fmt: skip


for name, action in ACTIONS.items():
    print(f"=== {name}")
    try:
        print(action())
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
