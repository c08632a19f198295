from __future__ import annotations

import pytest

from tests.patch.patching import patched, refusal


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")'),
        ("torch.cuda.amp.autocast(True, torch.bfloat16)",
         'torch.amp.autocast("cuda", enabled=True, dtype=torch.bfloat16)'),
        ("torch.cpu.amp.autocast(enabled=on)", 'torch.amp.autocast("cpu", enabled=on)'),
        ("torch.cuda.amp.GradScaler(init_scale=8)", 'torch.amp.GradScaler("cuda", init_scale=8)'),
        ("torch.cuda.amp.custom_fwd(cast_inputs=torch.half)",
         'torch.amp.custom_fwd(cast_inputs=torch.half, device_type="cuda")'),
    ],
)  # fmt: skip
def test_dotted_names(before: str, after: str) -> None:
    assert patched("AMP119", f"import torch\nx = {before}  #! deprecated\n") == f"import torch\nx = {after}\n"


def test_imported_names_in_the_whole_file() -> None:
    assert patched(
        "AMP119",
        """
        from torch.cuda.amp import GradScaler, autocast, custom_fwd

        scaler = GradScaler()  #! deprecated

        def never_called():
            with autocast(False):
                pass

        class F:
            @custom_fwd
            def forward(ctx): ...
        """,
    ) == (
        "from torch.amp import GradScaler, autocast, custom_fwd\n\n"
        'scaler = GradScaler("cuda")\n\n'
        'def never_called():\n    with autocast("cuda", enabled=False):\n        pass\n\n'
        'class F:\n    @custom_fwd(device_type="cuda")\n    def forward(ctx): ...\n'
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from torch.cuda import amp\namp.GradScaler()  #! deprecated\n", "imports the module `amp` itself"),
        ("import torch.cuda.amp as amp\namp.GradScaler()  #! deprecated\n", "through an alias of its module"),
        (
            "from torch.cuda.amp import *\nGradScaler()  #! deprecated\n",
            "imports more than the deprecated names",
        ),
        ("import torch\ntorch.cuda.amp.autocast(*a)  #! deprecated\n", "passes its arguments with * or **"),
        ("import lib\nlib.setup()  #! deprecated\n", "does not use the old names: a library does"),
    ],
)
def test_refusals(source: str, said: str) -> None:
    assert said in refusal("AMP119", source)
