"""A stand-in for hipcc, as far as CuPy runs it: to ask for its include folders, and to compile.

CuPy's ROCm build starts ``hipcc`` from PATH before it compiles with hiprtc, to learn the folders of
HIP's headers; ``RawModule(backend="nvcc")`` compiles with ``hipcc --genco``. `publish` puts such a
script into the cache, and the emulator puts the script's folder on PATH.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cupygemm._cache import cache_dir
from cupygemm._toolchain import CompileError
from cupygemm.emulator.runtime.compile import HEADERS, compile_program

_SCRIPT = """#!/bin/sh
# hipcc of cupygemm's emulated device.
for argument in "$@"; do
    if [ "$argument" = "-v" ]; then
        echo "#include <...> search starts here:" >&2
        echo " {headers}" >&2
        echo "End of search list." >&2
        exit 0
    fi
done
CUPYGEMM_HIPCC_TARGET={target} PYTHONPATH={path} exec {python} -m {module} "$@"
"""


def publish(target_name: str) -> Path:
    """Write ``bin/hipcc`` into the cache and return the folder above, for ROCM_HOME."""
    package_parent = Path(__file__).resolve().parents[3]
    script = _SCRIPT.format(
        headers=HEADERS,
        target=target_name,
        path=shlex.quote(str(package_parent)),
        python=shlex.quote(sys.executable),
        module=__name__,
    )
    home = cache_dir() / "rocm" / target_name
    path = home / "bin" / "hipcc"
    if not path.exists() or path.read_text() != script:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".hipcc.{os.getpid()}")
        written.write_text(script)
        written.chmod(0o755)
        written.replace(path)
    return home


def main(arguments: Sequence[str]) -> int:
    """Compile as ``hipcc --genco [options] source -o output`` does."""
    options, source, output = [], None, None
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "-o":
            output = next(remaining)
        elif argument.endswith((".cpp", ".hip", ".cu")):
            source = argument
        elif argument != "--genco":
            options.append(argument)
    if source is None or output is None:
        sys.stderr.write("hipcc of the emulated device: only --genco source -o output\n")
        return 1
    try:
        compiled = compile_program(
            Path(source).read_text(),
            source,
            target_name=os.environ["CUPYGEMM_HIPCC_TARGET"],
            options=options,
        )
    except CompileError as err:
        sys.stderr.write(err.log)
        return 1
    sys.stderr.write(compiled.log)
    Path(output).write_bytes(compiled.code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
