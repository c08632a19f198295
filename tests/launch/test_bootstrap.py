"""The bootstrap in real interpreters, with a stand-in torch and recorder: 20 ms a process instead of 3 s."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import ampscope.launch.command

SOURCE = Path(ampscope.launch.command.BOOTSTRAP) / "sitecustomize.py"

INSTALL = """
import sys
def install_from_environment():
    torch = sys.modules["torch"]
    print("install", torch.complete, "attempt", getattr(torch, "attempt", 1), file=sys.stderr)
"""

TORCH = """
from torch import part
from torch.part import sub
complete = True
"""


@dataclass
class Nest:
    """A folder with a stand-in ampscope around the real bootstrap, and one with a stand-in torch."""

    home: Path

    @property
    def bootstrap(self) -> Path:
        return self.home / "own" / "ampscope" / "launch" / "bootstrap"

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def python(
        self, code: str, *path: Path, recorded: bool = True, strict: bool = False, quiet: bool = False
    ) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AMPSCOPE"))}
        entries = [str(self.home / "lib"), *map(str, path)]
        if recorded:
            entries.insert(0, str(self.bootstrap))
            settings = {"run_dir": str(self.home / "run"), "strict": strict, "quiet": quiet}
            env["AMPSCOPE_SESSION"] = json.dumps(settings)
        env["PYTHONPATH"] = os.pathsep.join(entries)
        script = self.write("script.py", code)
        return subprocess.run(
            [sys.executable, str(script)], env=env, capture_output=True, text=True, cwd=self.home, check=False
        )


@pytest.fixture
def nest(tmp_path: Path) -> Nest:
    made = Nest(tmp_path)
    made.write("own/ampscope/__init__.py", "")
    made.write("own/ampscope/hooks/__init__.py", "")
    made.write("own/ampscope/hooks/install.py", INSTALL)
    made.write("lib/torch/__init__.py", TORCH)
    made.write("lib/torch/part/__init__.py", "")
    made.write("lib/torch/part/sub.py", "")
    (tmp_path / "run").mkdir()
    made.bootstrap.mkdir(parents=True)
    shutil.copy(SOURCE, made.bootstrap)
    return made


STATE = """
import sys
print(sys.path, sorted(sys.modules), sorted(sys.path_importer_cache), sys.flags, sys.argv)
print([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks))
print(sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), __spec__, __file__)
"""


def test_the_interpreter_is_as_plain(nest: Nest) -> None:
    plain = nest.python(STATE, recorded=False)
    assert nest.python(STATE).stdout == plain.stdout
    assert plain.returncode == 0


def test_torch_is_seen_once_when_complete(nest: Nest) -> None:
    code = """
    import importlib, sys
    from importlib.machinery import ModuleSpec, PathFinder
    import torch, torch
    import torch.part.sub
    assert type(torch.__spec__) is ModuleSpec and torch.__spec__._initializing is False
    assert PathFinder.__dict__["find_spec"].__func__.__module__.startswith("_frozen_importlib")
    importlib.reload(torch)
    """
    done = nest.python(code)
    assert (done.returncode, done.stderr) == (0, "install True attempt 1\n")


@pytest.mark.parametrize(
    "change",
    [
        "sys.meta_path[:] = [PathFinder]",
        "sys.meta_path = [BuiltinImporter, PathFinder]",
        "sys.meta_path.insert(0, Own())",
        "sys.meta_path.reverse()",
        "threading.Thread(target=__import__, args=['torch']).start()",
        "os.chdir('/')",
    ],
)
def test_a_script_may_change_the_import_system(nest: Nest, change: str) -> None:
    code = f"""
    import os, sys, threading
    from importlib.machinery import BuiltinImporter, PathFinder
    class Own:
        def find_spec(self, name, path=None, target=None):
            return PathFinder.find_spec(name, path)
    {change}
    import torch
    """
    assert nest.python(code).stderr == "install True attempt 1\n"


def test_an_import_that_fails_may_be_repeated(nest: Nest) -> None:
    nest.write(
        "lib/torch/__init__.py",
        """
        import sys, torch.part
        sys.attempt = attempt = getattr(sys, "attempt", 0) + 1
        if attempt == 1:
            raise OSError("no driver")
        complete = True
        """,
    )
    code = """
    try:
        import torch
    except OSError:
        pass
    import torch
    """
    assert nest.python(code).stderr == "install True attempt 2\n"


def test_a_failing_torch_has_its_plain_traceback(nest: Nest) -> None:
    nest.write("lib/torch/__init__.py", "import torch.part\nimport torch.nowhere\n")
    plain, recorded = nest.python("import torch", recorded=False), nest.python("import torch")
    assert "torch.nowhere" in plain.stderr
    assert (recorded.stderr, recorded.returncode) == (plain.stderr, plain.returncode)


def test_torch_may_come_from_a_finder_of_its_own(nest: Nest) -> None:
    code = """
    import sys
    from importlib.util import spec_from_file_location
    class Editable:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                return spec_from_file_location(name, "hidden/torch/__init__.py",
                                               submodule_search_locations=["hidden/torch"])
    sys.meta_path.insert(0, Editable())
    import torch
    """
    (nest.home / "lib").rename(nest.home / "hidden")
    assert nest.python(code).stderr == "install True attempt 1\n"


def test_looking_for_torch_is_not_importing_it(nest: Nest) -> None:
    code = "from importlib.util import find_spec as f; print(f('torch').name, f('torch')._initializing)"
    done = nest.python(code)
    assert (done.stdout, done.stderr) == ("torch False\n", "")


@pytest.mark.parametrize(
    "body", ["print('theirs', __file__)", "raise ValueError('theirs')", "import nowhere"]
)
def test_another_sitecustomize_runs(nest: Nest, body: str) -> None:
    theirs = nest.write("theirs/sitecustomize.py", body).parent
    code = "import sys; print('sitecustomize' in sys.modules); import torch"
    plain, recorded = nest.python(code, theirs, recorded=False), nest.python(code, theirs)
    assert recorded.stdout == plain.stdout
    assert recorded.stderr == plain.stderr + "install True attempt 1\n"
    assert "theirs" in plain.stdout + plain.stderr or "nowhere" in plain.stderr


def test_without_settings_nothing_happens(nest: Nest) -> None:
    done = nest.python("import torch", nest.bootstrap, recorded=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_children_are_seen(nest: Nest) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'])"
    assert nest.python(code).stderr == "install True attempt 1\n"


BROKEN = "def install_from_environment():\n    raise RuntimeError('broken\\nrecorder')\n"


def test_a_broken_recorder_costs_one_line_in_all_processes(nest: Nest) -> None:
    nest.write("own/ampscope/hooks/install.py", BROKEN)
    code = """
    import subprocess, sys
    subprocess.run([sys.executable, "-c", "import torch; print('went on')"])
    import torch
    print(torch.complete)
    """
    done = nest.python(code)
    assert done.stdout == "went on\nTrue\n"
    line = f"{sys.executable} imports torch but is not recorded: RuntimeError: broken recorder"
    assert done.stderr == f"[ampscope] {line}\n"
    assert (nest.home / "run" / "not-recorded").read_text() == line


def test_quiet_and_strict(nest: Nest) -> None:
    nest.write("own/ampscope/hooks/install.py", BROKEN)
    assert nest.python("import torch", quiet=True).stderr == ""
    strict = nest.python("import torch", strict=True)
    assert strict.returncode == 1
    assert "RuntimeError: broken" in strict.stderr


def test_a_recorder_without_its_libraries_is_one_line(nest: Nest) -> None:
    code = "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]; import torch; print(1)"
    done = nest.python(code)
    assert done.stdout == "1\n"
    assert done.stderr.count("\n") == 1
    assert "pyarrow" in done.stderr


def test_another_installed_ampscope_is_not_taken(nest: Nest) -> None:
    nest.write("lib/ampscope/__init__.py", "raise SystemError('wrong one')")
    assert nest.python("import torch").stderr == "install True attempt 1\n"


def test_old_interpreters_can_read_it() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 4))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.Nonlocal | ast.NamedExpr)
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            assert node.returns is None
            assert not arguments.kwonlyargs
            assert all(a.annotation is None for a in arguments.args)
