"""The part of a kernel's generated configuration that describes its epilogue."""

from __future__ import annotations

from collections.abc import Callable

from cupygemm._records.problem import Epilogue, Source


def epilogue_lines(epilogue: Epilogue | None, takes_vectors: Callable[[Source], bool]) -> list[str]:
    """Return the lines of ``struct EpilogueParts``, or no lines without an epilogue.

    `takes_vectors` tells whether one load reads several adjacent elements of a source.
    """
    if epilogue is None:
        return []
    types = {
        "ScaleA": "scale_a",
        "ScaleB": "scale_b",
        "C": "c",
        "Bias": "bias",
        "ScaleOut": "scale_out",
    }
    lines = [*_declared(epilogue.activation), "struct EpilogueParts {"]
    for name, option in types.items():
        source, text = epilogue.sources.get(option), "NoSource"
        if source is not None:
            vectors = cpp_bool(source.along in ("column", "matrix") and takes_vectors(source))
            text = f"Source<{source.dtype}, Along::{source.along}, {vectors}>"
        lines.append(f"    using {name} = {text};")
    lines += [
        f"    static constexpr bool alpha = {cpp_bool(epilogue.alpha)};",
        f"    static constexpr bool scale = {cpp_bool(epilogue.scale)};",
        f"    static constexpr bool clamp = {cpp_bool(epilogue.clamp)};",
        f"    using Activation = {_activation_type(epilogue.activation)};",
        "};",
        "",
    ]
    return lines


def _declared(activation: str | None) -> list[str]:
    """Return the lines that state which activation the device code must define.

    Its struct is declared here, so that the assertion can name a struct that is missing.
    """
    if activation is None:
        return []
    sentence = (
        f"activation='{activation}' has a row in cupygemm/_epilogue/activations.py but no device "
        f"code: define struct {activation} in kernels/common/activation.hpp, see "
        "docs/developer/add_an_activation.rst"
    )
    return [
        "namespace activations {",
        f"struct {activation};",
        "}",
        f'static_assert(IsDefined<activations::{activation}>::value, "{sentence}");',
        "",
    ]


def _activation_type(activation: str | None) -> str:
    if activation is None:
        return "NoActivation"
    return f"typename DefinedActivation<activations::{activation}>::Type"


def cpp_bool(value: bool) -> str:
    """Return a truth value in C++."""
    return "true" if value else "false"
