from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from ampscope.hooks.census import Census
from ampscope.hooks.oprow import Row
from ampscope.hooks.tensorfacts import Limits
from ampscope.trace.schema import KEY, OPS
from tests.support.opview import Log, View, mode_stack, watching

HALF = torch.float16


def census(
    function: Callable[[], Any], model: nn.Module | None = None, limits: Limits | None = None
) -> list[Row]:
    with watching(model) as view:
        taken = Census(view, limits)
        assert taken.start()
        try:
            function()
        finally:
            rows = taken.stop()
    assert taken.failure is None, taken.failure
    assert mode_stack() == []
    return rows


def row_of(rows: list[Row], op: str, nth: int = 0) -> Row:
    return [row for row in rows if row["op"] == op][nth]


# -- rows ------------------------------------------------------------------------------------------------------


def test_columns_are_those_of_the_schema() -> None:
    (row,) = census(lambda: torch.ones(2))
    expected = {"phase", "micro"} | {c.name for c in OPS.columns} - {c.name for c in KEY}
    assert row.keys() == expected


def test_a_matmul() -> None:
    a, b = torch.full((2, 3), 2.0, dtype=HALF), torch.full((3, 4), -1.0, dtype=HALF)
    b[0, 0] = 0.0
    row = row_of(census(lambda: torch.mm(a, b)), "aten::mm")
    assert row["in_dtypes"] == ["float16", "float16"]
    assert (row["in_shapes"], row["out_shapes"]) == (["2x3", "3x4"], ["2x4"])
    assert (row["in_bytes"], row["out_bytes"], row["flops"]) == (12 + 24, 16, 48.0)
    assert (row["in_amax"], row["in_amin"], row["in_zeros"]) == (2.0, -1.0, 1)
    assert (row["out_amax"], row["out_zeros"], row["out_nonfinite"], row["out_nan"]) == (6.0, 0, 0, 0)
    assert (row["shadow_amax"], row["shadow_flushed"], row["shadow_sqnr_db"]) == (6.0, 0, math.inf)
    assert row["device"] == "cpu"
    assert row["phase"] == "other"
    assert row["host_s"] > 0.0
    assert row["file"] == __file__


def test_scalars_come_in_order_without_flags_and_dimensions_stay_out_of_the_way() -> None:
    x = torch.ones(2, 3)

    def run() -> None:
        torch.clamp(x, min=1e-8, max=5)
        torch.add(x, 1e-12)
        torch.add(x, x, alpha=0.5)
        x.sum(dim=1, keepdim=True)
        torch._foreach_mul_([torch.ones(1), torch.ones(1)], [2.0, 3.0])
        x.masked_fill(x > 0, float("-inf"))

    rows = census(run)
    assert row_of(rows, "aten::clamp")["scalars"] == [1e-8, 5.0]
    assert row_of(rows, "aten::add")["scalars"] == [1e-12]
    assert row_of(rows, "aten::add", 1)["scalars"] == [0.5]
    assert row_of(rows, "aten::sum")["scalars"] is None
    assert row_of(rows, "aten::_foreach_mul_")["scalars"] == [2.0, 3.0]
    assert row_of(rows, "aten::masked_fill")["scalars"] == [-math.inf]


def test_data_flow_can_be_followed() -> None:
    def run() -> None:
        a = torch.ones(4)
        b = a.view(2, 2).t()
        c = b * 2
        del a, b
        torch.zeros(4) + c.sum()

    rows = census(run)
    (made,) = row_of(rows, "aten::ones")["tensor_ids"]
    assert row_of(rows, "aten::view")["tensor_ids"] == [made, made]
    assert row_of(rows, "aten::mul")["tensor_ids"][0] == made
    product = row_of(rows, "aten::mul")["tensor_ids"][1]
    assert row_of(rows, "aten::sum")["tensor_ids"][0] == product
    (fresh,) = row_of(rows, "aten::zeros")["tensor_ids"]
    assert fresh not in (made, product), "the freed memory of the first tensor must not be taken for it"


def test_an_in_place_op_is_read_before_and_after() -> None:
    x = torch.tensor([1.0, -3.0])
    row = row_of(census(lambda: x.mul_(4)), "aten::mul_")
    assert (row["in_amax"], row["out_amax"], row["in_amin"]) == (3.0, 12.0, -3.0)


