"""Decide whether a directory may hold code that is executed, and provide one that may.

A process that executes files from a directory trusts everyone who can write there. As OpenSSH does
for its keys, the cache refuses a directory or a file that is owned by a user other than the current
one or root, or that is writable by its group or by everybody. As in Debian's OpenSSH, a group
without other members is allowed: where every user has such a group, directories are made writable
for it.
"""

from __future__ import annotations

import functools
import os
import stat
import tempfile
import warnings
from pathlib import Path

VARIABLE = "CUPYGEMM_CACHE_DIR"


class CacheError(RuntimeError):
    """The cache directory cannot be used."""


class CacheWarning(UserWarning):
    """Built files are kept in a temporary directory, because the cache directory cannot be used."""


def check_of_the_system(err: Exception) -> None:
    """Raise an error again unless the operating system caused it; only such errors have a number.

    A signal handler may raise a TimeoutError, which is an OSError, at any point. That does not mean
    that a file is missing or unreadable.
    """
    if isinstance(err, OSError) and err.errno is None:
        raise err


def check_private(path: Path) -> None:
    """Raise an error unless only this user and root can write to a file or a directory.

    A path that does not exist passes, and so does every path on a system without users.

    Raises
    ------
    CacheError
        The message names the path, its owner or mode, and the remedy.
    """
    user = _user()
    try:
        status = path.stat()
    except OSError as err:
        check_of_the_system(err)
        return
    if user is None:
        return
    if status.st_uid not in (user, 0):
        raise CacheError(
            f"{path} belongs to user {status.st_uid}, who could make user {user} execute any code "
            f"through it: delete it, or set {VARIABLE} to a directory of your own"
        )
    shared = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid, user)
    if shared or status.st_mode & stat.S_IWOTH:
        raise CacheError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, so that other users could make "
            f"user {user} execute any code through it: delete it if you do not trust them, else "
            f"chmod go-w {path}, or set {VARIABLE} to a directory of your own"
        )


def make_private(path: Path, root: Path) -> None:
    """Create a directory at or below `root`, and check every directory from `root` to it.

    Raises
    ------
    CacheError
        Another user could write to one of them.
    OSError
        One of them cannot be created.
    """
    levels = [path, *path.parents]
    for level in reversed(levels[: levels.index(root) + 1]):
        if not level.is_dir():
            level.parent.mkdir(parents=True, exist_ok=True)
            level.mkdir(mode=0o700, exist_ok=True)
        check_private(level)


@functools.cache
def temporary_dir() -> Path:
    """Return a directory of this user among the temporary files, the same in every process.

    Raises
    ------
    CacheError
        There is no place for temporary files.
    """
    try:
        user = _user()
        if user is None:
            return Path(tempfile.mkdtemp(prefix="cupygemm-"))
        path = Path(tempfile.gettempdir()) / f"cupygemm-{user}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            status = path.lstat()  # a link of another user is not accepted as a directory
            private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
            if status.st_uid != user or not private:
                path = Path(tempfile.mkdtemp(prefix="cupygemm-"))
    except OSError as err:
        check_of_the_system(err)
        raise CacheError(
            f"no directory for temporary files can be written to ({err}); "
            f"set {VARIABLE} to a directory that can"
        ) from err
    return path


@functools.cache
def warn_of(reason: str, directory: Path) -> None:
    """Warn, once for each reason, that built files are kept in a temporary directory."""
    warnings.warn(
        f"{reason}; built files are kept in {directory} instead: "
        f"set {VARIABLE} to a directory that can be written to",
        CacheWarning,
        stacklevel=2,
    )


@functools.cache
def _is_own_group(group: int, user: int) -> bool:
    """Whether a group has no member other than a user."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(user).pw_name
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    others = [entry for entry in pwd.getpwall() if entry.pw_gid == group and entry.pw_uid != user]
    return members <= {name} and not others


def _user() -> int | None:
    return os.geteuid() if hasattr(os, "geteuid") else None
