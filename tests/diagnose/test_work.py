from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.work import gpu_of, low_dtype, matrices_of, span, works_of
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, key, op, step, write


def test_matmul_work_by_module(tmp_path: Path) -> None:
    amp = {"autocast_dtype": "float16"}
    ops = [
        op(1, 0, "mm", "float16", flops=10.0, module="a", in_amax=2.0, out_amax=8.0),
        op(1, 1, "mm", "float32", flops=30.0, module="b", in_amax=4.0, out_amax=1.0),
        op(1, 2, "mm", "float32", flops=30.0, module="b", phase="backward", out_amax=1e6),
        op(1, 3, "mm", "float32", flops=99.0, module="c", phase="optimizer"),
        op(2, 0, "mm", "float32", flops=99.0, module="a"),
        op(1, 4, "add", "float32", module="a"),
    ]
    tables = {"steps": [step(0, **amp), step(1, **amp), step(2)], "ops": ops}
    with open_trace(write(tmp_path, tables)) as trace:
        b, a = works_of(Signals(trace))
    assert (b.module, b.flops, b.float32, b.half, b.amax) == ("b", 60.0, 60.0, 0.0, 4.0)
    assert (a.module, a.flops, a.float32, a.half, a.amax) == ("a", 10.0, 0.0, 10.0, 8.0)


def test_facts_about_the_run(tmp_path: Path) -> None:
    params = [
        {**key(0), "name": "w", "module": "m", "shape": "4x4", "device": "cuda"},
        {**key(0), "name": "b", "module": "n", "shape": "4", "device": "cuda"},
    ]
    steps = [step(3), step(4, autocast_dtype="bfloat16"), step(5, autocast_dtype="bfloat16", n_backward=0)]
    with open_trace(write(tmp_path, {"steps": steps, "params": params}, devices=(H200,))) as trace:
        s = Signals(trace)
        assert low_dtype(s) == "bfloat16"
        assert span(s) == (3, 5)
        assert gpu_of(s) == H200
        assert matrices_of(s).names == {"w"}
        assert matrices_of(s).modules == {"m"}


def test_a_run_on_the_cpu_beside_a_gpu(tmp_path: Path) -> None:
    params = [{**key(0), "name": "w", "device": "cpu"}]
    with open_trace(write(tmp_path, {"steps": [step(0)], "params": params}, devices=(H200,))) as trace:
        s = Signals(trace)
        assert gpu_of(s) is None
        assert low_dtype(s) is None
        assert works_of(s) == ()
