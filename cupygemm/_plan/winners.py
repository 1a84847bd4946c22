"""The database of measured winners: which configuration `tune` found fastest.

It is an SQLite file in the directory of the compiled kernels, with one row for each device and
problem. Plans read it when they are made; an unchanged file is read once. An unreadable file counts
as empty, with a warning, since its contents can be measured again. A configuration of another
version, or one that the kernels no longer accept, is ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cupygemm._records.problem import GemmProblem

if TYPE_CHECKING:
    import sqlite3

Config = TypeVar("Config")
SCHEMA = """
create table if not exists winners (
    device text not null,
    problem text not null,
    config text not null,
    microseconds real not null,
    candidates integer not null,
    measured text not null,
    primary key (device, problem)
)
"""


@dataclasses.dataclass(frozen=True)
class Winner:
    """One row of the database.

    Attributes
    ----------
    config : str
        The configuration's fields as JSON.
    microseconds : float
    candidates : int
        The number of configurations that were measured.
    measured : str
        The date of the measurement.
    """

    config: str
    microseconds: float
    candidates: int
    measured: str

    def describe(self, device: str) -> str:
        """Return a sentence that says why the configuration is chosen."""
        return (
            f"the fastest of {self.candidates} measured on {device} by cupygemm.tune on "
            f"{self.measured}: {self.microseconds:.1f} us"
        )


def database() -> Path:
    """Return the path of the database file, which need not exist."""
    from cupygemm._build.cache import cache_dir  # the import needs more than the core does

    return cache_dir() / "tuned.sqlite3"


def problem_key(problem: GemmProblem) -> str:
    """Return a problem as JSON, without the spans of its matrices in memory."""
    fields = dataclasses.asdict(problem)
    return json.dumps({key: fields[key] for key in sorted(fields) if not key.endswith("_span")})


def record(
    device: str, problem: GemmProblem, config: Any, *, seconds: float, candidates: int
) -> None:
    """Store the winner of a problem on a device, replacing an earlier one.

    Raises
    ------
    cupygemm._build.cache.CacheError
        The file cannot be written.
    """
    import sqlite3

    from cupygemm._build.cache import CacheError
    from cupygemm._build.private_dir import check_of_the_system

    row = (
        device,
        problem_key(problem),
        json.dumps(dataclasses.asdict(config)),
        seconds * 1e6,
        candidates,
        dt.datetime.now(dt.UTC).date().isoformat(),
    )
    file = database()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _opened(file) as connection:
            connection.execute(SCHEMA)
            connection.execute("insert or replace into winners values (?, ?, ?, ?, ?, ?)", row)
    except (OSError, sqlite3.Error) as err:
        check_of_the_system(err)
        raise CacheError(
            f"{file} cannot be written: {err}; delete it if it is damaged, or set "
            "CUPYGEMM_CACHE_DIR to a folder that can be written"
        ) from err


def winner(
    device: str, problem: GemmProblem, kind: Callable[..., Config]
) -> tuple[Config, Winner] | None:
    """Return the winner of a problem on a device as a configuration made by `kind`, or None."""
    from cupygemm._build.private_dir import check_of_the_system

    file = database()
    try:
        state = file.stat()
    except OSError as err:
        check_of_the_system(err)
        return None
    rows = _rows(file, device, state.st_mtime_ns, state.st_size)
    found = rows.get(problem_key(problem))
    if found is None:
        return None
    try:
        return kind(**json.loads(found.config)), found
    except (TypeError, ValueError):  # of another version
        return None


def count_winners() -> dict[str, int]:
    """Return the number of winners for each device; empty if the file cannot be read."""
    import sqlite3

    if not database().exists():
        return {}
    try:
        with _opened(database()) as connection:
            return dict(
                connection.execute(
                    "select device, count(*) from winners group by device"
                ).fetchall()
            )
    except sqlite3.Error:
        return {}


@functools.lru_cache(maxsize=8)
def _rows(file: Path, device: str, _changed: int, _size: int) -> dict[str, Winner]:
    """Return a device's rows, by problem, for one state of the file."""
    import sqlite3

    try:
        with _opened(file) as connection:
            rows = connection.execute(
                "select problem, config, microseconds, candidates, measured from winners "
                "where device = ?",
                (device,),
            ).fetchall()
    except sqlite3.Error as err:
        warnings.warn(
            f"{file} cannot be read ({err}), so no tuned configuration is used; delete it, and "
            "tune again",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}
    return {problem: Winner(*rest) for problem, *rest in rows}


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the file for one transaction, which waits for any transaction of another process."""
    import sqlite3

    connection = sqlite3.connect(file, timeout=30)
    try:
        with connection:
            yield connection
    finally:
        connection.close()
