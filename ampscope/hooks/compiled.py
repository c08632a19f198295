"""What is seen of compiled models: op dtypes of their graphs always, their values only in steps that the user
allows to run eagerly.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.graph_census import GraphCensus


class Compiled(Collector):
    """Graphs become rows of `ops` in the segment in which they were compiled or taken from the cache. With
    `--eager-census` census segments run under the stance force_eager: they round otherwise than compiled ones,
    which is why they do so only on request and leave a note.
    """

    name = "compiled"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._graphs = GraphCensus()
        self._stance: Any = None

    def install(self) -> None:
        if self.session.settings.level in ("census", "watch"):
            self._graphs.install()

    def remove(self) -> None:
        self._graphs.remove()
        self._compile_again()
        super().remove()

    def switch_off(self) -> None:
        super().switch_off()
        self._compile_again()

    def segment_start(self, segment: Segment) -> None:
        if segment.level != "census":
            return
        self._graphs.check()
        if self.session.settings.eager_census and "torch._dynamo" in sys.modules:
            self._stance = torch.compiler.set_stance("force_eager")
            self.session.emit(
                "events",
                phase="other",
                t=self.session.clock.now(),
                event="note",
                level="info",
                subject=self.name,
                message="Compiled functions run eagerly in this step (--eager-census): they round differently.",
            )

    def segment_end(self, segment: Segment) -> None:
        self._compile_again()
        for row in self._graphs.drain():
            self.session.emit("ops", **row)
        if self._graphs.failure is not None:
            self.session.fail(self, RuntimeError(self._graphs.failure))

    def _compile_again(self) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(None, None, None)
