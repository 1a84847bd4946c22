"""A stand-in for hipcc with the features that CuPy uses: include folders and compilation.

CuPy's ROCm build runs ``hipcc`` from PATH before it compiles with hiprtc, to find the folders of
HIP's headers; ``RawModule(backend="nvcc")`` runs ``hipcc --preprocess`` for the key of its cache,
and ``hipcc --genco`` to compile. `publish` writes this script into the cache, and the emulator adds
the script's folder to PATH.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cupygemm._build.cache import publish_script
from cupygemm._build.source_text import bytes_of, read_source
from cupygemm._build.toolchain import CompileError
from cupygemm.emulator.runtime.compile import (
    HEADERS,
    InvalidOption,
    compile_program,
    preprocess_program,
)

_SCRIPT = """#!/bin/sh
# hipcc of cupygemm's emulated device.
verbose= compile=
for argument in "$@"; do
    case "$argument" in
        -v) verbose=yes ;;
        --genco | --preprocess) compile=yes ;;
    esac
done
if [ "$verbose" ]; then
    echo "#include <...> search starts here:" >&2
    echo " {headers}" >&2
    echo "End of search list." >&2
    [ "$compile" ] || exit 0
fi
CUPYGEMM_HIPCC_TARGET={target} PYTHONPATH={path} exec {python} -m {module} "$@"
"""


def publish(target_name: str) -> Path:
    """Write ``bin/hipcc`` into the cache and return its parent folder, for ROCM_HOME.

    Each environment has its own folder, because the script names its Python and its headers.
    """
    package_parent = Path(__file__).resolve().parents[3]
    script = _SCRIPT.format(
        headers=HEADERS,
        target=target_name,
        path=shlex.quote(str(package_parent)),
        python=shlex.quote(sys.executable),
        module=__name__,
    )
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    path = publish_script(Path("rocm", f"{target_name}-{digest}", "bin", "hipcc"), script)
    return path.parent.parent


def main(arguments: Sequence[str]) -> int:
    """Run ``hipcc --genco [options] source -o output``, or ``--preprocess`` without an output."""
    parser = argparse.ArgumentParser(prog="hipcc", description="hipcc of the emulated device")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--genco", action="store_true")
    mode.add_argument("--preprocess", action="store_true")
    parser.add_argument("-o", dest="output", type=Path)
    known, others = parser.parse_known_args(arguments)
    sources = [Path(other) for other in others if other.endswith((".cpp", ".hip", ".cu"))]
    options = [other for other in others if Path(other) not in sources]
    options += [f"-I{source.parent}" for source in sources]
    if len(sources) != 1 or (known.genco and known.output is None):
        parser.error("one source file, and an output for --genco, are needed")
    source, target_name = sources[0], os.environ["CUPYGEMM_HIPCC_TARGET"]
    text = read_source(source)
    try:
        if known.preprocess:
            full = preprocess_program(text, source.name, target_name=target_name, options=options)
            sys.stdout.buffer.write(bytes_of(full))
        else:
            compiled = compile_program(
                text, source.name, target_name=target_name, options=options, rtc=False
            )
            sys.stderr.write(compiled.log)
            known.output.write_bytes(compiled.code)
    except (CompileError, InvalidOption) as err:
        sys.stderr.write(err.log if isinstance(err, CompileError) else str(err))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
