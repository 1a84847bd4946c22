"""The contenders of `benchmarks.models`: this library, and each installed peer.

A contender is a group of calls, of which the fastest counts: cuBLASLt has one for each algorithm
that its heuristics offer, and Triton one for each of a few tile shapes. The others have one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.cublaslt import LtProduct
from benchmarks.models.rotation import Rotating

OURS = "cupygemm"
PEERS = ("torch", "cuBLASLt", "DeepGEMM", "Triton")


@dataclass(frozen=True)
class Case:
    """A product x @ w, with x of (m, k) in C order.

    Attributes
    ----------
    m, n, k : int
    dtype : numpy.dtype
    order : {"(n, k)", "(k, n)"}
        The shape of w in memory, which is in C order there.
    tf32 : bool
        Operands of fp32 are rounded to tf32.
    """

    m: int
    n: int
    k: int
    dtype: np.dtype[Any]
    order: str = "(n, k)"
    tf32: bool = False

    @property
    def w_transposed(self) -> bool:
        return self.order == "(n, k)"

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


Sets = Sequence[Sequence[Any]]
Calls = dict[str, Rotating]


def contenders(case: Case, sets: Sets, names: Sequence[str]) -> dict[str, Calls]:
    """Return the calls of each contender, on sets of CuPy arrays x, w (k, n) and out."""
    found: dict[str, Calls] = {OURS: {OURS: Rotating(_ours_of(case), sets)}}
    makers = {"torch": _torch, "cuBLASLt": _cublaslt, "DeepGEMM": _deep_gemm, "Triton": _triton}
    for name in names:
        calls = makers[name](case, sets)
        if calls:
            found[name] = calls
    return found


def installed() -> dict[str, str]:
    """Return the versions of the peers that can be imported, by name."""
    found = {}
    for name, module in (("torch", "torch"), ("DeepGEMM", "deep_gemm"), ("Triton", "triton")):
        try:
            imported = __import__(module)
        except Exception as err:  # noqa: BLE001, a binary for another torch may raise anything
            found[name] = f"absent ({type(err).__name__})"
        else:
            found[name] = str(getattr(imported, "__version__", "of unknown version"))
    return found


def _ours_of(case: Case) -> Callable[[Any, Any, Any], None]:
    import cupygemm

    options: dict[str, Any] = {"precision": "tf32"} if case.tf32 else {}

    def ours(x: Any, w: Any, out: Any) -> None:
        cupygemm.matmul(x, w, out=out, **options)

    return ours


def _torch(case: Case, sets: Sets) -> Calls:
    try:
        import torch
    except ImportError:
        return {}
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    tensors = [
        [tensor_of(x), tensor_of(w.T if case.w_transposed else w), tensor_of(out)]
        for x, w, out in sets
    ]

    def transposed(x: Any, w: Any, out: Any) -> None:
        torch.mm(x, w.t(), out=out)

    def plain(x: Any, w: Any, out: Any) -> None:
        torch.mm(x, w, out=out)

    return {"torch": Rotating(transposed if case.w_transposed else plain, tensors)}


def _cublaslt(case: Case, sets: Sets) -> Calls:
    try:
        product = LtProduct(
            case.m, case.n, case.k, case.dtype, w_transposed=case.w_transposed, tf32=case.tf32
        )
    except OSError:
        return {}
    calls: Calls = {}
    for number, algorithm in enumerate(product.algorithms()):
        call = functools.partial(product.run, product.launch(algorithm))

        calls[f"cuBLASLt {number}"] = Rotating(call, sets)
    return calls


def _deep_gemm(case: Case, sets: Sets) -> Calls:
    """Return DeepGEMM's product; it needs bf16 and rows of a multiple of 16 bytes."""
    if case.dtype.name != "bfloat16" or case.n % 8 or case.k % 8:
        return {}
    try:
        import deep_gemm
    except Exception:  # noqa: BLE001, not installed, or built for another torch
        return {}
    call = deep_gemm.bf16_gemm_nt if case.w_transposed else deep_gemm.bf16_gemm_nn
    tensors = [
        [tensor_of(x), tensor_of(w.T if case.w_transposed else w), tensor_of(out)]
        for x, w, out in sets
    ]
    return {"DeepGEMM": Rotating(call, tensors)}


def _triton(case: Case, sets: Sets) -> Calls:
    """Return Triton's products; its descriptors need rows of a multiple of 16 bytes."""
    if case.dtype.itemsize != 2 or case.n % 8 or case.k % 8:
        return {}
    try:
        from benchmarks.models import triton_product
    except ImportError:
        return {}
    tensors = [
        (tensor_of(x), tensor_of(w.T if case.w_transposed else w), tensor_of(out))
        for x, w, out in sets
    ]
    calls = triton_product.calls(tensors, w_transposed=case.w_transposed)
    return {name: Rotating(call, tensors) for name, call in calls.items()}


def tensor_of(array: Any) -> Any:
    """Return a C-ordered CuPy array as a torch tensor of the same memory."""
    import torch

    if array.dtype.name == "bfloat16":  # CuPy's DLPack does not support it
        return torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(array)
