"""Which device an array lies on, and whether kernels of this library run there.

The one place that tells backends apart: by CuPy's build (HIP or CUDA); under HIP by the name of the
device's instruction set, never by a compute capability, which HIP makes up; under CUDA by that.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.hopper.config import OUTPUTS as HOPPER_OUTPUTS
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._records.formats import FLOAT8, FLOAT8_DTYPES, Precision
from cupygemm._records.problem import FLOAT8_NAMES, DType
from cupygemm._request.copies import ROW_BYTES
from cupygemm._request.promotion import (
    CDNA_EPILOGUE_PRODUCTS,
    CDNA_PRODUCTS,
    HOPPER_EPILOGUE_PRODUCTS,
    HOPPER_PRODUCTS,
    Products,
)


@dataclass(frozen=True)
class Device:
    """A device as the selector sees it.

    Attributes
    ----------
    index : int
        CuPy's.
    name : str
        What to call it in a message, e.g. ``"gfx942 (emulated)"``.
    arch : Arch, HopperArch or None
        None where no kernel of this library runs.
    is_hip, is_emulated : bool
    """

    index: int
    name: str
    arch: Arch | HopperArch | None
    is_hip: bool
    is_emulated: bool

    @property
    def operand_dtypes(self) -> Collection[DType]:
        """Return the types that matrix instructions of the device multiply."""
        if self.arch is None:
            return ()
        return self.arch.mfma_cycles if isinstance(self.arch, Arch) else HOPPER_OUTPUTS

    @property
    def formats(self) -> tuple[DType, ...]:
        """Return the formats of 8-bit floats among them."""
        return tuple(name for name in FLOAT8_NAMES if name in self.operand_dtypes)

    def precision(self, asked: Precision) -> Precision:
        """Return the precision in which float32 is multiplied: what is asked for, or more."""
        return asked if asked in self.operand_dtypes else "ieee"

    @property
    def products(self) -> Products:
        """Return the types that kernels of this library multiply on the device."""
        return self._available(CDNA_PRODUCTS, HOPPER_PRODUCTS)

    @property
    def epilogue_products(self) -> Products:
        """Return the same for kernels with an epilogue."""
        return self._available(CDNA_EPILOGUE_PRODUCTS, HOPPER_EPILOGUE_PRODUCTS)

    def _available(self, cdna: Products, hopper: Products) -> Products:
        """Return the table of this device, without the formats of 8-bit floats that it lacks."""
        if self.arch is None:
            return {}
        lacking = FLOAT8_DTYPES - {FLOAT8[name] for name in self.formats}
        return {
            operand: tuple(dtype for dtype in stored if dtype not in lacking)
            for operand, stored in (cdna if isinstance(self.arch, Arch) else hopper).items()
            if operand not in lacking
        }

    @property
    def row_bytes(self) -> int:
        """Return what rows of single-byte operands are aligned to; Hopper's launch sees to it."""
        return ROW_BYTES if isinstance(self.arch, Arch) else 1


@functools.cache
def device(index: int) -> Device:
    """Return what CuPy's device `index` is."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(index)
    name = properties["name"].decode()
    if not runtime.is_hip:
        hopper = None
        if (properties["major"], properties["minor"]) == (9, 0):
            hopper = HopperArch(part=name, num_sms=properties["multiProcessorCount"])
        return Device(index, name, hopper, is_hip=False, is_emulated=False)
    from cupygemm import emulator

    target = properties["gcnArchName"].decode().split(":")[0]
    emulated = emulator.is_enabled()
    label = f"{target} (emulated)" if emulated else f"{name} ({target})"
    return Device(index, label, ARCHS.get(target), is_hip=True, is_emulated=emulated)
