"""Modelled: the error of the timing model against published figures. Deterministic."""

from __future__ import annotations


class Calibration:
    """Mean absolute error of the model on each group of published figures."""

    params = ("LDS, gfx942", "LDS, gfx950", "ladder", "turns")
    param_names = ("group",)
    timeout = 300

    def setup_cache(self) -> dict[str, float]:
        from cupygemm.emulator.calibration import ladder, lds, turns

        groups: dict[str, list[float]] = {}
        for figure in lds.figures():
            groups.setdefault(f"LDS, {figure.group[-6:]}", []).append(abs(figure.error))
        for name, module in (("ladder", ladder), ("turns", turns)):
            groups[name] = [abs(figure.error) for figure in module.figures()]
        return {name: sum(errors) / len(errors) for name, errors in groups.items()}

    def track_error(self, cache: dict[str, float], group: str) -> float:
        return cache[group]

    track_error.unit = "share of the published figure"
    track_error.pretty_name = "Modelled: error of the timing model"
