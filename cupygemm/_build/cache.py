"""A content-addressed cache of built files, safe with concurrent and killed builders.

An entry is a file named by the digest of everything that determines its contents (sources, options,
compiler version, target). Next to it is a seal: the file's size and digest. The seal is published
last, so an entry without a matching seal was left unfinished by a builder or damaged later; it is
rebuilt under a lock. A published file is replaced, never written to: a process that has loaded it
keeps the old contents.

Entries are executed, so other users must not be able to write them: `private_dir` checks each
directory and file. If the cache directory cannot be written to, entries that it lacks are built in
a private temporary directory, with a warning.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from cupygemm._build.private_dir import (
    VARIABLE,
    CacheError,
    CacheWarning,
    check_of_the_system,
    check_private,
    make_private,
    temporary_dir,
    warn_of,
)
from cupygemm._build.source_text import bytes_of

__all__ = ["CacheError", "CacheWarning", "cache_dir", "get_or_build", "writable_dir"]

# Errors of a disk that cannot be written to: full, over quota, defective, read-only.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_PROBE_BYTES = 1 << 20  # more than most entries need
_COMPILER_BYTES = 64 << 20  # for a compiler's own cache, in addition to the entry
# Entries that this process has found intact, with the state of the file at that time.
_verified: dict[Path, tuple[int, ...]] = {}
# Cache directories that could not be written to, with the reason.
_unwritable: dict[Path, str] = {}


class _Unwritable(Exception):
    """A directory cannot be written to."""


def _unwritable_because(err: OSError) -> _Unwritable:
    check_of_the_system(err)
    return _Unwritable(str(err))


def cache_dir() -> Path:
    """Return the directory that holds built files.

    It is the platform's user cache directory, or ``CUPYGEMM_CACHE_DIR`` from the environment. It
    need not exist yet. A user without a home directory gets a temporary one, with a warning.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    CacheError
        Another user could write to it.
    """
    chosen = os.environ.get(VARIABLE)
    try:
        if chosen:
            path = Path(chosen).expanduser().absolute()
        else:
            path = Path(platformdirs.user_cache_dir("cupygemm", appauthor=False))
            if not path.is_absolute():  # "~/.cache" without a home directory for the tilde
                raise RuntimeError(f"{path} cannot be expanded: there is no home directory")
    except (RuntimeError, KeyError) as err:
        path = temporary_dir()
        warn_of(f"the cache directory cannot be determined ({err})", path)
    check_private(path)
    return path


def writable_dir() -> Path:
    """Return the directory that new files are built in.

    It is `cache_dir`, or the temporary directory once that could not be written to.

    Returns
    -------
    pathlib.Path
    """
    path = cache_dir()
    return temporary_dir() if path in _unwritable else path


def get_or_build(
    kind: str,
    key: Iterable[str | bytes],
    suffix: str,
    build: Callable[[Path], None],
    *,
    check: Callable[[Path], bool] | None = None,
) -> Path:
    """Return the file for `key`; build it first if it is missing or damaged.

    Parameters
    ----------
    kind : str
        Subdirectory, e.g. ``"hsaco"``.
    key : iterable of str or bytes
        Everything that determines the contents, in a fixed order.
    suffix : str
        Suffix of the file's name, e.g. ``".hsaco"``.
    build : callable
        Called with the path that it must write. Its exceptions are propagated and leave no entry.
    check : callable, optional
        Called with the path of a stored file; if it returns false, the entry is rebuilt.

    Returns
    -------
    pathlib.Path
        The published file. Do not write to it.

    Raises
    ------
    CacheError
        Another user could write to the directory or the file, or neither the cache directory nor a
        temporary one can be written to.
    """
    digest = _digest_of(key)
    name = Path(kind, digest[:2], digest + suffix)
    stored = cache_dir() / name
    if _is_intact(stored, check):
        return stored
    return _where_writable(lambda root: _get_or_build(root, root / name, build, check))


def publish_script(name: Path, text: str) -> Path:
    """Write an executable script to a fixed place in the cache, unless it is already there.

    Parameters
    ----------
    name : pathlib.Path
        Relative to the cache directory.
    text : str

    Returns
    -------
    pathlib.Path

    Raises
    ------
    CacheError
        As `get_or_build` does.
    """

    def publish(root: Path) -> Path:
        path = root / name
        try:
            make_private(path.parent, root)
            check_private(path)
            if not path.exists() or path.read_bytes() != text.encode():
                written = path.with_name(f".{path.name}.{os.getpid()}")
                written.write_text(text, encoding="utf-8")
                written.chmod(0o755)
                written.replace(path)
        except OSError as err:
            raise _unwritable_because(err) from err
        return path

    return _where_writable(publish)


def _where_writable(write: Callable[[Path], Path]) -> Path:
    """Call `write` with the cache directory, or else with the temporary directory."""
    first = cache_dir()
    if first not in _unwritable:
        try:
            return write(first)
        except _Unwritable as err:
            _unwritable[first] = str(err)
    second = temporary_dir()
    warn_of(f"the cache directory {first} cannot be written to ({_unwritable[first]})", second)
    try:
        return write(second)
    except _Unwritable as err:
        raise CacheError(
            f"neither the cache directory {first} nor {second} can be written to ({err}); "
            f"set {VARIABLE} to a directory that can"
        ) from err


def _get_or_build(
    root: Path, entry: Path, build: Callable[[Path], None], check: Callable[[Path], bool] | None
) -> Path:
    """Return an entry of the cache at `root`; raise `_Unwritable` if it cannot be built."""
    import filelock  # slower to import than a kernel to load; intact entries need no lock

    try:
        make_private(entry.parent, root)
        lock = filelock.FileLock(entry.with_name(entry.name.partition(".")[0] + ".lock"))
        lock.acquire()
    except OSError as err:
        raise _unwritable_because(err) from err
    try:
        if not _is_intact(entry, check):  # another process may have built it while we waited
            _build(entry, build)
            _is_intact(entry, None)  # stores its state, so that later calls do not read the file
    finally:
        lock.release()
    return entry


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    """Build in a temporary directory next to `entry`; publish the file, then the seal."""
    _verified.pop(entry, None)
    prefix = f".{entry.stem}."
    try:
        for left in entry.parent.glob(prefix + "*"):  # of killed builders, since we hold the lock
            _remove_tree(left)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=entry.parent))
    except OSError as err:
        raise _unwritable_because(err) from err
    try:
        made = scratch / entry.name
        try:
            build(made)
        except Exception as err:
            if isinstance(err, OSError) and err.errno in _DISK_ERRORS:
                raise _Unwritable(str(err)) from err
            _probe(scratch)  # a compiler does not report that the disk is full
            raise
        try:
            made.chmod(stat.S_IMODE(made.stat().st_mode) & 0o755)
            seal = scratch / "seal"
            seal.write_text(_seal_of(made.read_bytes()))
            seal.chmod(0o644)
            _seal_path(entry).unlink(missing_ok=True)
            os.replace(made, entry)
            os.replace(seal, _seal_path(entry))
        except OSError as err:
            raise _unwritable_because(err) from err
    finally:
        _remove_tree(scratch)


def _probe(folder: Path) -> None:
    """Raise `_Unwritable` unless a directory can be written to and its disk has room."""
    probe = folder / "probe"
    try:
        probe.write_bytes(b"\0" * _PROBE_BYTES)
        probe.unlink()
        if shutil.disk_usage(folder).free < _COMPILER_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as err:
        raise _unwritable_because(err) from err


def _is_intact(entry: Path, check: Callable[[Path], bool] | None) -> bool:
    """Whether an entry is as it was built; raises `CacheError` if others may write to it."""
    try:
        status = entry.stat()
        state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if _verified.get(entry) == state:
            return True
        for path in (entry.parent.parent, entry.parent, entry, _seal_path(entry)):
            check_private(path)
        if _seal_path(entry).read_text(encoding="utf-8") != _seal_of(entry.read_bytes()):
            return False
    except UnicodeDecodeError:
        return False
    except OSError as err:
        check_of_the_system(err)
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
        data = bytes_of(part) if isinstance(part, str) else part
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
