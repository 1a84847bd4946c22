"""asv's site of the kept results, with its scripts as local files.

asv's page loads scripts from three CDNs. `SCRIPTS` holds the same files, from the npm registry, and
`localise` makes the page load these. The page reads its data by requests, which browsers refuse for
``file:`` addresses, so `view` serves the folder on this machine. No network is needed.
"""

from __future__ import annotations

import functools
import http.server
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.history.install import ROOT
from benchmarks.history.kept import ABSENT, expand, machines
from benchmarks.history.run import known_commits

SCRIPTS = Path(__file__).with_name("scripts")
BENCHMARKS = ROOT / "benchmarks"
HTML = ROOT / ".asv" / "html"
PORT = 8080
_RENAMED = {
    "jquery-3.3.1.min.js": "jquery.min.js",
    "jquery.flot.min.js": "jquery.flot.js",
    "jquery.flot.time.min.js": "jquery.flot.time.js",
    "jquery.flot.selection.min.js": "jquery.flot.selection.js",
    "jquery.flot.categories.min.js": "jquery.flot.categories.js",
}
_REMOTE = re.compile(r'(src|href)="https://[^"]*/([^/"]+\.(?:js|css))"([^>]*)>')
_CHECKS = re.compile(r'\s(?:integrity|crossorigin|referrerpolicy)="[^"]*"')


def publish() -> Path:
    """Write the site of all kept results, and return its folder."""
    results = ROOT / ".asv" / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    count = expand(results, known_commits())
    described = {name: each for name, each in benchmarks().items() if name in kept_benchmarks()}
    (results / "benchmarks.json").write_text(json.dumps({**described, "version": 2}))
    asv = [sys.executable, "-m", "asv", "publish", "--config", str(BENCHMARKS / "asv.conf.json")]
    subprocess.run(asv, check=True)
    index = HTML / "index.html"
    index.write_text(localise(index.read_text()))
    shutil.copytree(SCRIPTS, HTML / "scripts")
    sys.stdout.write(f"history: {count} results in {HTML}\n")
    return HTML


def benchmarks() -> dict[str, dict[str, Any]]:
    """Return asv's description of the benchmarks of the suite, by name."""
    from asv_runner.discovery import list_benchmarks

    sys.path.insert(0, str(BENCHMARKS))
    text = io.StringIO()
    list_benchmarks(str(BENCHMARKS / "suite"), text)
    return {each["name"]: each for each in json.loads(text.getvalue())}


def kept_benchmarks() -> set[str]:
    """Return the names of the benchmarks that have results."""
    files = ((machine, line.file) for machine in machines() for line in machine.lines())
    stored = dict.fromkeys(pair for pair in files if pair[1] != ABSENT)
    return {name for machine, file in stored for name in machine.results(file)}


def localise(page: str) -> str:
    """Return a page that loads nothing from other hosts.

    Raises
    ------
    ValueError
        The page needs a script or a style sheet that is not in `SCRIPTS`.
    """

    def local(match: re.Match[str]) -> str:
        attribute, name, rest = match.groups()
        name = _RENAMED.get(name, name)
        if not (SCRIPTS / name).exists():
            raise ValueError(f"asv's page loads {name}, which {SCRIPTS} lacks: add it there")
        return f'{attribute}="scripts/{name}"{_CHECKS.sub("", rest)}>'

    return _REMOTE.sub(local, page)


def view(port: int = PORT) -> None:
    """Serve the site on this machine until it is interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        sys.stdout.write(f"history: open http://127.0.0.1:{port} (Ctrl-C ends it)\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
