"""Builds a run with millions of tensor rows and times what the dashboard asks of it: first plots and callbacks.

    python benchmarks/dashboard.py --rows 10000000 --dir /tmp/ampscope-dashboard [--browser]

The run is synthetic (a 62-block transformer, four roles, histograms of 24 binades) and sorted as compaction leaves
a finished run. It is kept in `--dir`, so a second call only measures. Goals: a first plot within 1 s, callbacks
within 300 ms. *Cold* is a part as the first request of a fresh dashboard; *warm* is the same after
`RunStore.warm`, which runs in the background from the start; *again* is the same view a second time. *CPU* is the
time that all threads took for the cold one together: it hardly depends on who else uses the machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from plotly.io.json import to_json_plotly

from ampscope.app import callbacks
from ampscope.app.runs import RunStore
from ampscope.app.server import Server, create_app
from ampscope.app.state import View
from ampscope.trace.encode import part_bytes
from ampscope.trace.parts import part_dir, part_name
from ampscope.trace.runinfo import create_run, finish_run
from ampscope.trace.schema import TABLES

BINS = 24
ROLES = ("activation", "activation_grad", "grad", "weight")
LEAVES = ("ln1", "attn.qkv", "attn.proj", "mlp")
ARROW: dict[str, pa.DataType] = {
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
            indices = pa.array(np.zeros(n, np.int32), pa.int32())
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
                "hist": pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * BINS, pa.int32()), pa.array(hist.ravel())),
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


VIEWS = (
    ("/", "", "/time"),
    ("/", "", "/absorbed"),
    ("/", "", "/flushed"),
    ("/", "", "/course"),
    ("/scale", "", "scale/course"),
    ("/scale", "", "scale/replay"),
    ("/gradients", "", "gradients/heat"),
    ("/gradients", "", "gradients/tensor"),
    ("/gradients", "", "gradients/window"),
    ("/gradients", "stat=zeros", "gradients/heat"),
    ("/gradients", "tensor=blocks.30.mlp.weight", "gradients/tensor"),
    ("/gradients", "of=activation_grad", "gradients/heat"),
    ("/activations", "", "activations/heat"),
    ("/activations", "tensor=blocks.7.attn.qkv:out", "activations/tensor"),
    ("/timing", "", "timing/phases"),
)
"""(path, query, part): first plots, and what a choice asks for."""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fill(runs: RunStore, path: str, search: str, part: str) -> None:
    """One request of the browser: rendered and turned into JSON."""
    content = callbacks.fill_part(runs, View.parse(path, search), part)
    text = to_json_plotly(content)
    if "could not be computed" in text or "cannot be shown" in text:
        raise SystemExit(f"{part}: {text[:400]}")


def measure(path: Path) -> list[tuple[str, float, float, float, float]]:
    """(view, CPU of the cold one, cold, warm, again) in seconds."""
    out = []
    warmed = RunStore([path])
    opened = seconds(lambda: warmed.get(warmed.names[0]))
    warm = seconds(warmed.warm)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, DuckDB {duckdb.__version__}")
    print(f"opened in {opened:.2f} s (every part checked by its checksum), warmed in {warm:.2f} s")
    for address, search, part in VIEWS:
        fresh = RunStore([path])
        fresh.get(fresh.names[0])
        before = time.process_time()
        cold = seconds(lambda: fill(fresh, address, search, part))  # noqa: B023
        cpu = time.process_time() - before
        fresh.close()
        first = seconds(lambda: fill(warmed, address, search, part))  # noqa: B023
        again = statistics.median(seconds(lambda: fill(warmed, address, search, part)) for _ in range(5))  # noqa: B023
        out.append((f"{part} {search}".strip(), cpu, cold, first, again))
    warmed.close()
    return out


def in_browser(path: Path) -> None:
    """From the address to the first drawn plot, in a headless Chromium."""
    from playwright.sync_api import sync_playwright

    runs = RunStore([path])
    runs.get(runs.names[0])
    server = Server(create_app(runs), "127.0.0.1")
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    warm = threading.Thread(target=runs.warm, daemon=True)
    warm.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox"]
        )
        context = browser.new_context()
        for label, address in (
            ("overview, cold browser", ""), ("overview", ""), ("scale", "scale"), ("gradients", "gradients"),
        ):  # fmt: skip
            page = context.new_page()
            start = time.perf_counter()
            page.goto(server.url + address)
            if not address:
                page.locator(".stat-value").first.wait_for()
                print(f"first number in the browser, {label}: {time.perf_counter() - start:.2f} s")
            page.locator(".js-plotly-plot .main-svg").first.wait_for()
            print(f"first plot in the browser, {label}: {time.perf_counter() - start:.2f} s")
            page.close()
        browser.close()
    runs.stop()
    warm.join()
    server.stop()
    serving.join()
    runs.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dir", type=Path, default=Path("/tmp/ampscope-dashboard"))
    parser.add_argument("--browser", action="store_true", help="also time the first plot in Chromium")
    args = parser.parse_args()
    path = args.dir / f"rows-{args.rows}"
    if not (path / "COMPLETE").exists():
        print(f"building {path} ...")
        write_run(path, args.rows)
    print(f"{'part':60} {'CPU':>9} {'cold':>9} {'warm':>9} {'again':>9}")
    for name, *times in measure(path):
        print(f"{name:60} " + " ".join(f"{1000 * t:6.0f} ms" for t in times))
    if args.browser:
        in_browser(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
