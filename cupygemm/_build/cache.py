"""A content-addressed cache of built files, sound under concurrent and killed builders.

An entry is a file named by the digest of everything that decides its contents (sources, options,
compiler version, target), and beside it a seal: the file's size and digest. The seal is published
last, so an entry without a matching seal is one that a builder left half-way, or one damaged since;
it is rebuilt under a lock. A published file is replaced, never written to: a process that has
loaded it keeps the old contents.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import filelock
import platformdirs

# What a builder meets when it writes: a full disk, a full quota, a broken one, a read-only one.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# Entries found intact by this process, with the state of the file when they were.
_verified: dict[Path, tuple[int, int, int]] = {}


class CacheError(RuntimeError):
    """The cache directory cannot be used."""


def cache_dir() -> Path:
    """Return the directory that holds built files.

    It is the platform's user cache directory, or ``CUPYGEMM_CACHE_DIR`` from the environment. It
    need not exist yet.

    Returns
    -------
    pathlib.Path
    """
    chosen = os.environ.get("CUPYGEMM_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("cupygemm", appauthor=False))


def get_or_build(
    kind: str,
    key: Iterable[str | bytes],
    suffix: str,
    build: Callable[[Path], None],
    *,
    check: Callable[[Path], bool] | None = None,
) -> Path:
    """Return the file for `key`, building it first where there is none that is intact.

    Parameters
    ----------
    kind : str
        Subdirectory, e.g. ``"hsaco"``.
    key : iterable of str or bytes
        Everything that decides the contents, in a fixed order.
    suffix : str
        Of the file's name, e.g. ``".hsaco"``.
    build : callable
        Called with the path that it must write. What it raises passes through and leaves no entry.
    check : callable, optional
        Called with the path of a stored file; false means damaged, and the entry is rebuilt.

    Returns
    -------
    pathlib.Path
        The published file. Do not write to it.

    Raises
    ------
    CacheError
        The directory cannot be created or written to.
    """
    digest = _digest_of(key)
    folder = cache_dir() / kind / digest[:2]
    entry = folder / (digest + suffix)
    if _is_intact(entry, check):
        return entry
    with _told_apart(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / (digest + ".lock"))
        lock.acquire()
    try:
        if not _is_intact(entry, check):  # another process may have built it while we waited
            _build(entry, build)
            _is_intact(entry, None)
    finally:
        lock.release()
    return entry


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    """Build into a temporary directory beside `entry` and publish file, then seal."""
    _verified.pop(entry, None)
    prefix = f".{entry.stem}."
    for left in entry.parent.glob(prefix + "*"):  # of builders killed half-way: we hold the lock
        _remove_tree(left)
    with _told_apart(entry.parent):
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=entry.parent))
    try:
        made = scratch / entry.name
        with _told_apart(entry.parent, only=_DISK_ERRORS):
            build(made)
        with _told_apart(entry.parent):
            seal = scratch / "seal"
            seal.write_text(_seal_of(made.read_bytes()))
            _seal_path(entry).unlink(missing_ok=True)
            os.replace(made, entry)
            os.replace(seal, _seal_path(entry))
    finally:
        _remove_tree(scratch)


def _is_intact(entry: Path, check: Callable[[Path], bool] | None) -> bool:
    try:
        status = entry.stat()
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if _verified.get(entry) == state:
            return True
        if _seal_path(entry).read_text() != _seal_of(entry.read_bytes()):
            return False
    except (OSError, UnicodeDecodeError):
        return False
    if check is not None and not check(entry):
        return False
    _verified[entry] = state
    return True


def _seal_path(entry: Path) -> Path:
    return entry.with_name(entry.name + ".seal")


def _seal_of(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"


def _digest_of(key: Iterable[str | bytes]) -> str:
    state = hashlib.sha256()
    for part in key:
        data = part.encode() if isinstance(part, str) else part
        state.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"b", len(data)))
        state.update(data)
    return state.hexdigest()[:40]


def _remove_tree(path: Path) -> None:
    if path.is_dir():
        for child in path.iterdir():
            _remove_tree(child)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _told_apart(folder: Path, *, only: tuple[int, ...] | None = None) -> Iterator[None]:
    """Turn a refusal of the file system into an error that names the remedy."""
    try:
        yield
    except (OSError, filelock.Timeout) as err:
        if only is not None and err.errno not in only:
            raise
        raise CacheError(
            f"the cache directory {folder} cannot be written to ({err}); "
            "set CUPYGEMM_CACHE_DIR to a directory that can"
        ) from err
