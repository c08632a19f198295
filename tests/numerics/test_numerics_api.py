"""The public names of the package, and that importing it stays light and alone."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import ampscope.numerics as numerics

ALLOWED = {"torch", "numpy", "triton", *sys.stdlib_module_names}


def test_all_is_what_the_package_offers() -> None:
    public = {
        name
        for name, value in vars(numerics).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(numerics.__all__)
    assert list(numerics.__all__) == sorted(
        numerics.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n)
    )


def test_everything_public_is_documented() -> None:
    for name in numerics.__all__:
        value = getattr(numerics, name)
        if callable(value):
            assert len(inspect.getdoc(value) or "") > 30, name


def test_the_notebook_line_works() -> None:
    from ampscope.numerics import FORMATS, exponent_histogram, what_if

    assert callable(exponent_histogram)
    assert callable(what_if)
    assert "fp16" in FORMATS


def test_modules_import_nothing_but_torch_and_numpy() -> None:
    folder = Path(inspect.getfile(numerics)).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                roots = {(node.module or "").split(".")[0]}
            else:
                continue
            assert roots <= ALLOWED, (path.name, roots)


def test_importing_it_does_not_import_triton_or_pandas() -> None:
    code = "import sys, ampscope.numerics; print({'triton', 'pandas', 'pyarrow', 'ml_dtypes'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
