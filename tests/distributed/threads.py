"""Ranks that are threads of one process, one for each emulated device."""

import threading
import traceback

import cupy as cp
from cupy.cuda import nccl

from cupygemm import distributed


class Ranks:
    """A group of `size` ranks.

    ``ranks(function)`` returns what ``function(rank, group)`` returns on each; an exception takes
    the place of a result.
    """

    def __init__(self, size, timeout=600, exchange="auto"):
        self.size = size
        self.communicators = nccl.NcclCommunicator.initAll(size)
        self.groups = [None] * size
        self.groups = self(
            lambda rank, _: distributed.connect(
                self.communicators[rank], timeout=timeout, exchange=exchange
            )
        )

    def __call__(self, function):
        results = [None] * self.size

        def run(rank):
            try:
                with cp.cuda.Device(rank):
                    results[rank] = function(rank, self.groups[rank])
            except Exception as err:  # noqa: BLE001  # raised to whoever asks for values
                err.text = traceback.format_exc()
                results[rank] = err

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def values(self, function):
        """Return what a function returns on each rank; raise if one has raised."""
        results = self(function)
        for result in results:
            assert not isinstance(result, Exception), result.text
        return results

    def errors(self, function):
        """Return the text of the exception on each rank, which all must raise."""
        results = self(function)
        for result in results:
            assert isinstance(result, Exception), result
        return [f"{type(result).__name__}: {result}" for result in results]
