"""Create or complete the virtual environment: ``setup_environment.py DIRECTORY EXTRA,EXTRA,...``.

The Makefile runs this script with the Python of the machine. It uses only the standard library, and
syntax that Python 2.7 parses, so that an old interpreter prints a helpful message instead of a
SyntaxError. It checks the machine, creates the environment, and installs this checkout (editable)
with the named extras. It records what it installed from which pyproject.toml and setup.py, so that
a second run with nothing to do ends immediately. Every error message ends with the command that
solves the problem.
"""

from __future__ import print_function

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 11), (3, 14)
STAMP = "cupygemm-setup.json"
LOG = "cupygemm-setup.log"
# Disk space in MB: the installed files, plus the downloads, which are kept until the end.
SPACE_MB = {"emulator": 900, "rocm": 500, "cuda": 900, "test": 600}
BASE_SPACE_MB = 300
# uv does not read pip's configuration. These settings are passed to it, as variables with lists
# separated by a character; if there are other settings, pip installs.
UV_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "constraint": ("UV_CONSTRAINT", " "),
}
PIP_SETTINGS = r"\b(no.index|proxy|trusted.host)='"


def main():
    """Set up the environment named on the command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    directory = os.path.abspath(sys.argv[1])
    wanted = set(sys.argv[2].split(","))
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "setup.py"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    build = digest.hexdigest()
    stamp = read_stamp(directory)
    done = set(stamp["extras"]) if stamp.get("build") == build else set()
    python = os.path.join(directory, "bin", "python")
    if wanted <= done and os.path.exists(python) and stamp["prefix"] == directory:
        return
    check_machine()
    if not has_pip(python):
        use_supported_python()
        create(directory)
    check_space(directory, wanted - done)
    install(directory, sorted(done | wanted))
    record = {"build": build, "prefix": directory, "extras": sorted(done | wanted)}
    with open(os.path.join(directory, STAMP), "w") as file:
        file.write(json.dumps(record) + "\n")


def read_stamp(directory):
    """Return the record of an earlier run, or an empty record."""
    try:
        with open(os.path.join(directory, STAMP)) as file:
            return json.load(file)
    except (IOError, ValueError):
        return {"build": "", "prefix": "", "extras": []}


def check_machine():
    """Exit with an explanation if CuPy has no wheel for this machine."""
    system, machine = platform.system(), platform.machine()
    if system == "Linux" and machine in ("x86_64", "AMD64"):
        return
    problem = "CuPy's ROCm wheel exists only for Linux on x86-64, and this is {} on {}".format(
        {"Darwin": "macOS"}.get(system, system), machine
    )
    if system == "Windows":
        fail(problem, "run `wsl --install` in PowerShell and `make demo` in the Linux it installs")
    fail(
        problem,
        "run it in a container: docker run -it --rm --platform linux/amd64 "
        '-v "$PWD":/cupygemm -w /cupygemm python:3.12 make demo VENV=/tmp/venv',
    )


def use_supported_python():
    """Continue with another interpreter if this one is unsupported; return if it is supported."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = which("python3.{}".format(minor))
        if other and succeeds([other, "-c", "import venv, ensurepip"]):
            say("{} is Python {}; continuing with {}".format(sys.executable, version(), other))
            os.execv(other, [other] + sys.argv)
    fail(
        "Python {} is too {}: cupygemm runs on Python 3.11 to 3.14, and none is on PATH".format(
            version(), "old" if sys.version_info[:2] < OLDEST else "new"
        ),
        "install one (Debian and Ubuntu: sudo apt install python3.11-venv; Fedora: sudo dnf "
        "install python3.12; without root: curl -LsSf https://astral.sh/uv/install.sh | sh && "
        "~/.local/bin/uv python install 3.12) and run the same command again",
    )


def version():
    """Return this interpreter's version as text."""
    return "{}.{}.{}".format(*sys.version_info[:3])


