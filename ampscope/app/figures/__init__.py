"""Plotly figures from frames: pure functions, no query and no component."""
