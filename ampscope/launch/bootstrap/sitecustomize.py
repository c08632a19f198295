"""Runs in every Python below `ampscope run`, before the script: waits for `torch`, then starts the recorder.

It must leave the interpreter as plain python left it: no module imported, nothing on `sys.path` or
`sys.meta_path`, and another `sitecustomize` still runs. Interpreters as old as 2.7 read it.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable  # noqa: F401
    from typing import Any  # noqa: F401

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _start():
    # type: () -> None
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    if sys.version_info[0] < 3:  # noqa: UP036
        return
    sys.modules.pop("sitecustomize", None)
    if not os.environ.get("AMPSCOPE_SESSION"):
        return
    if "torch" in sys.modules:
        _torch_is_there()
        return
    try:
        _wait_for_torch()
    except Exception:
        # An import system unlike CPython's: nothing was touched; the parent will find nothing recorded.
        return


def _wait_for_torch():
    # type: () -> None
    """Has `_torch_is_there` called when `import torch` ends, without a frame of ours in torch's traceback.

    The way in is `PathFinder`, not `sys.meta_path`: scripts replace and reorder that list. It finds torch, or
    another finder did and it finds the first submodule; either way torch's spec then tells when it is done.
    """
    from _frozen_importlib_external import PathFinder

    plain = PathFinder.__dict__["find_spec"]

    def find_spec(cls, fullname, path=None, target=None):
        # type: (Any, str, Any, Any) -> Any
        spec = plain.__get__(None, cls)(fullname, path, target)
        if fullname == "torch":
            _on_imported(spec, done)
        elif fullname.startswith("torch."):
            half_done = getattr(sys.modules.get("torch"), "__spec__", None)
            if getattr(half_done, "_initializing", False):
                _on_imported(half_done, done)
        return spec

    def done():
        # type: () -> None
        if PathFinder.__dict__["find_spec"] is ours:
            setattr(PathFinder, "find_spec", plain)  # noqa: B010
        _torch_is_there()

    ours = classmethod(find_spec)
    setattr(PathFinder, "find_spec", ours)  # noqa: B010


def _on_imported(spec, done):
    # type: (Any, Callable[[], None]) -> None
    """Calls `done` once the module of `spec` is completely imported; not when its import fails.

    The import system sets `_initializing` to False at the very end, still under the module's import lock.
    """
    plain = type(spec)
    if spec is None or hasattr(plain, "_ampscope"):
        return

    def read(self):
        # type: (Any) -> Any
        return self.__dict__.get("_initializing", False)

    def write(self, value):
        # type: (Any, Any) -> None
        try:
            if not value:
                self.__class__ = plain
                if getattr(sys.modules.get(self.name), "__spec__", None) is self:
                    done()
        finally:
            self.__dict__["_initializing"] = value

    body = {"__module__": plain.__module__, "_initializing": property(read, write), "_ampscope": True}
    spec.__class__ = type(plain.__name__, (plain,), body)


def _torch_is_there():
    # type: () -> None
    try:
        if sys.version_info < (3, 10):  # noqa: UP036
            raise ImportError("ampscope needs Python 3.10 or newer")
        _import_ampscope()
        from ampscope.hooks.install import install_from_environment

        install_from_environment()
    except Exception as error:
        _give_up(error)


def _import_ampscope():
    # type: () -> None
    """Imports the ampscope that launched this process, also where another one or none is installed."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    if "ampscope" in sys.modules:
        return
    if find_spec("pyarrow") is None:
        raise ImportError("pyarrow, which the trace is written with, is not installed there")
    init = os.path.join(_PACKAGE, "__init__.py")
    spec = spec_from_file_location("ampscope", init, submodule_search_locations=[_PACKAGE])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["ampscope"] = module_from_spec(spec)
    spec.loader.exec_module(module)


def _give_up(error):
    # type: (Exception) -> None
    """One line for the whole run, however many processes end here; fatal with `--strict`."""
    import json

    settings = json.loads(os.environ["AMPSCOPE_SESSION"])
    if settings.get("strict"):
        raise error
    what = " ".join((type(error).__name__ + ": " + str(error)).split())
    reason = sys.executable + " imports torch but is not recorded: " + what
    note = os.path.join(settings["run_dir"], "not-recorded")
    try:
        handle = os.open(note, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(handle, reason.encode("utf-8", "replace"))
        os.close(handle)
    except FileExistsError:
        return
    except OSError:
        pass
    if not settings.get("quiet") and sys.__stderr__ is not None:
        sys.__stderr__.write("[ampscope] " + reason + "\n")


_start()
# There usually is none: `site` expects this ImportError and passes over it, as without ampscope.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