def which(name):
    """Return the path of an executable on PATH or in uv's default directory, or None."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders + [os.path.expanduser("~/.local/bin")]:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def succeeds(command):
    """Run a command silently; return whether it succeeds."""
    with open(os.devnull, "w") as nowhere:
        return subprocess.call(command, stdout=nowhere, stderr=nowhere) == 0


def has_pip(python):
    """Return whether the environment exists and can install packages."""
    return os.path.exists(python) and succeeds([python, "-m", "pip", "--version"])


def create(directory):
    """Create the environment, or complete one that was interrupted."""
    if not succeeds([sys.executable, "-c", "import venv, ensurepip"]):
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        fail(
            "{} cannot create virtual environments: its venv or ensurepip module is not "
            "installed".format(sys.executable),
            "Debian and Ubuntu: sudo apt install {} (or python3-venv); without root: python3 -m "
            "pip install --user virtualenv && python3 -m virtualenv {}".format(package, directory),
        )
    say("creating {} with Python {} ({})".format(directory, version(), sys.executable))
    status, output = run([sys.executable, "-m", "venv", directory])
    if status:
        fail("the virtual environment could not be created:\n" + output, hint(output))


def check_space(directory, extras):
    """Exit with an explanation if the disk has too little space for the installation."""
    needed = BASE_SPACE_MB + sum(SPACE_MB.get(extra, 0) for extra in extras)
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize >> 20
    if free < needed:
        fail(
            "the disk of {} has {} MB free; about {} MB are needed".format(directory, free, needed),
            "make room there, or put the environment elsewhere: make setup VENV=/roomy/disk/venv",
        )


def install(directory, extras):
    """Install this checkout and the extras with uv, which is several times as fast, or with pip."""
    python = os.path.join(directory, "bin", "python")
    say("installing cupygemm[{}] from PyPI into {}".format(",".join(extras), directory))
    begin = time.time()
    requirement = ["--editable", "{}[{}]".format(ROOT, ",".join(extras))]
    settings = uv_settings(python)
    uv = None if settings is None else find_uv(python)
    if uv:
        log = os.path.join(directory, LOG)
        command = [uv, "pip", "install", "--python", python]
        status, _ = run(command + requirement, log, settings)
        if status == 0:
            say("installed by uv in {:.0f} s".format(time.time() - begin))
            return
        say("uv failed (see {}); trying pip".format(log))
    install_with_pip(python, requirement, os.path.join(directory, LOG))
    say("installed in {:.0f} s".format(time.time() - begin))


def uv_settings(python):
    """Return the variables that tell uv pip's settings; None if it cannot follow them."""
    status, text = run([python, "-m", "pip", "config", "list"])
    if status or re.search(PIP_SETTINGS, text):
        return None
    settings = {}
    pattern = r"^(\S+)\.({})='(.*)'$".format("|".join(UV_SETTINGS))
    found = re.findall(pattern, text, re.MULTILINE)
    for source, name, value in sorted(found, key=lambda setting: setting[0] == ":env:"):
        if source != ":env:" and settings.get(name, value) != value:
            return None  # several of pip's files may have it, in order of precedence
        settings[name] = value
    told = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # the best version of all indexes, like pip
    for name, value in settings.items():
        variable, separator = UV_SETTINGS[name]
        told[variable] = re.sub(r"(\\n|\s)+", separator, value).strip(separator)
    if "UV_CONSTRAINT" in told:  # pip's setting also applies to the dependencies of a build
        told["UV_BUILD_CONSTRAINT"] = told["UV_CONSTRAINT"]
    return told


def find_uv(python):
    """Return the path of uv, installed into the environment if necessary; None without uv."""
    uv = which("uv")
    if uv is None:
        pip_install(python, ["uv"])
        uv = os.path.join(os.path.dirname(python), "uv")
    return uv if os.path.exists(uv) else None


def install_with_pip(python, requirement, log):
    """Install with pip, or exit with its output and a remedy."""
    status, output = pip_install(python, requirement, log)
    if status:
        end = "\n".join(output.splitlines()[-30:])
        fail("pip failed (the full log is {}):\n{}".format(log, end), hint(output))


def pip_install(python, requirement, log=os.devnull):
    """Run pip's install; return its status and its output."""
    # Python compiles modules when they are imported; compiling all would take half of pip's time.
    # Unlike the option, the variable also reaches the environment that builds this package.
    os.environ["PIP_COMPILE"] = "0"
    command = [python, "-m", "pip", "install", "--progress-bar", "off"]
    return run(command + ["--disable-pip-version-check"] + requirement, log)


def run(command, log=os.devnull, variables=()):
    """Run a command, print its large downloads when they start; return its status and output."""
    lines = []
    with open(log, "w") as out:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            env=dict(os.environ, **dict(variables)),
        )
        for line in process.stdout:
            out.write(line)
            lines.append(line)
            if re.match(r"\s*(Downloading|Using cached) .*\([\d.]+ ?Mi?B\)", line):
                say("  " + line.strip())
    return process.wait(), "".join(lines)


def hint(text):
    """Return the remedy for a failure that printed `text`."""
    if "No space left" in text or "Disk quota" in text:
        return "make room (pip also unpacks under $TMPDIR, /tmp when unset): df -h . /tmp"
    if "Permission denied" in text or "Read-only file system" in text:
        return "use a directory that you may write to: make setup VENV=$HOME/cupygemm-venv"
    network = (
        "check the connection to https://pypi.org (behind a proxy set HTTPS_PROXY, for a mirror "
        "PIP_INDEX_URL), then run the same command again: finished downloads are kept"
    )
    if re.search(r"(?i)name resolution|connection|timed out|timeout|ssl|proxy|unreachable", text):
        return network
    if "No matching distribution" in text:
        return network + (
            "; if other packages install, note that the wheels need glibc 2.28 or newer and Python "
            "3.11 to 3.14, which you choose with: rm -r .venv; make setup PYTHON=python3.12"
        )
    if "ensurepip" in text:
        return "sudo apt install python3-venv"
    return "read the lines above, then run the same command again: finished downloads are kept"


def say(message):
    """Print one line of progress."""
    print("setup: " + message)
    sys.stdout.flush()


def fail(message, remedy):
    """Exit with the problem and its remedy."""
    sys.exit("setup: error: {}\nsetup: remedy: {}".format(message, remedy))


if __name__ == "__main__":
    main()
