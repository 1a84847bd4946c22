"""Results that are cached as long as their argument exists."""

import gc
import weakref

import pytest

from cupygemm.emulator.weak_cache import weak_cache


class Kernel:
    pass


def test_a_result_is_computed_once_for_each_object() -> None:
    computed = []

    @weak_cache
    def name(kernel: Kernel) -> str | None:
        computed.append(kernel)
        return None

    first, second = Kernel(), Kernel()
    assert [name(each) for each in (first, first, second, first)] == [None] * 4
    assert computed == [first, second]


def test_the_cache_keeps_no_object_alive() -> None:
    @weak_cache
    def name(kernel: Kernel) -> str:
        return "k"

    kernel = Kernel()
    name(kernel)
    alive = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert alive() is None


def test_a_failure_is_not_kept() -> None:
    results = iter([KeyError("damaged"), None])

    @weak_cache
    def name(kernel: Kernel) -> str:
        error = next(results)
        if error is not None:
            raise error
        return "k"

    kernel = Kernel()
    with pytest.raises(KeyError, match="damaged"):
        name(kernel)
    assert name(kernel) == "k"
