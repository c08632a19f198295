"""Collectors that read a training run from inside its process, and the session that owns them.

Imports the standard library, torch, `ampscope.numerics` and `ampscope.trace.writer` only: nothing here may
pull a reader library into the training process.
"""
