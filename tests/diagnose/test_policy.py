from __future__ import annotations

import ast
import inspect

from ampscope.diagnose import policy


def test_every_threshold_gives_the_reason_for_its_value() -> None:
    tree = ast.parse(inspect.getsource(policy.Policy))
    (definition,) = tree.body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body[1:]
    names = [n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    assert names == list(policy.Policy.__dataclass_fields__)
    for field, reason in zip(body[::2], body[1::2], strict=True):
        assert isinstance(field, ast.AnnAssign)
        assert isinstance(reason, ast.Expr)
        assert isinstance(reason.value, ast.Constant)
        assert len(str(reason.value.value)) > 20


def test_shares_are_shares_and_in_order() -> None:
    p = policy.POLICY
    assert 0 < p.flushed_warning < p.flushed_critical <= 1
    assert 0 < p.absorbed_warning < p.absorbed_critical <= 1
    assert 0 < p.scheduler_lost_share < 1
    assert p.tiny_scale < p.scale_matters < p.largest_advised_scale < p.unbounded_scale
