"""Create or complete the virtual environment: ``setup_environment.py DIRECTORY EXTRA,EXTRA,...``.

Run by the Makefile with whatever Python the machine has, so it uses the standard library alone and
no syntax younger than Python 3.6. It checks the machine, creates the environment, installs this
checkout (editable) with the extras named, and records what it installed from which pyproject.toml:
a second run with nothing to do ends at once. Every failure ends with the command that mends it.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 14)
STAMP = "cupygemm-setup.json"
LOG = "cupygemm-setup.log"
# Installed size and, beside it, the downloads and pip's unpacking, in MB (cupy-rocm and ziglang).
SPACE_MB = {"emulator": 1800, "rocm": 900, "cuda": 900}
BASE_SPACE_MB = 500


def main():
    """Set up the environment named on the command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    directory = Path(sys.argv[1]).absolute()
    wanted = sorted(set(sys.argv[2].split(",")))
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = read_stamp(directory)
    done = stamp["extras"] if stamp["pyproject"] == digest else []
    missing = [extra for extra in wanted if extra not in done]
    python = directory / "bin" / "python"
    if not missing and python.exists() and stamp["prefix"] == str(directory):
        return
    check_machine()
    if not has_pip(python):
        use_recent_python()
        create(directory)
    check_space(directory, missing)
    install(directory, sorted(set(done) | set(wanted)))
    record = {
        "pyproject": digest,
        "prefix": str(directory),
        "extras": sorted(set(done) | set(wanted)),
    }
    (directory / STAMP).write_text(json.dumps(record) + "\n")


def read_stamp(directory):
    """Return what an earlier run recorded, or an empty record."""
    try:
        return json.loads((directory / STAMP).read_text())
    except (OSError, ValueError):
        return {"pyproject": "", "prefix": "", "extras": []}


def check_machine():
    """End with an explanation where no wheel of CuPy exists for the machine."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        fail(
            "this machine is {} on {}; CuPy's ROCm wheel exists for Linux on x86-64 only".format(
                system, machine
            ),
            "use an x86-64 Linux machine or container: docker run -it --platform linux/amd64 "
            "-v $PWD:/cupygemm python:3.12 bash",
        )


def use_recent_python():
    """Go on with another interpreter where this one is too old; return where it will do."""
    if sys.version_info[:2] >= OLDEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which("python3.{}".format(minor))
        if (
            other
            and subprocess.call([other, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL)
            == 0
        ):
            say("{} is Python {}; going on with {}".format(sys.executable, version(), other))
            os.execv(other, [other, *sys.argv])
    fail(
        "Python {} is too old: cupygemm needs 3.11 or newer, and no newer one is on PATH".format(
            version()
        ),
        "install one, then name it:  make setup PYTHON=/path/to/python3.12\n"
        "  Debian, Ubuntu: sudo apt install python3.12 python3.12-venv\n"
        "  Fedora, RHEL:   sudo dnf install python3.12\n"
        "  without root:   curl -LsSf https://astral.sh/uv/install.sh | sh; uv python install 3.12",
    )


def version():
    """Return this interpreter's version as text."""
    return "{}.{}.{}".format(*sys.version_info[:3])


def has_pip(python):
    """Tell whether the environment stands and can install."""
    if not python.exists():
        return False
    return (
        subprocess.call(
            [str(python), "-m", "pip", "--version"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        == 0
    )


def create(directory):
    """Create the environment, or complete one that was left half-way."""
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        fail(
            "{} cannot create virtual environments: its venv or ensurepip module is not "
            "installed".format(sys.executable),
            "Debian, Ubuntu:  sudo apt install {}   (or python3-venv)\n"
            "  without root:    python3 -m pip install --user virtualenv && "
            "python3 -m virtualenv {}".format(package, directory),
        )
    say("creating {} with Python {} ({})".format(directory, version(), sys.executable))
    result = subprocess.run(
        [sys.executable, "-m", "venv", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    if result.returncode:
        fail("the virtual environment could not be created:\n" + result.stdout, hint(result.stdout))


def check_space(directory, extras):
    """End with an explanation where the disk cannot hold what is to be installed."""
    needed = BASE_SPACE_MB + sum(SPACE_MB.get(extra, 0) for extra in extras)
    free = shutil.disk_usage(str(directory)).free >> 20
    if free < needed:
        fail(
            "{} MB are free where {} lies; about {} MB are needed".format(free, directory, needed),
            "make room there, or put the environment elsewhere:  make setup VENV=/roomy/disk/venv",
        )


def install(directory, extras):
    """Install this checkout and the extras by pip, naming each large download."""
    say("installing cupygemm[{}] from PyPI into {}".format(",".join(extras), directory))
    command = [
        str(directory / "bin" / "python"),
        *("-m", "pip", "install", "--progress-bar", "off", "--disable-pip-version-check"),
        *("--editable", "{}[{}]".format(ROOT, ",".join(extras))),
    ]
    begin = time.monotonic()
    lines = []
    log = directory / LOG
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
        )
        for line in process.stdout:
            out.write(line)
            lines.append(line)
            if re.match(r"\s+(Downloading|Using cached) .*\([\d.]+ MB\)", line):
                say("  " + line.strip())
        process.wait()
    if process.returncode:
        text = "".join(lines[-30:])
        fail("pip failed (all of it is in {}):\n{}".format(log, text), hint("".join(lines)))
    say("installed in {:.0f} s".format(time.monotonic() - begin))


def hint(text):
    """Return the mending command for a failure that printed `text`."""
    if "No space left" in text or "Disk quota" in text:
        return "make room (pip also unpacks under $TMPDIR, /tmp when unset):  df -h . /tmp"
    if "Permission denied" in text or "Read-only file system" in text:
        return "use a place that you may write to:  make setup VENV=$HOME/cupygemm-venv"
    network = (
        "check the way to https://pypi.org; behind a proxy set HTTPS_PROXY, with a mirror "
        "PIP_INDEX_URL, and run the same command again: what was downloaded is kept"
    )
    if re.search(r"(?i)name resolution|connection|timed out|timeout|ssl|proxy|unreachable", text):
        return network
    if "No matching distribution" in text:
        return network + (
            "\n  Where other packages do come: the wheels are for x86-64 Linux with glibc 2.28 or "
            "newer and\n  Python 3.11 to 3.14; name one:  rm -r .venv; make setup PYTHON=python3.12"
        )
    if "ensurepip" in text:
        return "sudo apt install python3-venv"
    return "read the lines above; then run the same command again: what was downloaded is kept"


def say(message):
    """Print one line of progress."""
    print("setup: " + message, flush=True)


def fail(message, mend):
    """End with what is wrong and what mends it."""
    sys.exit("setup: error: {}\nsetup: to mend it: {}".format(message, mend))


if __name__ == "__main__":
    main()
