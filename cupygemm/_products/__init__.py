"""The functions that users call: each becomes one or several matrix products."""
