"""Call functions where no signal handler interrupts them.

Python runs signal handlers in the main thread, in the middle of whatever executes there. Imports
and searches for files treat an OSError as a file that is not there: so they would drop a
TimeoutError that a handler raises, and the program would never hear of it. Another thread does
not run handlers. The main thread waits for it, and what a handler raises ends the wait.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def undisturbed(function: Callable[[], Result]) -> Result:
    """Return what a function returns; call it in another thread if this one is the main thread.

    If a signal handler raises meanwhile, the exception passes at once, and the function runs on to
    its end. While this thread imports the package, another one could not import from it: then the
    function is called here. (A program whose file has the name of a module that the package needs
    runs within that import.)
    """
    if threading.current_thread() is not threading.main_thread() or _is_importing():
        return function()
    outcome: Future[Result] = Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as err:  # noqa: BLE001  # raised again by the main thread
            outcome.set_exception(err)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(call,), name="undisturbed", daemon=True).start()
    return outcome.result()


def _is_importing() -> bool:
    """Tell whether an import of the package has not ended."""
    package = sys.modules.get(__name__.partition(".")[0])
    return bool(getattr(getattr(package, "__spec__", None), "_initializing", False))