def test_what_is_only_overwritten_is_no_input() -> None:
    garbage = torch.full((2,), math.nan)
    rows = census(lambda: (garbage.fill_(1.0), torch.add(torch.ones(2), 1, out=garbage.fill_(math.nan))))
    filled = row_of(rows, "aten::fill_")
    assert (filled["in_dtypes"], filled["in_nonfinite"], filled["out_nonfinite"]) == ([], None, 0)
    added = row_of(rows, "aten::add")
    assert (added["in_nonfinite"], added["out_nonfinite"], added["out_amax"]) == (0, 0, 2.0)


def test_uninitialised_memory_is_not_read() -> None:
    row = row_of(census(lambda: torch.empty(1000)), "aten::empty")
    assert row["out_nonfinite"] is None


def test_foreach_ops_report_what_they_wrote() -> None:
    x = [torch.ones(2), torch.full((3,), 7.0)]
    row = row_of(census(lambda: torch._foreach_add_(x, 1.0)), "aten::_foreach_add_")
    assert (row["in_shapes"], row["out_shapes"], row["out_amax"]) == (["2", "3"], ["2", "3"], 8.0)


def test_non_finite_values_are_counted() -> None:
    x = torch.tensor([1.0, math.inf, 0.0])
    row = row_of(census(lambda: x - x), "aten::sub")
    assert (row["in_nonfinite"], row["out_nonfinite"], row["out_nan"]) == (2, 1, 1)


def test_views_have_a_row_without_values() -> None:
    row = row_of(census(lambda: torch.ones(2, 2).t()), "aten::t")
    assert row["out_shapes"] == ["2x2"]
    assert row["out_amax"] is None


def test_an_op_that_raises_has_a_row() -> None:
    def run() -> None:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))

    row = row_of(census(run), "aten::mm")
    assert (row["error"], row["out_dtypes"]) == ("RuntimeError", [])


def test_gradients_flushed_by_half_are_observed() -> None:
    linear = nn.Linear(16, 16, bias=False)
    x = torch.full((4, 16), 1e-3)

    def run() -> None:
        with torch.autocast("cpu", dtype=HALF):
            loss = linear(x).float().square().mean() * 1e-5
        loss.backward()

    rows = census(run, linear)
    flushed = [r for r in rows if r["phase"] == "backward" and r["shadow_flushed"]]
    assert flushed
    assert {r["op"] for r in flushed} <= {"aten::_to_copy", "aten::mm"}


