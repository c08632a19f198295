from __future__ import annotations

import pytest

from ampscope.patch.editor import editor, editors
from ampscope.patch.project import Case
from tests.patch.patching import patched, refusal


def test_every_family_is_found() -> None:
    known = editors()
    assert {
        "AMP101",
        "AMP106",
        "AMP107",
        "AMP112",
        "AMP113",
        "AMP115",
        "AMP119",
        "AMP123",
        "AMP401",
        "AMP405",
    } <= set(known)
    assert len(known) >= 25


def test_a_code_has_one_editor() -> None:
    def another(case: Case) -> None:
        raise AssertionError(case)

    with pytest.raises(ValueError, match="AMP101 has two editors"):
        editor("AMP101")(another)


def test_without_an_editor_the_overrides_become_arguments() -> None:
    source = "import torch\ns = torch.amp.GradScaler()  #! scaler.init\n"
    after = "import torch\ns = torch.amp.GradScaler(init_scale=8)\n"
    assert patched("AMP999", source, change={"scaler.init_scale": "8"}) == after


def test_advice_that_is_no_edit() -> None:
    assert refusal("AMP999", "x = 1  #! other\n") == "this advice is no mechanical edit"
