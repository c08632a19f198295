"""The local dashboard: a Dash application over recorded runs. Reads traces; never imports torch or the recorder."""
