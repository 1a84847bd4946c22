"""The benchmark suite: what is computed, what is emulated, and how long emulation takes.

Names say which. A ``track_`` benchmark of `computed` or `emulated` is deterministic and needs no
GPU; a timed one of `emulator` is wall-clock time on the host, which says nothing about a GPU.
"""
