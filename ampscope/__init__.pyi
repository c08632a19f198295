# What a type checker sees of `ampscope/__init__.py`, which loads these names when they are first used.

from ampscope.diagnose import diagnose as diagnose
from ampscope.hooks.recorder import Recorder as Recorder
from ampscope.trace.reader import open_trace as open_trace

__all__ = ["Recorder", "__version__", "diagnose", "open_trace"]

__version__: str