def test_a_step_of_training_has_its_phases() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with watching(model) as view:
        taken = Census(view)
        taken.start()
        model(torch.ones(2, 4)).sum().backward()
        view.in_optimizer = True
        optimizer.step()
        view.in_optimizer = False
        rows = taken.stop()
    assert {row["phase"] for row in rows} == {"forward", "other", "backward", "optimizer"}
    assert "aten::_foreach_addcdiv_" in {row["op"] for row in rows if row["phase"] == "optimizer"}
    assert [row["seq"] for row in rows] == list(range(len(rows)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_hostile_and_strange_tensors_are_described_as_far_as_they_let() -> None:
    class NoShape(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") == "__get__":
                raise RuntimeError("no attributes here")
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    def run() -> None:
        torch.ones(2).as_subclass(NoShape).neg()
        torch.ones(3).to_sparse_coo().abs()
        torch.ones(2, dtype=torch.complex64).abs()
        torch.ones(2, device="meta") + 1
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged) * 2
        torch.ones(4).to(torch.float8_e4m3fn)
        torch.func.vmap(torch.sin)(torch.ones(2, 2))
        torch.func.hessian(lambda x: x.sin().square().sum())(torch.ones(3))

    rows = census(run)
    assert row_of(rows, "aten::neg")["in_shapes"] == ["2"]
    assert row_of(rows, "aten::abs")["in_amax"] == 1.0
    assert "meta" not in {row["device"] for row in rows}
    assert "aten::sin" in {row["op"] for row in rows}


# -- limits ------------------------------------------------------------------------------------------------------


def test_limits_of_rows_elements_time_and_shadows() -> None:
    x = torch.ones(8, dtype=HALF)
    limits = Limits(rows=2)
    assert len(census(lambda: [x + 1 for _ in range(5)], limits=limits)) == 2
    row = row_of(census(lambda: x.sum(), limits=replace(limits, elements=4)), "aten::sum")
    assert row["in_amax"] is None
    assert row["out_amax"] == 8.0
    row = row_of(census(lambda: x.sum(), limits=Limits(shadow_elements=4)), "aten::sum")
    assert row["shadow_amax"] is None
    rows = census(lambda: [x + 1 for _ in range(3)], limits=Limits(seconds=0.0))
    assert [row["out_amax"] is None for row in rows] == [False, True, True]


def test_nothing_of_the_run_is_kept_alive() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []
    with watching() as view:
        taken = Census(view)
        taken.start()
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        kept = [weakref.ref(x), weakref.ref(y)]
        y.sum().backward()
        del x, y
        gc.collect()
        assert [r() for r in kept] == [None, None]
        taken.stop()


def test_it_can_be_started_again() -> None:
    taken = Census(View())
    for _ in range(2):
        taken.start()
        torch.ones(1)
        assert [row["seq"] for row in taken.stop()] == [0]


# -- the run is what it would have been ----------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, checkpointed: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(32, 16))
        self.bn = nn.BatchNorm1d(6)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.checkpointed:
            return self.body(x)
        out: torch.Tensor = torch.utils.checkpoint.checkpoint(
            self.body, x, use_reentrant=self.checkpointed == "reentrant"
        )
        return out

    def body(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        out: torch.Tensor = x + self.attention(h, h, h)[0]
        mixed: torch.Tensor = self.bn(out + self.mlp(out))
        return mixed + F.dropout(out, 0.1)


def train(dtype: torch.dtype | None, checkpointed: str, observed: bool) -> list[torch.Tensor]:
    """Losses, parameters, buffers, optimizer state and random state after four steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 16), Block(checkpointed), Block(""), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is HALF)
    losses = []
    with watching(model) as view:
        taken = Census(view)
        for _ in range(4):
            if observed:
                assert taken.start()
            x, y = torch.randint(10, (3, 6)), torch.randint(10, (3, 6))
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if observed:
                assert len(taken.stop()) > 300
                assert taken.failure is None, taken.failure
    state = [v for s in optimizer.state.values() for v in s.values()]
    return [*losses, *model.state_dict().values(), *state, torch.get_rng_state()]


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("checkpointed", ["", "reentrant", "non-reentrant"])
def test_training_is_bit_for_bit_the_same(dtype: torch.dtype | None, checkpointed: str) -> None:
    plain = train(dtype, checkpointed, observed=False)
    observed = train(dtype, checkpointed, observed=True)
    assert len(plain) == len(observed)
    for a, b in zip(plain, observed, strict=True):
        assert torch.equal(a, b)


def test_a_gradient_is_taken_over_and_not_cloned() -> None:
    def pointers(observed: bool) -> bool:
        linear = nn.Linear(4, 4, bias=False)
        seen: list[int] = []
        taken = Census(View())
        if observed:
            taken.start()
        y = linear(torch.ones(2, 4))
        linear.weight.register_hook(lambda g: seen.append(g.data_ptr()))
        y.sum().backward()
        if observed:
            taken.stop()
        assert linear.weight.grad is not None
        return linear.weight.grad.data_ptr() == seen[0]

    assert pointers(False) == pointers(True)


def test_selective_checkpointing_of_the_user_works() -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op == torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    w = torch.randn(4, 4, requires_grad=True)

    def run() -> torch.Tensor:
        w.grad = None
        y = torch.utils.checkpoint.checkpoint(
            lambda x: torch.mm(x, w).sigmoid().sum(),
            torch.ones(2, 4),
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
        y.backward()
        assert w.grad is not None
        return w.grad.clone()

    plain = run()
    found: list[torch.Tensor] = []
    rows = census(lambda: found.append(run()))
    assert torch.equal(plain, found[0])
    assert [row["op"] for row in rows].count("aten::mm") == 2, "saved, not computed again"


def test_a_mode_of_the_user_sees_what_it_would_have_seen() -> None:
    def run() -> list[str]:
        x = torch.ones(2, 3, requires_grad=True)
        with Log() as log:
            F.softmax(x @ x.t(), -1).sum().backward()
        names: list[str] = log.names
        return names

    plain = run()
    found: list[list[str]] = []
    census(lambda: found.append(run()))
    assert found == [plain]
