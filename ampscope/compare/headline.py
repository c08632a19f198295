"""One run in the numbers that runs are compared by."""

from __future__ import annotations

from dataclasses import dataclass

from ampscope.diagnose.signals import TraceView, plain

_QUERY = """
WITH asked AS (SELECT * FROM steps WHERE outcome IN ('stepped', 'skipped')),
     quiet AS (SELECT duration_s FROM asked WHERE level IN ('pulse', 'count') AND step >= 2)
SELECT (SELECT count(DISTINCT (rank, proc, step)) // greatest(count(DISTINCT (rank, proc)), 1) FROM asked) AS steps,
       (SELECT count(*) FROM asked WHERE outcome = 'skipped') AS skipped,
       (SELECT count(*) FROM asked WHERE loss IS NOT NULL AND NOT isfinite(loss)) AS bad_losses,
       coalesce((SELECT median(duration_s) FROM quiet), (SELECT median(duration_s) FROM asked WHERE step >= 1))
           AS step_s,
       (SELECT max(device_allocated) FROM steps) AS device_bytes,
       (SELECT max(host_rss) FROM steps) AS host_bytes,
       (SELECT median(loss) FROM (SELECT loss FROM asked WHERE isfinite(loss) ORDER BY step DESC LIMIT 8)) AS last_loss,
       (SELECT mode(autocast_dtype) FROM asked) AS autocast_dtype,
       (SELECT arg_max(scale, step) FROM asked WHERE scale IS NOT NULL) AS scale
"""


@dataclass(frozen=True)
class Headline:
    """`step_s` is the median over steps in which little was read, without the first two; `memory` the most
    bytes seen, of the device where there is one, else resident on the host; `last_loss` the median of the last
    eight finite losses. None where not recorded."""

    steps: int
    skipped: int
    bad_losses: int
    step_s: float | None
    memory: int | None
    on_device: bool
    last_loss: float | None
    autocast_dtype: str | None
    scale: float | None

    @property
    def steps_per_s(self) -> float | None:
        return 1.0 / self.step_s if self.step_s else None


def headline(trace: TraceView) -> Headline:
    """The headline of a trace, all of its processes together."""
    row = {str(key): plain(value) for key, value in trace.sql(_QUERY).iloc[0].items()}
    device = _number(row["device_bytes"])
    memory = device or _number(row["host_bytes"])
    dtype = row["autocast_dtype"]
    return Headline(
        steps=int(_number(row["steps"]) or 0),
        skipped=int(_number(row["skipped"]) or 0),
        bad_losses=int(_number(row["bad_losses"]) or 0),
        step_s=_number(row["step_s"]),
        memory=None if memory is None else int(memory),
        on_device=bool(device),
        last_loss=_number(row["last_loss"]),
        autocast_dtype=None if dtype is None else str(dtype),
        scale=_number(row["scale"]),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
