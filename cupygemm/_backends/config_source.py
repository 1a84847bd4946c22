"""The generated configuration of a kernel: ``struct Config`` and ``struct EpilogueParts``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cupygemm._records.problem import Epilogue, Source


def config_lines(types: Mapping[str, str], constants: Mapping[str, object]) -> list[str]:
    """Return the lines of ``struct Config``.

    Parameters
    ----------
    types : mapping of str to str
        Its types by name.
    constants : mapping of str to object
        Its constants by type and name, such as ``"bool split_k"``.
    """
    values = {
        name: _bool(bool(value)) if name.startswith("bool ") else value
        for name, value in constants.items()
    }
    return [
        "struct Config {",
        *(f"    using {name} = {value};" for name, value in types.items()),
        *(f"    static constexpr {name} = {value};" for name, value in values.items()),
        "};",
    ]


def major_of(axis: str) -> str:
    """Return the C++ name of the axis along which an operand's elements are adjacent."""
    return "Major::k" if axis == "k" else "Major::row"


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
            vectors = _bool(source.along in ("column", "matrix") and takes_vectors(source))
            text = f"Source<{source.dtype}, Along::{source.along}, {vectors}>"
        lines.append(f"    using {name} = {text};")
    lines += [
        f"    static constexpr bool alpha = {_bool(epilogue.alpha)};",
        f"    static constexpr bool scale = {_bool(epilogue.scale)};",
        f"    static constexpr bool clamp = {_bool(epilogue.clamp)};",
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


def _bool(value: bool) -> str:
    return "true" if value else "false"
