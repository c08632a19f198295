"""Models and loops that are hostile to a recorder: the result is that of plain python, and nothing is switched off."""

from __future__ import annotations

import pytest

from tests.failopen.conftest import CarryOut
from tests.failopen.hostile import CASES


@pytest.mark.parametrize("name", CASES)
def test_nothing_changes_and_nothing_is_switched_off(name: str, carry_out: CarryOut) -> None:
    plain, recorded = carry_out({"case": name, "recorded": False}, {"case": name})

    assert plain.status == 0, plain.stderr
    assert recorded.status == 0, recorded.stderr
    assert recorded.digests == plain.digests
    assert recorded.stderr == plain.stderr
