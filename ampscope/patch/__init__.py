"""Turns findings into edits of the user's own source: `ampscope fix`. Reads a trace, never runs what it edits."""
