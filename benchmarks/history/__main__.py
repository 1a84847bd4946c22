"""The command line of the history: ``python -m benchmarks.history``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Run a command, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.history", description="Keep and publish figures of commits."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="compute missing deterministic figures of commits")
    run.add_argument("-n", type=int, help="the number of last commits")
    run.add_argument("revisions", nargs="*", help="or arguments of git log, such as A..B")
    run.add_argument("--every", type=int, default=1, help="first compute every N-th commit")
    run.add_argument("--jobs", type=int, default=1, help="commits at a time")
    host = commands.add_parser("host", help="keep the times of this host for commits")
    host.add_argument("revisions", nargs="+", help="commits")
    commands.add_parser("publish", help="write the site of all kept results to .asv/html")
    view = commands.add_parser("view", help="serve the site on this machine")
    view.add_argument("--port", type=int, default=8080)
    commands.add_parser("check", help="compare this checkout's figures with the last kept ones")
    add = commands.add_parser("add", help="keep the output of benchmarks.compare and solvers")
    add.add_argument("documents", nargs="+", type=Path)
    add.add_argument("--commit", help="the measured commit, if a document does not name it")
    options = parser.parse_args()
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.command == "run":
        from benchmarks.history.run import be_nice, run

        be_nice()
        last = ["-n", str(options.n)] if options.n else []
        run([*last, *options.revisions], every=options.every, jobs=options.jobs)
    elif options.command == "host":
        from benchmarks.history.host import time_commits

        sys.stdout.write("\n".join(time_commits(options.revisions)) + "\n")
    elif options.command == "publish":
        from benchmarks.history.site import publish

        publish()
    elif options.command == "view":
        from benchmarks.history.site import view

        view(options.port)
    elif options.command == "check":
        from benchmarks.history.regressions import check

        return check()
    else:
        from benchmarks.history.measured import add

        try:
            lines = add(options.documents, options.commit)
        except ValueError as error:
            raise SystemExit(f"history: error: {error}") from error
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
