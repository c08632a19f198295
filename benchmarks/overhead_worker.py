"""One training loop under one tool, stepped on command: the process that overhead.py measures.

    python overhead_worker.py WORKLOAD TOOL wall|cpu

Reads a number of steps per line from standard input and answers with the seconds that they took. The first
answer, before any command, is `ready` or `missing <package>`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import char_gpt
import digits_cnn


@dataclass
class Training:
    """A model with what one ordinary AMP step needs. `batch` gives inputs and targets."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batch: Callable[[], tuple[Tensor, Tensor]]
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", enabled=self.dtype is torch.float16)

    def step(self) -> None:
        inputs, targets = self.batch()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=self.dtype):
            logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def mlp() -> Training:
    """Steps of about a millisecond: the worst case for anything that costs per call."""
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return Training(model, optimizer, lambda: (torch.randn(32, 64), torch.randint(10, (32,))), torch.float16)


def digits() -> Training:
    model = digits_cnn.build(16)
    images, labels, _, _ = digits_cnn.digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def batch() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(images), (64,))
        return images[chosen], labels[chosen]

    return Training(model, optimizer, batch, torch.float16)


def gpt(layers: int, width: int, heads: int, context: int, size: int, dtype: torch.dtype) -> Training:
    model = char_gpt.CharGPT(layers, width, heads, context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    text = char_gpt.standard_library_text(100_000)

    def batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - context - 1, (size,)).tolist()
        window = torch.stack([text[start : start + context + 1] for start in starts])
        return window[:, :-1], window[:, 1:]

    return Training(model, optimizer, batch, dtype)


WORKLOADS: dict[str, Callable[[], Training]] = {
    "mlp": mlp,
    "digits_cnn": digits,
    "char_gpt": lambda: gpt(2, 64, 4, 64, 16, torch.float16),
    "gpt_19m": lambda: gpt(6, 512, 8, 128, 4, torch.bfloat16),
}
"""The large GPT is bf16: the CPU multiplies fp16 matrices fifty times slower, which would hide any tool."""

Stepper = Callable[[Training], AbstractContextManager[Callable[[], None]]]
"""Given a training, a context in which calling what it yields makes one step under the tool."""

STEPPERS: dict[str, Stepper] = {}


def stepper(name: str) -> Callable[[Callable[[Training], Iterator[Callable[[], None]]]], Stepper]:
    def register(function: Callable[[Training], Iterator[Callable[[], None]]]) -> Stepper:
        STEPPERS[name] = contextlib.contextmanager(function)
        return STEPPERS[name]

    return register


@stepper("plain")
def plain(training: Training) -> Iterator[Callable[[], None]]:
    yield training.step


def _recorded(name: str, **options: object) -> None:
    @stepper(name)
    def recorded(training: Training) -> Iterator[Callable[[], None]]:
        from ampscope import Recorder

        with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "run", **options):  # type: ignore[arg-type]
            yield training.step


_recorded("ampscope")
_recorded("ampscope, every tensor, every step", level="range", every=1)
_recorded("ampscope, census", level="census", every=1)


@stepper("DebugUnderflowOverflow (transformers)")
def underflow_overflow(training: Training) -> Iterator[Callable[[], None]]:
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(training.model)
    yield training.step


@stepper("wandb.watch, log_freq=1, offline")
def wandb_watch(training: Training) -> Iterator[Callable[[], None]]:
    import wandb

    def step() -> None:
        training.step()
        run.log({})

    with tempfile.TemporaryDirectory() as folder:
        run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True, console="off"))
        run.watch(training.model, log="gradients", log_freq=1)
        yield step
        run.finish()


@stepper("SummaryWriter.add_histogram of every gradient")
def histograms(training: Training) -> Iterator[Callable[[], None]]:
    from torch.utils.tensorboard import SummaryWriter

    steps = iter(range(1 << 40))

    def step() -> None:
        training.step()
        number = next(steps)
        for name, parameter in training.model.named_parameters():
            if parameter.grad is not None:
                writer.add_histogram(name, parameter.grad, number)

    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        yield step


@stepper("torch DebugMode")
def debug_mode(training: Training) -> Iterator[Callable[[], None]]:
    DebugMode = importlib.import_module("torch.utils._debug_mode").DebugMode

    def step() -> None:
        with DebugMode():
            training.step()

    yield step


@stepper("torch detect_anomaly")
def detect_anomaly(training: Training) -> Iterator[Callable[[], None]]:
    def step() -> None:
        with torch.autograd.detect_anomaly(check_nan=True):
            training.step()

    yield step


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main(workload: str, tool: str, clock_name: str) -> None:
    """Answers go to the real standard output; whatever the tools print goes nowhere."""
    clock = CLOCKS[clock_name]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        try:
            step = stack.enter_context(STEPPERS[tool](WORKLOADS[workload]()))
        except ImportError as error:
            print(f"missing {error.name}", file=answers, flush=True)
            return
        print("ready", file=answers, flush=True)
        stopped = time.perf_counter()
        for line in sys.stdin:
            _stand_still(time.perf_counter() - stopped)
            began = clock()
            for _ in range(int(line)):
                step()
            print(clock() - began, file=answers, flush=True)
            stopped = time.perf_counter()


def _stand_still(seconds: float) -> None:
    """Take the time of the other tools' turns out of the recorder's clock: its budget is a share of this run's time."""
    install = sys.modules.get("ampscope.hooks.install")
    session = install.current() if install is not None else None
    if session is not None:
        session.clock.start += seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
