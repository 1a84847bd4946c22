"""The stand-in HIP runtime: every supported function of libamdhip64, on one emulated device.

The functions are methods with HIP's own names and the C arguments of amdhip64.def, pointers as
integers. A method returns nothing on success and raises on failure; `callbacks` turns both into
what C expects.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from cupygemm.emulator.code_object import InvalidCodeObject
from cupygemm.emulator.device import Device, LaunchError
from cupygemm.emulator.errors import EmulatorError, KernelFault, UnsupportedInstruction
from cupygemm.emulator.runtime.hip_memory import MemoryFunctions
from cupygemm.emulator.runtime.hip_module import ModuleFunctions
from cupygemm.emulator.runtime.hip_stream import DeviceFunctions, StreamFunctions
from cupygemm.emulator.runtime.status import INTERRUPTED, HipError, Status

# The status of an error of the device; the first class that fits.
_STATUS = (
    (LaunchError, Status.LAUNCH_OUT_OF_RESOURCES),
    (InvalidCodeObject, Status.INVALID_IMAGE),
    (UnsupportedInstruction, Status.NOT_SUPPORTED),
    (KernelFault, Status.LAUNCH_FAILURE),
    (EmulatorError, Status.LAUNCH_FAILURE),
)


class HipRuntime(StreamFunctions, DeviceFunctions, MemoryFunctions, ModuleFunctions):
    """The HIP functions of one device.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        StreamFunctions.__init__(self)
        ModuleFunctions.__init__(self)
        self.device = device

    def callbacks(
        self, set_message: Callable[[Status, str], None]
    ) -> dict[str, Callable[..., int]]:
        """Return the functions for `libraries.load`, by HIP's names.

        Parameters
        ----------
        set_message : callable
            Called with the status and the message of a call that fails, just before it returns.
        """
        names = [name for name in dir(self) if name.startswith("hip")]
        # Python would mangle the two underscores of these names inside a class.
        c_names = {
            name: f"__{name}" if name.startswith(("hipRegister", "hipUnregister")) else name
            for name in names
        }
        return {c_names[name]: _answering(getattr(self, name), set_message) for name in names}


def _answering(
    function: Callable[..., None], set_message: Callable[[Status, str], None]
) -> Callable[..., int]:
    """Wrap a function that raises into one that returns a status."""

    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
        except HipError as err:
            status, message = err.status, str(err)
        except EmulatorError as err:
            status = next(status for kind, status in _STATUS if isinstance(err, kind))
            message = str(err)
        except KeyboardInterrupt:
            # An exception cannot pass through C, so the C side interrupts again behind the call.
            return INTERRUPTED
        except Exception:  # noqa: BLE001  # nothing may pass through C
            status = Status.UNKNOWN
            message = "internal error of the emulated device\n" + traceback.format_exc()
        else:
            return Status.SUCCESS
        set_message(status, message)
        return status

    return call
