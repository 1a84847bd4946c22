"""The roofline picture: a part's upper bound for the counted FLOP per byte.

The roofs are peaks from the data sheet: the HBM bandwidth, and the rate of the type with most of a
kernel's FLOP. A kernel's mark is on its roof. The picture shows no speed, because none is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cupygemm.emulator.profiling.kernel_counts import KernelCounts
from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.targets import TARGETS

CAPTION = (
    "computed/emulated: FLOP and HBM bytes counted by emulation with a cache model, roofs from the "
    "data sheet; marks are upper bounds, no time is measured"
)


def roof(profile: KernelCounts) -> tuple[str, float]:
    """Return the unit and type with most of a kernel's FLOP, and their peak in FLOP/s.

    Raises
    ------
    ValueError
        The kernel does no floating-point operations.
    """
    part, target = PARTS[profile.target], TARGETS[profile.target]
    found = [(flop, "MFMA", kind) for kind, flop in profile.matrix_flop.items()]
    found += [(flop, "VALU", kind) for kind, flop in profile.vector_flop.items()]
    if not found:
        raise ValueError(f"{profile.kernel} executes no floating-point operations")
    _, unit, kind = max(found)
    rates = part.matrix_flop_per_clock if unit == "MFMA" else part.vector_flop_per_clock
    return f"{unit} {kind}", rates[kind] * target.num_cus * target.clock_mhz * 1e6


def attainable(profile: KernelCounts) -> float:
    """Return the upper bound of FLOP/s from the peak rate and the HBM bandwidth."""
    _, peak = roof(profile)
    intensity = profile.flop_per_byte
    if intensity is None:
        return peak
    return min(peak, intensity * PARTS[profile.target].hbm_bytes_per_second)


def draw(kernels: Sequence[KernelCounts], path: Path) -> None:
    """Draw kernels under the rooflines of their part; see `Profile.roofline`."""
    drawn = [kernel for kernel in kernels if kernel.flop and kernel.hbm_bytes]
    if not drawn:
        raise ValueError("no profiled kernel executes floating-point operations on global memory")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as err:
        raise ModuleNotFoundError(
            f'a roofline needs {err.name}: pip install "cupygemm[plot]"', name=err.name
        ) from err
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    points = [(kernel.flop / kernel.hbm_bytes, attainable(kernel)) for kernel in drawn]
    target = drawn[0].target
    bandwidth = PARTS[target].hbm_bytes_per_second
    roofs = dict(map(roof, drawn))
    low = min(0.1, *(x / 4 for x, _ in points))
    high = max(*(4 * x for x, _ in points), *(10 * peak / bandwidth for peak in roofs.values()))
    for name, peak in roofs.items():
        ridge = peak / bandwidth
        label = f"{name} {peak / 1e12:.0f} TFLOP/s, HBM {bandwidth / 1e12:.1f} TB/s"
        heights = [low * bandwidth / 1e12, peak / 1e12, peak / 1e12]
        axes.plot([low, ridge, high], heights, lw=1.5, label=label)
    for kernel, (x, y) in zip(drawn, points, strict=True):
        name = kernel.kernel if len(kernel.kernel) <= 40 else kernel.kernel[:37] + "..."
        axes.plot([x], [y / 1e12], "o", label=f"{name}: {x:.3g} FLOP/B")
        axes.axvline(x, lw=0.6, ls=":", color="gray")
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of HBM", ylabel="TFLOP/s, at most")
    axes.set_title(f"Roofline of emulated {target} ({TARGETS[target].part})")
    axes.legend(fontsize="small", loc="lower right")
    figure.supxlabel(CAPTION, fontsize=6.5)
    figure.savefig(path)
