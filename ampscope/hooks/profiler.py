"""Op and kernel times of one segment by torch.profiler, as rows of the `kernels` table."""

from __future__ import annotations

import os
from typing import Any

import torch

Row = dict[str, Any]


class OpProfile:
    """`start()` at the beginning of a segment, `stop()` at its end. Never while the user profiles."""

    def __init__(self) -> None:
        self._profile: Any = None

    def start(self) -> bool:
        """False when a profiler runs already: a second one would end the user's session."""
        if torch._C._autograd._profiler_enabled():
            return False
        before = os.environ.get("KINETO_LOG_LEVEL")
        os.environ["KINETO_LOG_LEVEL"] = "99"
        try:
            self._profile = torch.profiler.profile(activities=torch.profiler.supported_activities())
            self._profile.__enter__()
        finally:
            if before is None:
                os.environ.pop("KINETO_LOG_LEVEL", None)
            else:
                os.environ["KINETO_LOG_LEVEL"] = before
        return True

    def stop(self) -> list[Row]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        profile.__exit__(None, None, None)
        return [
            {
                "name": event.key,
                "kind": "op",
                "calls": event.count,
                "self_host_s": event.self_cpu_time_total / 1e6,
                "total_host_s": event.cpu_time_total / 1e6,
                "self_device_s": getattr(event, "self_device_time_total", 0.0) / 1e6,
            }
            for event in profile.key_averages()
        ]
