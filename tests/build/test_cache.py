"""The cache of built files: concurrent builders, killed ones, damage, and folders that refuse."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cupygemm._build import cache as _cache
from cupygemm._build import private_dir as _private_dir
from cupygemm._build.cache import (
    CacheError,
    CacheWarning,
    cache_dir,
    get_or_build,
    publish_script,
    writable_dir,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache directory; `temporary` beside it is the one for temporary files."""
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(_cache, "_unwritable", {})
    for function in (_private_dir.temporary_dir, _private_dir.warn_of):
        function.cache_clear()
    yield tmp_path / "cache"
    for function in (_private_dir.temporary_dir, _private_dir.warn_of):
        function.cache_clear()


class Builder:
    """Writes a text and counts how often."""

    def __init__(self, text: str = "built") -> None:
        self.text = text
        self.count = 0

    def __call__(self, output: Path) -> None:
        self.count += 1
        output.write_text(self.text)


def forget() -> None:
    """Do as a new process would: trust nothing seen before."""
    _cache._verified.clear()


def test_a_second_request_is_served_from_the_folder(folder: Path) -> None:
    build = Builder()
    first = get_or_build("kind", ["a", b"b"], ".txt", build)
    forget()
    assert get_or_build("kind", ["a", b"b"], ".txt", build) == first
    assert build.count == 1
    assert first.read_text() == "built"
    assert first.is_relative_to(folder / "kind")
    assert first.suffix == ".txt"


@pytest.mark.parametrize(
    ("one", "other"),
    [(["ab", "c"], ["a", "bc"]), (["a"], [b"a"]), (["a"], ["a", ""]), (["a", "b"], ["b", "a"])],
)
def test_keys_that_differ_get_entries_of_their_own(
    one: list[str | bytes], other: list[str | bytes]
) -> None:
    assert get_or_build("k", one, "", Builder()) != get_or_build("k", other, "", Builder())


@pytest.mark.parametrize("damage", ["other text", "", "built and more", None])
def test_a_damaged_entry_is_built_again(damage: str | None) -> None:
    build = Builder()
    path = get_or_build("kind", ["a"], "", build)
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage)
    assert get_or_build("kind", ["a"], "", build).read_text() == "built"
    assert build.count == 2


@pytest.mark.parametrize("damage", ["", "5 0000\n", None])
def test_an_entry_without_its_seal_is_built_again(damage: str | None) -> None:
    build = Builder()
    path = get_or_build("kind", ["a"], "", build)
    seal = path.with_name(path.name + ".seal")
    forget()
    if damage is None:
        seal.unlink()
    else:
        seal.write_text(damage)
    get_or_build("kind", ["a"], "", build)
    assert build.count == 2


def test_an_entry_that_fails_the_check_is_built_again() -> None:
    build = Builder()
    get_or_build("kind", ["a"], "", build)
    forget()
    get_or_build("kind", ["a"], "", build, check=lambda path: path.read_text() != "built")
    assert build.count == 2


def test_a_builder_that_raises_leaves_nothing(folder: Path) -> None:
    def build(output: Path) -> None:
        output.write_text("half")
        raise ValueError("compiler")

    with pytest.raises(ValueError, match="compiler"):
        get_or_build("kind", ["a"], "", build)
    left = [path for path in (folder / "kind").rglob("*") if path.suffix != ".lock"]
    assert [path for path in left if path.is_file()] == []
    assert get_or_build("kind", ["a"], "", Builder()).read_text() == "built"


def test_a_loaded_file_keeps_its_contents_when_its_entry_is_replaced() -> None:
    path = get_or_build("kind", ["a"], "", Builder("old"))
    with path.open() as reader:
        path.with_name(path.name + ".seal").unlink()
        forget()
        get_or_build("kind", ["a"], "", Builder("new"))
        assert reader.read() == "old"
    assert path.read_text() == "new"


PROGRAM = """
    import sys, time
    from pathlib import Path
    from cupygemm._build.cache import get_or_build

    def build(output):
        with open({log!r}, "a") as log:
            log.write("b")
        output.write_text("half")
        print("building", flush=True)
        time.sleep({seconds})
        output.write_text("whole")

    print(get_or_build("kind", ["shared"], ".txt", build).read_text(), flush=True)
"""


def start(log: Path, seconds: float) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).format(log=str(log), seconds=seconds)
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_two_processes_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [start(log, 0.5) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert log.read_text() == "b"
    assert [output.split()[-1] for output in outputs] == ["whole", "whole"]


def test_a_killed_builder_leaves_the_entry_to_the_next(tmp_path: Path, folder: Path) -> None:
    log = tmp_path / "log"
    killed = start(log, 3600)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "building\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=600)
    output, _ = start(log, 0).communicate(timeout=600)
    assert output.split() == ["building", "whole"]
    assert log.read_text() == "bb"
    left = [path.name for path in (folder / "kind").rglob("*")]
    assert not [name for name in left if name.startswith(".")], "the dead builder's files are left"


def test_a_folder_that_cannot_be_written_gives_way_to_a_temporary_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").write_text("")
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(folder.parent / "file" / "cache"))
    with pytest.warns(CacheWarning, match=r"file/cache .*: set CUPYGEMM_CACHE_DIR"):
        path = get_or_build("kind", ["a"], "", Builder())
    assert path.is_relative_to(folder.parent / "temporary" / f"cupygemm-{os.geteuid()}")
    assert get_or_build("kind", ["a"], "", Builder("not asked")) == path, "without a warning"
    assert get_or_build("kind", ["b"], "", Builder()).read_text() == "built"
    assert writable_dir() == folder.parent / "temporary" / f"cupygemm-{os.geteuid()}"
    script = publish_script(Path("bin", "tool"), "#!/bin/sh\necho ran\n")
    assert subprocess.check_output([script], text=True) == "ran\n"


