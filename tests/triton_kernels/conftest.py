"""Kernels compiled by Triton, which is no part of the test environment.

These tests are collected only where Triton is installed (`pip install "cupygemm[triton]"`), so that
none is skipped where it is not.
"""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]
