"""The run that is verified again and again here, recorded once."""

from __future__ import annotations

from tests.support.sawtooth import recorder, sawtooth, sawtooth_dir

__all__ = ["recorder", "sawtooth", "sawtooth_dir"]
