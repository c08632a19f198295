"""Compares precisions of one command, and recorded runs with each other. Changes neither."""
