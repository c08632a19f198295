"""Tries advice: runs the recorded command again with it followed, and says what that showed."""
