from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch.nested._internal import nested_tensor

from ampscope.hooks import profiler as module
from ampscope.hooks.profiler import OpProfile, uses_tensor_cores
from ampscope.trace.schema import KERNELS


def _work() -> None:
    x = torch.ones(8, 8, requires_grad=True)
    for _ in range(3):
        (x @ x).relu().sum().backward()


def test_ops_with_their_times_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_tensor, "_tensor_id_counter", 0)
    profile = OpProfile()
    assert profile.start()
    _work()
    rows = profile.stop()
    assert profile.failure is None
    names = {c.name for c in KERNELS.columns}
    assert all(row.keys() <= names for row in rows)
    mm = [row for row in rows if row["name"] == "aten::mm"]
    assert sum(row["calls"] for row in mm) == 9
    assert {row["in_shapes"] for row in mm} == {"8x8, 8x8"}, mm
    assert all(0.0 <= row["self_host_s"] <= row["total_host_s"] for row in rows)
    assert {row["kind"] for row in rows} == {"op"}
    assert profile.own_s > 0.0


def test_self_times_add_up_to_the_outermost_events() -> None:
    def event(start: int, duration: int) -> module._Event:
        return module._Event(("", ""), start, duration, duration)

    events = [event(15, 5), event(0, 100), event(10, 30), event(50, 20), event(200, 7)]
    module._subtract_children(events)
    assert [(e.start, e.left) for e in events] == [(0, 50), (10, 25), (15, 5), (50, 20), (200, 7)]


class _Device:
    """What the profiler gives for an event of a GPU, which this test has none of."""

    def __init__(self, name: str, ns: int, owner: int, annotation: bool = False) -> None:
        self.values = {"name": name, "duration_ns": ns, "linked_correlation_id": owner}
        self.annotation = annotation

    def __getattr__(self, name: str) -> Any:
        return lambda: self.values[name]

    def is_user_annotation(self) -> bool:
        return self.annotation


def test_kernels_are_booked_on_the_op_that_launched_them() -> None:
    ops = {("aten::mm", "8x8, 8x8"): module._Totals(calls=1)}
    events = [_Device("nvjet_hsh_64x8", 40, 7), _Device("nvjet_hsh_64x8", 2, 9), _Device("step", 99, 7, True)]
    kernels = module._kernel_totals(events, {7: ("aten::mm", "8x8, 8x8")}, ops)
    assert {name: (t.calls, t.device_ns) for name, t in kernels.items()} == {"nvjet_hsh_64x8": (2, 42)}
    assert ops[("aten::mm", "8x8, 8x8")].device_ns == 40


def test_not_while_the_user_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    profile = OpProfile()
    with torch.autograd.profiler.profile() as users:
        assert not profile.start()
        torch.ones(2).neg()
        assert profile.stop() == []
    assert "aten::neg" in {event.key for event in users.key_averages()}


def test_gives_way_to_a_profiler_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    profile = OpProfile()
    assert profile.start()
    torch.ones(2).cos()
    with torch.autograd.profiler.profile() as users:
        torch.ones(2).neg()
    names = {event.key for event in users.key_averages()}
    assert "aten::neg" in names
    assert "aten::cos" not in names
    assert profile.stop() == []
    assert profile.failure is None


def test_started_twice_and_stopped_twice() -> None:
    profile = OpProfile()
    assert profile.start()
    assert not profile.start()
    _work()
    assert profile.stop()
    assert profile.stop() == []


def test_a_profiler_that_fails_costs_the_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no profiler in this build")

    monkeypatch.setattr(module._Legacy, "start", broken)
    profile = OpProfile()
    assert not profile.start()
    assert profile.failure is not None
    assert "no profiler in this build" in profile.failure
    assert profile.stop() == []


def test_silent_and_without_a_trace_in_environment_or_imports() -> None:
    script = """
        import os, sys, torch
        before = set(sys.modules)
        from ampscope.hooks.profiler import OpProfile
        profile = OpProfile()
        for _ in range(2):
            assert profile.start()
            torch.ones(2) + 1
            assert profile.stop()
        assert "KINETO_LOG_LEVEL" not in os.environ
        assert not {"torch._inductor", "torch._dynamo"} & (set(sys.modules) - before)
        profile.start()  # never stopped: the process must still end well, and so must a child of it
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", True),
        ("volta_h884gemm_256x64_ldg8_tn", True),
        ("turing_fp16_s1688gemm_fp16_64x64_sliced1x2_ldg8_f2f_nn", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align8>(Params)", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x8", True),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", True),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", True),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", True),
        ("ampere_sgemm_128x64_tn", False),
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma", False),
        ("void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", False),
        ("void gemv2T_kernel_val<int, int, float, float>", False),
        ("triton_poi_fused_gelu_0", None),
    ],
)
def test_names_of_tensor_core_kernels(kernel: str, expected: bool | None) -> None:
    assert uses_tensor_cores(kernel) is expected


def test_kineto_gives_the_same_ops() -> None:
    """In a process of its own: a forked child of one that used Kineto hangs at its end."""
    script = """
        import torch
        from ampscope.hooks import profiler
        def calls(source):
            source.start()
            x = torch.ones(8, 8, requires_grad=True)
            (x @ x).relu().sum().backward()
            rows = profiler._rows(source.stop())
            return {(r["name"], r["in_shapes"]): r["calls"] for r in rows if r["name"].startswith("aten::")}
        calls(profiler._Legacy())
        legacy, kineto = calls(profiler._Legacy()), calls(profiler._Kineto())
        assert legacy == kineto, (legacy, kineto)
        assert legacy[("aten::mm", "8x8, 8x8")] == 3
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_jagged_tensors_are_not_asked_for_their_shapes(capfd: pytest.CaptureFixture[str]) -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    profile = OpProfile()
    assert profile.start()
    torch.nn.functional.linear(jagged, torch.ones(2, 4))
    assert profile.stop()
    assert capfd.readouterr().err == ""
