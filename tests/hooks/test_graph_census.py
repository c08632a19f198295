from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from ampscope.hooks.graph_census import FIRST_SEQ, GraphCensus, GraphTensor, parse_graph
from ampscope.trace.schema import OPS

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 4][4, 1]cpu", s0: "Sym(s0)", primals_2: "bf16[s0, 4][4, 1]cuda:0"):
        # No stacktrace found for following nodes
        convert: "bf16[4, 4][4, 1]cuda:0" = torch.ops.prims.convert_element_type.default(primals_1, torch.bfloat16)
        mm: "bf16[s0, 4][4, 1]cuda:0" = torch.ops.aten.mm.default(primals_2, convert);  convert = None
        var_mean = torch.ops.aten.var_mean.correction(mm, [1], correction = 0, keepdim = True);  mm = None
        getitem: "f32[s0, 1][1, 1]cuda:0" = var_mean[0]
        getitem_1: "f32[s0, 1][1, 1]cuda:0" = var_mean[1];  var_mean = None
        add: "f32[s0, 1][1, 1]cuda:0" = torch.ops.aten.add.Tensor(getitem, 1e-05);  getitem = None
        cat: "f8e4m3fn[8][1]cpu" = torch.ops.aten.cat.default([add, getitem_1], -2)
        nothing that anyone could read
        return (add,)
"""


def test_nodes_with_dtypes_shapes_and_devices() -> None:
    ops = parse_graph(GRAPH)
    assert [op.op for op in ops] == [
        "prims::convert_element_type",
        "aten::mm",
        "aten::var_mean",
        "aten::add",
        "aten::cat",
    ]
    product = ops[1]
    assert product.inputs == [GraphTensor("bfloat16", "s0x4", "cuda"), GraphTensor("bfloat16", "4x4", "cuda")]
    assert product.outputs == [GraphTensor("bfloat16", "s0x4", "cuda")]
    assert [t.dtype for t in ops[2].outputs] == ["float32", "float32"], "results taken by index"
    assert ops[2].scalars == [0.0], "a keyword counts, a list of dimensions does not"
    assert ops[3].scalars == [1e-5]
    assert [t.dtype for t in ops[4].outputs] == ["float8_e4m3fn"]
    assert len(ops[4].inputs) == 2


def test_text_that_is_no_graph_gives_nothing() -> None:
    assert parse_graph("") == []
    assert parse_graph("def forward(self):\n    return ()") == []


class _Compiled:
    """Stands for a graph object of Inductor of some other version."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def post_compile(self, value: int) -> int:
        return value + 1


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> type[_Compiled]:
    module = type(sys)("torch._inductor.output_code")
    module.CompiledFxGraph = _Compiled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch._inductor.output_code", module)
    return _Compiled


def test_rows_once_per_graph_and_the_method_comes_back(inductor: type[_Compiled]) -> None:
    original = inductor.post_compile
    census = GraphCensus()
    census.install()
    census.check()
    assert inductor(inductor_post_grad_graph_str=GRAPH, fx_kwargs={"is_backward": True}).post_compile(1) == 2
    assert inductor(inductor_post_grad_graph_str=GRAPH).post_compile(1) == 2
    rows = census.drain()
    assert [row["seq"] for row in rows] == list(range(FIRST_SEQ, FIRST_SEQ + 10))
    assert [row["phase"] for row in rows] == ["backward"] * 5 + ["forward"] * 5
    assert rows[1]["in_shapes"] == ["s0x4", "4x4"]
    assert {row["cast"] for row in rows} == {None}, "Inductor's own converts are nobody's casts"
    assert rows[0].keys() <= {c.name for c in OPS.columns}
    assert [rows[0]["function"], rows[5]["function"]] == ["compiled graph 0", "compiled graph 1"]
    assert census.drain() == []
    census.remove()
    assert inductor.post_compile is original


def test_a_graph_that_we_cannot_read_is_compiled_all_the_same(inductor: type[_Compiled]) -> None:
    class Hostile:
        def __bool__(self) -> bool:
            raise RuntimeError("no")

    census = GraphCensus()
    census.install()
    assert inductor(inductor_post_grad_graph_str=Hostile()).post_compile(1) == 2
    assert census.failure == "RuntimeError: no"
    assert inductor().post_compile(1) == 2
    assert census.drain() == []
    census.remove()


def test_without_inductor_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.output_code", raising=False)
    original = torch._TorchCompileInductorWrapper.__call__
    census = GraphCensus()
    census.install()
    census.check()
    assert "torch._inductor.output_code" not in sys.modules
    assert torch._TorchCompileInductorWrapper.__call__ is not original
    census.remove()
    assert torch._TorchCompileInductorWrapper.__call__ is original


SCRIPT = """
    import torch
    from torch._dynamo.utils import counters
    from ampscope.hooks.census import Census
    from ampscope.hooks.graph_census import GraphCensus
    from tests.support.opview import View

    graphs = GraphCensus()
    graphs.install()
    w = torch.randn(8, 8, dtype=torch.bfloat16, requires_grad=True)

    @torch.compile
    def f(x):
        return x @ w

    def step():
        w.grad = None
        y = f(torch.ones(4, 8, dtype=torch.bfloat16))
        y.backward(torch.ones_like(y))
        return w.grad.clone()

    census = Census(View())
    assert census.start()
    first = step()
    census.stop()
    seen = {(r["op"], r["phase"], *r["out_dtypes"]) for r in graphs.drain()}
    assert {("aten::mm", "forward", "bfloat16"), ("aten::mm", "backward", "bfloat16")} <= seen, seen
    compiled = dict(counters["stats"])
    assert census.start()
    second = step()
    rows = census.stop()
    assert census.failure is None and graphs.failure is None
    assert torch.equal(first, second) and torch.equal(first, step())
    assert dict(counters["stats"]) == compiled, "nothing was compiled for the census or after it"
    assert graphs.drain() == []
    # Inductor's own matmul is seen, and the code that Inductor wrote is not taken for the user's.
    assert "aten::mm" in {r["op"] for r in rows}
    assert {r["file"] for r in rows} <= {__file__}, {r["file"] for r in rows}
"""


def test_a_compiled_step_is_seen_and_stays_compiled(tmp_path: Path) -> None:
    """The default backend on a graph that needs no C++ compiler."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
