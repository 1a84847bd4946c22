"""Call functions where no signal handler interrupts them.

Python runs signal handlers in the main thread, between any two bytecodes. Imports and file searches
take an OSError for a missing file, so they would swallow a TimeoutError that a handler raises.
Other threads do not run handlers. The main thread waits for such a thread, and an exception from a
handler ends the wait.
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
    """Call a function, in another thread if this one is the main thread, and return its result.

    If a signal handler raises meanwhile, the exception propagates immediately, and the function
    runs to its end. While this thread imports the package, no other thread can import from it, so
    the function is called in this one. (A program whose file has the name of a module that the
    package needs runs within that import.)
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
    """Tell whether an import of the package is in progress."""
    package = sys.modules.get(__name__.partition(".")[0])
    return bool(getattr(getattr(package, "__spec__", None), "_initializing", False))
