"""Computed: read off the code objects. Deterministic; a GPU would report the same."""

from __future__ import annotations

from cupygemm._backends.cdna.resources import Resources
from suite.products import LABELS, TARGETS, product


class CodeObject:
    """Resources of the bf16 kernel for C-ordered operands."""

    params = (TARGETS, LABELS)
    param_names = ("target", "tile")
    timeout = 120

    def setup_cache(self) -> dict[tuple[str, str], Resources]:
        return {
            (target, label): product(target, label).kernel.resources
            for target in TARGETS
            for label in LABELS
        }

    def track_registers(self, cache: dict, target: str, label: str) -> int:
        return cache[target, label].vgprs

    def track_sgprs(self, cache: dict, target: str, label: str) -> int:
        return cache[target, label].sgprs

    def track_lds(self, cache: dict, target: str, label: str) -> int:
        return cache[target, label].lds_bytes

    def track_scratch(self, cache: dict, target: str, label: str) -> int:
        return cache[target, label].scratch_bytes

    def track_code_size(self, cache: dict, target: str, label: str) -> int:
        return cache[target, label].code_bytes

    track_registers.unit = "VGPRs"
    track_sgprs.unit = "SGPRs"
    track_lds.unit = "bytes"
    track_scratch.unit = "bytes"
    track_code_size.unit = "bytes"
