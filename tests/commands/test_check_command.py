"""``cupygemm check`` runs programs as Python does, and its status tells of kernels with faults."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cupygemm._commands import cli
from cupygemm._commands.scripts import run_program
from cupygemm.emulator.diagnostics.table import CHECKS

PROGRAM = """
import os
import sys
import threading
import cupy as cp

kernel = cp.RawKernel('extern "C" __global__ void k(int* x) { x[threadIdx.x + 8] = 3; }', "k")

def launch(threads):
    try:
        kernel((1,), (threads,), (cp.zeros(64, "i4"),))
    except Exception as err:
        sys.stdout.write(f"caught {type(err).__name__}\\n")  # at once: two threads write

if "fault" in sys.argv:
    launch(64)
if "thread" in sys.argv:
    threading.Thread(target=launch, args=(64,)).start()
launch(56)
print(__name__, sys.argv[1:], sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
print(os.environ["CUPYGEMM_EMULATE_CHECKS"])
if "raise" in sys.argv:
    raise ValueError("its own")
if "exit" in sys.argv:
    sys.exit("a message")
sys.exit(int(sys.argv[-1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def check(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUPYGEMM_EMUL")}
    return subprocess.run(
        [sys.executable, "-m", "cupygemm", "check", *map(str, arguments)],
        env=environment | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_program_without_faults_keeps_its_status(program: Path) -> None:
    process = check(program, "--its-option", "-m", 7)
    assert process.returncode == 7, process.stderr
    assert process.stdout == "__main__ ['--its-option', '-m', '7'] True\n\n"
    errors = sum(check.default == "error" for check in CHECKS.values())
    warned = sum(check.default == "warn" for check in CHECKS.values())
    assert process.stderr == (
        f"cupygemm check: no fault found in 1 launch of 1 kernel ({errors} checks on, {warned} "
        "only warn, off: alignment) on the emulated gfx942; the program ended with exit status 7\n"
    )


@pytest.mark.slow
def test_a_program_without_faults_may_be_quiet(program: Path) -> None:
    process = check("--quiet", program, 0)
    assert (process.returncode, process.stderr) == (0, "")
    process = check("-q", program, "fault", 0)
    assert process.returncode == 1
    assert process.stderr.endswith("1 fault and 0 warnings on the emulated gfx942\n")


def test_checks_that_the_program_switches_off_are_named(tmp_path: Path) -> None:
    """Also if only one of its launches was without them."""
    path = tmp_path / "program.py"
    path.write_text(
        "import cupy as cp\n"
        "from cupygemm import emulator\n"
        "k = cp.RawKernel('extern \"C\" __global__ void k(int* x) { x[threadIdx.x] = 3; }', 'k')\n"
        "x = cp.empty(64, 'i4')\n"
        "k((1,), (64,), (x,))\n"
        "with emulator.checks(bounds='warn', lds_races='off'):\n"
        "    k((1,), (64,), (x,))\n"
    )
    process = check(path)
    errors = sum(check.default == "error" for check in CHECKS.values()) - 2
    warned = sum(check.default == "warn" for check in CHECKS.values()) + 1
    assert process.stderr == (
        f"cupygemm check: no fault found in 2 launches of 1 kernel ({errors} checks on, {warned} "
        "only warn, off: alignment, lds_races) on the emulated gfx942\n"
    )


@pytest.mark.slow
def test_faults_that_the_program_caught_are_reported(program: Path) -> None:
    """One in its first thread, and one in another thread."""
    process = check(program, "fault", "thread", 0)
    assert process.returncode == 1
    assert process.stdout.count("caught CUDADriverError") == 2
    assert process.stderr.count("out-of-bounds global write") == 2
    assert process.stderr.count("argument 0 (x) points into it") == 2
    assert process.stderr.endswith("2 faults and 0 warnings on the emulated gfx942\n")


@pytest.mark.slow
def test_streams_interleave(program: Path) -> None:
    process = check("--stream-order", 0, program, "fault", 0, CUPYGEMM_EMULATE="gfx942")
    assert process.returncode == 1
    assert "caught" not in process.stdout, "the program waits for nothing"
    assert process.stderr.count(f"kernel k was submitted at {program}:") == 1


@pytest.mark.slow
def test_checks_can_be_warnings(program: Path) -> None:
    process = check("--warn", "bounds", "--off", "races", "--target", "gfx950", program, "fault", 3)
    assert process.returncode == 3
    assert "bounds=warn,races=off" in process.stdout
    assert "KernelWarning: 1 finding in kernel k" in process.stderr
    assert process.stderr.endswith("0 faults and 1 warning on the emulated gfx950\n")


@pytest.mark.slow
def test_severities_are_added_to_those_of_the_environment(program: Path) -> None:
    env = {"CUPYGEMM_EMULATE_CHECKS": "bounds=off", "CUPYGEMM_EMULATE": "gfx90a"}
    process = check("--error", "races", program, "fault", 0, **env)
    assert process.returncode == 0, process.stderr
    assert "bounds=off,races=error" in process.stdout


@pytest.mark.slow
def test_waves_run_in_another_order(tmp_path: Path) -> None:
    """A sum by atomics in float32 has other bits, and one in int32 has the same."""
    path = tmp_path / "program.py"
    path.write_text(
        "import cupy as cp\n"
        "add = cp.RawKernel('extern \"C\" __global__ void add(float* x, int* n) {'\n"
        "    'atomicAdd(x, 1.0f / (1 + threadIdx.x)); atomicAdd(n, threadIdx.x); }', 'add')\n"
        "x, n = cp.zeros(1, 'f4'), cp.zeros(1, 'i4')\n"
        "add((4,), (256,), (x, n))\n"
        "print(x[0].tobytes().hex(), n[0])\n"
    )
    orders = ("lockstep", "forward", "3")
    sums = [check("--wave-order", order, path).stdout.split() for order in orders]
    assert {total for _, total in sums} == {str(4 * 255 * 128)}
    assert len({bits for bits, _ in sums}) > 1
    process = check("--wave-order", "sideways", path)
    assert process.returncode == 2
    assert "--wave-order 'sideways': write lockstep, abreast, forward, reverse" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("severity", "status"), [("warn", 0), ("error", 1)])
def test_a_copy_to_the_host_that_nothing_awaits(tmp_path: Path, severity: str, status: int) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import cupy, cupyx\n"
        "stream, buffer = cupy.cuda.Stream(non_blocking=True), cupyx.empty_pinned(64, 'f4')\n"
        "with stream:\n"
        "    cupy.ones(64, 'f4').get(out=buffer, blocking=False)\n"
    )
    process = check(f"--{severity}", "pending_copies", path)
    assert process.returncode == status
    assert process.stderr.count("the host never waited for a copy to its pinned memory") == 1
    assert f"submitted at {path}:4, in <module>" in process.stderr


@pytest.mark.slow
def test_what_a_program_raises_is_printed_as_python_prints_it(program: Path) -> None:
    process = check(program, "raise")
    assert process.returncode == 1
    lines = process.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{program}", line ')
    assert lines[-2] == "ValueError: its own"
    assert "in run_program" not in process.stderr


@pytest.mark.slow
def test_an_exit_with_a_message(program: Path) -> None:
    process = check(program, "exit")
    assert process.returncode == 1
    assert process.stderr.splitlines()[0] == "a message"


PARENT = """
import multiprocessing
import subprocess
import sys
import cupy

def devices():
    print(cupy.cuda.runtime.getDeviceCount(), flush=True)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=devices)
    child.start()
    child.join()
    subprocess.run([sys.executable, "-c", "import program; program.devices()"], cwd=sys.path[0])
"""


@pytest.mark.slow
def test_processes_of_the_program_are_emulated(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PARENT)
    process = check("--target", "gfx942:3", program)
    assert process.stdout == "3\n3\n", process.stderr


def test_a_module(tmp_path: Path) -> None:
    process = check("-m", "timeit", "-n", 1, "-r", 1, "pass")
    assert process.returncode == 0, process.stderr
    assert "1 loop" in process.stdout
    assert process.stderr == "cupygemm check: no kernel was launched\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "missing.py does not exist"),
        (["/dev"], "/dev is a directory without a __main__.py"),
        (
            ["--warn", "bound", __file__],
            "--warn: the emulated device has no check 'bound'; did you mean bounds",
        ),
        (["--wran", "all", __file__], "check has no option --wran"),
        (["--stream-order", "x", __file__], "--stream-order=x: the seed must be an integer"),
        (["--off", "races=off", __file__], "--off: the emulated device has no check 'races=off'"),
    ],
)
def test_what_cannot_start_is_named(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This needs no process of its own, as no program is started."""
    monkeypatch.setenv("CUPYGEMM_EMULATE_CHECKS", "")  # the command changes it
    result = CliRunner().invoke(cli.app, ["check", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_environment_is_blamed_for_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPYGEMM_EMULATE_CHECKS", "bound=warn")
    result = CliRunner().invoke(cli.app, ["check", "--off", "races", __file__])
    assert result.exit_code == 2
    assert (
        "check: CUPYGEMM_EMULATE_CHECKS='bound=warn': the emulated device has no" in result.stderr
    )


def test_a_target_that_cannot_be_emulated_is_named() -> None:
    process = check("--target", "gfx1100", __file__)
    assert process.returncode == 2
    assert "target 'gfx1100' cannot be emulated" in process.stderr


def test_threads_from_before_are_not_waited_for(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("")
    end = threading.Event()
    before = threading.Thread(target=end.wait, args=(600,))
    before.start()
    try:
        assert run_program(str(program), []) == 0
        assert before.is_alive()
    finally:
        end.set()
        before.join()