def test_where_nothing_can_be_written_the_error_names_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").write_text("")
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(folder.parent / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent / "file"))
    with pytest.raises(CacheError, match="temporary files .*set CUPYGEMM_CACHE_DIR"):
        get_or_build("kind", ["a"], "", Builder())


def test_a_temporary_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = folder.parent / "temporary" / f"cupygemm-{os.geteuid()}"
    planted.mkdir(mode=0o700)
    planted.chmod(0o777)  # whoever planted it left the door open
    folder.write_text("a file")
    with pytest.warns(CacheWarning):
        path = get_or_build("kind", ["a"], "", Builder())
    assert not path.is_relative_to(planted)


def test_a_folder_made_read_only_still_serves_its_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who can write anywhere, so the calls that write are refused, too."""
    make = _cache.make_private

    def refuse(path: Path, root: Path) -> None:
        if root == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        make(path, root)

    build = Builder()
    path = get_or_build("kind", ["a"], "", build)
    forget()
    for place in (path, path.parent, folder):
        place.chmod(0o555)
    monkeypatch.setattr(_cache, "make_private", refuse)
    try:
        assert get_or_build("kind", ["a"], "", build) == path
        assert build.count == 1
        with pytest.warns(CacheWarning, match=r"Permission denied.*set CUPYGEMM_CACHE_DIR"):
            get_or_build("kind", ["b"], "", build)
        assert get_or_build("kind", ["a"], "", build) == path
        assert build.count == 2
    finally:
        path.parent.chmod(0o755)
        folder.chmod(0o755)


def out_of_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def confused_compiler(_: object) -> None:
    raise RuntimeError("memory.c does not compile for the host")


def no_room(_: object) -> SimpleNamespace:
    return SimpleNamespace(free=1000)


@pytest.mark.parametrize("where", ["builder", "compiler", "publication"])
def test_a_full_disk_gives_way_to_a_temporary_folder_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    failures: dict[str, Callable[..., object]] = {
        "builder": out_of_space, "compiler": confused_compiler, "publication": out_of_space
    }  # fmt: skip
    build = Builder()

    def fill(output: Path) -> None:
        if output.is_relative_to(folder) and where != "publication":
            failures[where](output)
        build(output)

    if where == "compiler":
        monkeypatch.setattr(_cache.shutil, "disk_usage", no_room)
    replace = os.replace

    def replaced(source: Path, target: Path) -> None:
        if target.is_relative_to(folder) and where == "publication":
            failures[where]()
        replace(source, target)

    monkeypatch.setattr(_cache.os, "replace", replaced)
    with pytest.warns(CacheWarning, match=r"No space left .*: set CUPYGEMM_CACHE_DIR"):
        path = get_or_build("kind", ["a"], "", fill)
    assert path.read_text() == "built"
    assert path.is_relative_to(folder.parent / "temporary")
    left = [path for path in (folder / "kind").rglob("*") if path.suffix != ".lock"]
    assert [path for path in left if path.is_file()] == []


@pytest.mark.parametrize(
    "missing", [RuntimeError("Could not determine home directory"), "~/.cache"]
)
def test_a_user_without_a_home_gets_a_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, folder: Path, missing: object
) -> None:
    def user_cache_dir(*_: object, **__: object) -> str:
        if isinstance(missing, RuntimeError):
            raise missing
        return f"{missing}/cupygemm"

    monkeypatch.delenv("CUPYGEMM_CACHE_DIR")
    monkeypatch.setattr(_cache.platformdirs, "user_cache_dir", user_cache_dir)
    with pytest.warns(CacheWarning, match="home directory.*set CUPYGEMM_CACHE_DIR"):
        path = get_or_build("kind", ["a"], "", Builder())
    assert path.is_relative_to(folder.parent / "temporary")


def test_another_error_of_the_builder_stays_its_own() -> None:
    def build(_: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such compiler")

    with pytest.raises(FileNotFoundError, match="no such compiler"):
        get_or_build("kind", ["a"], "", build)


def test_the_folder_is_the_users_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUPYGEMM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/cupygemm")
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", "~/mine")
    assert cache_dir() == Path.home() / "mine"


@pytest.mark.parametrize("function", ["check_private", "make_private"])
def test_an_error_of_a_signal_handler_is_no_error_of_the_disk(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """A handler may raise a TimeoutError, which is an OSError, in the middle of a look-up."""
    build = Builder()
    get_or_build("kind", ["key"], ".txt", build)
    forget()

    def interrupted(*_: object) -> None:
        raise TimeoutError("late")

    key = "key" if function == "check_private" else "another key"
    with monkeypatch.context() as patch:
        patch.setattr(_cache, function, interrupted)
        with pytest.raises(TimeoutError, match="late"):
            get_or_build("kind", [key], ".txt", build)
    assert not _cache._unwritable
    assert build.count == 1
    assert get_or_build("kind", ["key"], ".txt", build).read_text() == "built"
    assert build.count == 1
