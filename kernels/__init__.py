"""The device code, as package data: read it with `importlib.resources`."""
