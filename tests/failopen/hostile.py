"""Every hostile case by name: importing this module fills the registry."""

from __future__ import annotations

from tests.failopen import hostile_changes, hostile_models, hostile_modes, hostile_tensors
from tests.failopen.small import CASES

__all__ = ["CASES", "hostile_changes", "hostile_models", "hostile_modes", "hostile_tensors"]
