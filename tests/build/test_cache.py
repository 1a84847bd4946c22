"""The cache of built files: concurrent builders, killed ones, damage, and folders that refuse."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cupygemm._build import cache as _cache
from cupygemm._build.cache import CacheError, cache_dir, get_or_build


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert log.read_text() == "b"
    assert [output.split()[-1] for output in outputs] == ["whole", "whole"]


def test_a_killed_builder_leaves_the_entry_to_the_next(tmp_path: Path, folder: Path) -> None:
    log = tmp_path / "log"
    killed = start(log, 60)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "building\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    output, _ = start(log, 0).communicate(timeout=60)
    assert output.split() == ["building", "whole"]
    assert log.read_text() == "bb"
    left = [path.name for path in (folder / "kind").rglob("*")]
    assert not [name for name in left if name.startswith(".")], "the dead builder's files are left"


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").write_text("")
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(folder.parent / "file" / "cache"))
    with pytest.raises(CacheError, match=r"file/cache.*set CUPYGEMM_CACHE_DIR"):
        get_or_build("kind", ["a"], "", Builder())


def test_a_folder_made_read_only_still_serves_its_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this may write anywhere, so that what would write is refused as well."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    build = Builder()
    path = get_or_build("kind", ["a"], "", build)
    forget()
    for place in (path, path.parent, folder):
        place.chmod(0o555)
    monkeypatch.setattr(_cache.filelock, "FileLock", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    try:
        assert get_or_build("kind", ["a"], "", build) == path
        assert build.count == 1
        with pytest.raises(CacheError, match=r"Permission denied.*set CUPYGEMM_CACHE_DIR"):
            get_or_build("kind", ["b"], "", build)
    finally:
        path.parent.chmod(0o755)
        folder.chmod(0o755)


def out_of_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_with_the_remedy_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CacheError, match=r"No space left .*set CUPYGEMM_CACHE_DIR"):
        get_or_build("kind", ["a"], "", out_of_space)
    with monkeypatch.context() as patch:
        patch.setattr(_cache.os, "replace", out_of_space)
        with pytest.raises(CacheError, match=r"No space left .*set CUPYGEMM_CACHE_DIR"):
            get_or_build("kind", ["a"], "", Builder())
    left = [path for path in (folder / "kind").rglob("*") if path.suffix != ".lock"]
    assert [path for path in left if path.is_file()] == []
    assert get_or_build("kind", ["a"], "", Builder()).read_text() == "built"


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
