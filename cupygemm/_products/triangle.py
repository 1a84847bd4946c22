"""Symmetric products ``x @ x.T`` that compute one triangle, if a backend supports it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._backends.device import device
from cupygemm._plan.keys import array_key
from cupygemm._plan.plan import on_device, plan_of
from cupygemm._plan.table import NO_PLAN, PLANS
from cupygemm._request.arrays import Array, may_overlap
from cupygemm._request.call import check_call
from cupygemm._request.epilogue import EpilogueArguments
from cupygemm._request.options import CallOptions


def symmetric_product(
    x: Array, out: Array | None, dtype: np.dtype[Any] | None, epilogue: EpilogueArguments | None
) -> Array | None:
    """Return ``x @ x.T`` computed by one triangle; None if computing both is cheaper.

    Raises
    ------
    ValueError, TypeError
        In the same cases as `matmul`.
    """
    key = _key(x, out, dtype, epilogue)
    plan = PLANS.get(key)
    if plan is None:
        call = check_call(x, x.T, out, dtype=dtype, given=CallOptions(epilogue=epilogue))
        request, place, run = call.request, device(call.device_index), None
        if request.work == "product":
            run = on_device(place, lambda: place.kernels.triangle(request))
        plan = NO_PLAN
        if run is not None:
            plan = plan_of(run, request, place, None, call.arguments)
        PLANS.keep(key, plan)
    if plan is NO_PLAN:
        return None
    return plan.run(x, x.T, out, *(() if plan.binding is None else (epilogue,)))


def _key(
    x: Array, out: Array | None, dtype: np.dtype[Any] | None, epilogue: EpilogueArguments | None
) -> tuple[Any, ...]:
    request = None if epilogue is None else epilogue.request
    if out is None:
        return "syrk", *array_key(x), dtype, request
    return "syrk", *array_key(x), *array_key(out), may_overlap(out, x), dtype, request
