"""Every loop of the zoo by name: importing this module fills the registry."""

from __future__ import annotations

from tests.bitexact import zoo_compiled, zoo_loops
from tests.bitexact.zoo import LOOPS
from tests.bitexact.zoo_compiled import COMPILED

__all__ = ["COMPILED", "LOOPS", "zoo_compiled", "zoo_loops"]
