"""What all collectors share: their place in the session, the guard that makes them fail open, and their ledger."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.patches import After, Before, Patches, Shortcut, never

if TYPE_CHECKING:
    from ampscope.hooks.session import Session

F = TypeVar("F", bound=Callable[..., Any])


class Books(threading.local):
    """What the running collector of this thread has to share its time with."""

    nested_s: float | None = None
    """Seconds that collectors called by the running collector have taken; None outside of any."""


class Collector:
    """Installs hooks, turns what they see into rows of the session, and removes them.

    Every entry from user code goes through `guarded` (or `wrap`, which guards): an exception of ours switches
    the collector off and training goes on. The guard also keeps the collector's share of the ledger.
    """

    name = "collector"
    vital = False
    """Nothing can be filed without it: when it fails, the recording ends."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.dead = False
        self.host_s = 0.0
        self.calls = 0
        self.elements = 0

    def install(self) -> None:
        """Place the hooks."""

    def remove(self) -> None:
        """Take the hooks away again."""
        self.patches.remove()

    def rest(self) -> None:
        """Take away the hooks that a training loop calls in every step, until `wake`."""
        self.patches.suspend()

    def wake(self) -> None:
        """End `rest`."""
        self.patches.resume()

    def switch_off(self) -> None:
        """End for good. What would go on without a hook of this collector, such as a mode, ends here as well."""
        self.dead = True

    def segment_start(self, segment: Segment) -> None:
        """A segment begins; `segment.level` says how much is wanted of it."""

    def new_root(self, root: torch.nn.Module) -> None:
        """A root module runs forward for the first time; its names are known."""

    def work_begins(self) -> None:
        """The first forward or backward of the segment."""

    def backward_begins(self) -> None:
        """An outermost backward starts; nothing has been added to the gradients yet."""

    def segment_end(self, segment: Segment) -> None:
        """A segment ends; its rows are stamped and sent when all collectors have returned."""

    def guarded(self, function: F) -> F:
        """`function`, so that an error in it ends this collector and not the training run."""
        own = self
        books = self.session.books

        def call(*args: Any, **kwargs: Any) -> Any:
            if own.dead:
                return None
            outer, books.nested_s = books.nested_s, 0.0
            began = time.perf_counter()
            try:
                # Neither a mode of the user's nor a tensor subclass gets to see what we ask a tensor.
                with torch._C.DisableTorchFunction():
                    return function(*args, **kwargs)
            except Exception as error:
                own.session.fail(own, error)
                return None
            finally:
                spent = time.perf_counter() - began
                # What other collectors did inside this call is booked as theirs.
                own.host_s += spent - (books.nested_s or 0.0)
                own.calls += 1
                if outer is None:
                    books.nested_s = None
                    own.session.segment.own_s += spent
                else:
                    books.nested_s = outer + spent

        return call  # type: ignore[return-value]

    def wrap(
        self,
        owner: Any,
        name: str,
        before: Before | None = None,
        after: After | None = None,
        *,
        aliases: tuple[Any, ...] = (),
        idle: Callable[[], bool] = never,
        shortcut: Shortcut | None = None,
        loop: bool = False,
        stand_in: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Observe a torch function, but not while `idle()` holds, and by the shortcut while that is taken; `before`
        and `after` are guarded here."""
        self.patches.wrap(
            owner,
            name,
            self.guarded(before) if before is not None else None,
            self.guarded(after) if after is not None else None,
            aliases=aliases,
            idle=idle,
            shortcut=shortcut,
            loop=loop,
            stand_in=stand_in,
        )


def shortened(text: str, limit: int = 400) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def traceback_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The triple that `traceback` functions take."""
    return type(error), error, error.__traceback__
