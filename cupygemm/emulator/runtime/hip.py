"""The stand-in HIP runtime: every supported function of libamdhip64, on the emulated devices.

The functions are methods with HIP's own names and the C arguments of amdhip64.def, with pointers as
integers. A method returns nothing on success and raises on failure; `callbacks` converts both to
status codes.
"""

from __future__ import annotations

from collections.abc import Callable

from cupygemm.emulator.code_object import InvalidCodeObject
from cupygemm.emulator.concurrency.stream_deferral import DeferredFault
from cupygemm.emulator.device import CooperativeLaunchError, LaunchError
from cupygemm.emulator.errors import EmulatorError, KernelFault, UnsupportedInstruction
from cupygemm.emulator.memory.host_memory import OutOfMemory
from cupygemm.emulator.runtime.answering import answering
from cupygemm.emulator.runtime.hip_contexts import ContextFunctions
from cupygemm.emulator.runtime.status import HipError, Status

# The status of an error of the device; the first matching class counts.
_STATUS = (
    (CooperativeLaunchError, Status.COOPERATIVE_LAUNCH_TOO_LARGE),
    (LaunchError, Status.LAUNCH_OUT_OF_RESOURCES),
    (InvalidCodeObject, Status.INVALID_IMAGE),
    (UnsupportedInstruction, Status.NOT_SUPPORTED),
    (KernelFault, Status.LAUNCH_FAILURE),
    (EmulatorError, Status.LAUNCH_FAILURE),
    (OutOfMemory, Status.OUT_OF_MEMORY),
)
_INTERNAL = (Status.UNKNOWN, "internal error of the emulated device")


class HipRuntime(ContextFunctions):
    """The HIP functions of the given devices."""

    def callbacks(
        self, set_message: Callable[[Status, str], None]
    ) -> dict[str, Callable[..., int]]:
        """Return the callbacks for `libraries.load_connected`, by HIP's names.

        Parameters
        ----------
        set_message : callable
            Called with the status and the message of a failing call, just before it returns.
        """
        names = [name for name in dir(self) if name.startswith("hip")]
        # Inside a class, Python would mangle these names because of their two underscores.
        c_names = {
            name: f"__{name}" if name.startswith(("hipRegister", "hipUnregister")) else name
            for name in names
        }
        return {
            c_names[name]: answering(getattr(self, name), _failure, _INTERNAL, set_message)
            for name in names
        }


def _failure(err: Exception) -> tuple[Status, str] | None:
    """Return the status and the message for an exception of the runtime or the device."""
    if isinstance(err, HipError):
        return err.status, str(err)
    if isinstance(err, DeferredFault):
        known = _failure(err.cause)
        return (Status.UNKNOWN if known is None else known[0]), str(err)
    for kind, status in _STATUS:
        if isinstance(err, kind):
            return status, str(err)
    return None
