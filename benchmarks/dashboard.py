"""Builds a run with millions of tensor rows and times what the dashboard asks of it: first plots and callbacks.

    python benchmarks/dashboard.py --rows 10000000 --dir /tmp/ampscope-dashboard

The run is synthetic (a 62-block transformer, four roles, histograms of 24 binades), sorted and laid out as
`ampscope.trace.compact` leaves a finished run. It is kept in `--dir`, so a second call only measures.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ampscope.trace.encode import part_bytes
from ampscope.trace.parts import part_dir, part_name
from ampscope.trace.runinfo import create_run, finish_run
from ampscope.trace.schema import TABLES

BINS = 24
ROLES = ("activation", "activation_grad", "grad", "weight")
LEAVES = ("ln1", "attn.qkv", "attn.proj", "mlp")
ARROW = {
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "dict": pa.dictionary(pa.int32(), pa.string()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float64>": pa.list_(pa.float64()),
    "list<string>": pa.list_(pa.string()),
}


def schema_of(table: str) -> pa.Schema:
    return pa.schema([(c.name, ARROW[c.type]) for c in TABLES[table].columns])


def columns_to_table(table: str, n: int, given: dict[str, Any]) -> pa.Table:
    """`given` as a table of the schema with `n` rows; what is not given is null, scalars are repeated."""
    schema = schema_of(table)
    arrays = []
    for field in schema:
        value = given.get(field.name)
        if value is None:
            arrays.append(pa.nulls(n, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        elif pa.types.is_dictionary(field.type):
            indices = pa.array(np.zeros(n, np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string())))
        elif np.ndim(value) == 0:
            arrays.append(pa.array(np.full(n, value), field.type))
        else:
            arrays.append(pa.array(value, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def modules(count: int) -> list[str]:
    return [f"blocks.{i // len(LEAVES)}.{LEAVES[i % len(LEAVES)]}" for i in range(count)]


def key(steps: np.ndarray) -> dict[str, Any]:
    return {"step": steps, "segment": steps, "micro": 0, "proc": 0, "opt": "AdamW#0", "opt_step": steps}


def tensor_chunks(names: int, steps: np.ndarray, rng: np.random.Generator) -> Iterator[pa.Table]:
    """One table per (role, name), in the order in which compaction sorts them."""
    n = len(steps)
    weight = np.exp(-0.5 * ((np.arange(BINS) - BINS / 2) / 3.5) ** 2)
    for role in ROLES:
        grads = "grad" in role
        for at, module in sorted(enumerate(modules(names)), key=lambda item: item[1]):
            lo = (-30 if grads else -20) + (10 * at) // names + (steps // 997) % 3
            hist = np.maximum(1, 65536 * weight / weight.sum() * rng.uniform(0.8, 1.2, (n, 1))).astype(
                np.int64
            )
            numel = hist.sum(1) + 100
            yield columns_to_table("tensors", n, {
                **key(steps), "phase": "backward" if grads else "forward",
                "name": f"{module}.weight" if role in ("grad", "weight") else f"{module}:out",
                "module": module, "role": role, "basis": "observed", "order": at,
                "dtype": "float32" if role in ("grad", "weight") else "float16",
                "stage": "pre_unscale" if role == "grad" else None,
                "scaled": grads, "scale": 65536.0 if grads else 1.0,
                "numel": numel, "of_numel": numel, "zeros": 100, "nan": 0, "posinf": (steps % 5003 == 0) * 1,
                "neginf": 0, "ge_65520": 0, "amax": 1.5 * 2.0 ** (lo + BINS - 1), "amin_nonzero": 2.0**lo,
                "sum": 0.0, "sumsq": numel * 4.0 ** (lo + 12), "sumabs": numel * 2.0 ** (lo + 12),
                "hist_lo": lo.astype(np.int16),
                "hist": pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * BINS, hist.ravel()),
            })  # fmt: skip


def write_run(path: Path, rows: int) -> None:
    """A finished run with about `rows` rows in `tensors`."""
    names = 248
    steps = np.arange(max(1, rows // (names * len(ROLES))), dtype=np.int64)
    rng = np.random.default_rng(0)
    create_run(path, ["synthetic"], {"every": 1})
    for number, chunk in enumerate(grouped(tensor_chunks(names, steps, rng), 2_000_000 // len(steps) + 1)):
        write_part(path, "tensors", number, pa.concat_tables(chunk).unify_dictionaries())
    n = len(steps)
    write_part(path, "steps", 0, columns_to_table("steps", n, {
        **key(steps), "phase": "other", "outcome": "stepped", "skipped": False, "t_start": steps * 0.1,
        "duration_s": 0.1, "data_s": 0.01, "forward_s": 0.03, "backward_s": 0.04, "unscale_s": 0.001,
        "optimizer_s": 0.01, "loss": 4 * np.exp(-steps / n) + rng.normal(0, 0.02, n), "scale": 65536.0,
        "autocast_dtype": "float16", "level": "range", "own_s": 0.001,
    }))  # fmt: skip
    write_part(path, "scaler", 0, columns_to_table("scaler", n, {
        **key(steps), "scaler": "GradScaler#0", "scale": 65536.0, "scale_after": 65536.0, "found_inf": False,
        "skipped": False, "growth_tracker": steps % 2000, "growth_factor": 2.0, "backoff_factor": 0.5,
        "growth_interval": 2000, "init_scale": 65536.0,
    }))  # fmt: skip
    finish_run(path, 0)


def grouped(chunks: Iterator[pa.Table], size: int) -> Iterator[list[pa.Table]]:
    while group := list(itertools.islice(chunks, size)):
        yield group


def write_part(path: Path, table: str, number: int, content: pa.Table) -> None:
    folder = part_dir(path, table, 0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / part_name(0, number)).write_bytes(part_bytes(content))
