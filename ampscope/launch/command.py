"""The command to launch and its environment: what `ampscope run WORDS…` starts, and what it may change in it.

Two variables and nothing else: the settings, and `PYTHONPATH` with the bootstrap folder in front.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import Settings

BOOTSTRAP = str(Path(__file__).resolve().parent / "bootstrap")
"""The folder whose `sitecustomize.py` every Python child runs first."""

SCRIPT_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")


def resolve(words: Sequence[str]) -> list[str]:
    """The argv to start for the words after ampscope's own options.

    `SCRIPT.py …`, a zipapp, a folder with `__main__.py`, `-m MODULE …`, `-c CODE …` and `-` run in this
    interpreter, as `python` would; every other word is a command that is looked up on PATH.
    """
    if not words:
        raise AmpscopeError("There is no command to run. Example: `ampscope run train.py --lr 1e-3`.")
    first = words[0]
    if first in ("-m", "-c") and len(words) == 1:
        what = "a module name" if first == "-m" else "code"
        raise AmpscopeError(f"{first} needs {what}. Example: `ampscope run -m my.trainer --lr 1e-3`.")
    if first in ("-m", "-c", "-") or os.path.isfile(os.path.join(first, "__main__.py")):
        return [sys.executable, *words]
    if first.lower().endswith(SCRIPT_SUFFIXES):
        if not os.path.exists(first):
            raise AmpscopeError(f"There is no script {first} in {os.getcwd()}.")
        return [sys.executable, *words]
    _check_executable(first)
    return list(words)


def _check_executable(word: str) -> None:
    """Raises AmpscopeError with 127 for a command that is not found, 126 for one that is not executable."""
    if shutil.which(word) is not None:
        return
    if shutil.which(word, mode=os.F_OK) is None:
        if os.path.isfile(word):
            raise AmpscopeError(
                f"{word} is not a command on PATH. For a Python script: `ampscope run python {word}`.", 127
            )
        raise AmpscopeError(f"{word} is not a command on PATH, and there is no such file.", 127)
    raise AmpscopeError(f"{word} is not executable. For a Python script: `ampscope run python {word}`.", 126)


def run_name(words: Sequence[str]) -> str:
    """A short name for the run: the script, the module, or the command."""
    if words[0] == "-m":
        return words[1].removesuffix(".__main__").rpartition(".")[2]
    if words[0] in ("-c", "-"):
        return "python"
    scripts = [word for word in words if word.lower().endswith(SCRIPT_SUFFIXES)]
    return Path(scripts[0] if scripts else words[0]).stem


def child_environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """`base` with the settings and with the bootstrap folder at the front of `PYTHONPATH`."""
    env = dict(base)
    # An empty PYTHONPATH means none, but an empty entry means the working directory: add no separator to it.
    rest = env.get("PYTHONPATH", "")
    own = rest == BOOTSTRAP or rest.startswith(BOOTSTRAP + os.pathsep)
    if not own:
        env["PYTHONPATH"] = BOOTSTRAP + os.pathsep + rest if rest else BOOTSTRAP
    settings.to_env(env)
    return env
