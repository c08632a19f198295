"""Runs a training command again, recorded and out of sight: what compare and verify rest on."""
