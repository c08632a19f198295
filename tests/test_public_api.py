from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import ampscope


def test_the_public_names_are_exactly_all() -> None:
    assert ampscope.__all__ == ["Recorder", "__version__", "diagnose", "open_trace"]
    assert dir(ampscope) == ampscope.__all__
    star: dict[str, object] = {}
    exec("from ampscope import *", star)
    assert set(star) - {"__builtins__"} == set(ampscope.__all__)


@pytest.mark.parametrize("name", ampscope.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(ampscope, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ampscope' has no attribute 'record'"):
        ampscope.record  # type: ignore[attr-defined]  # noqa: B018


def test_diagnose_is_the_function_whether_or_not_the_package_was_imported() -> None:
    package = importlib.import_module("ampscope.diagnose")
    assert callable(ampscope.diagnose)
    with pytest.raises(TypeError, match="argument"):
        ampscope.diagnose()  # type: ignore[call-arg]
    assert package.diagnose is not package


def test_importing_it_loads_nothing() -> None:
    code = "import sys; old = set(sys.modules); import ampscope; print(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded <= {"__future__", "ampscope", "types", "warnings"} | {
        m for m in loaded if m.startswith("importlib")
    }
