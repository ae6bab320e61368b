"""Output files are complete or not there, and are refused before the work begins."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from compile_support import error_of
from trainkernel.compiler.files import check_destination, make_folder, write_atomically
from trainkernel.errors import CompileError


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"x")
    (tmp_path / "b").write_bytes(b"y")
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == stat.S_IMODE(os.stat(tmp_path / "b").st_mode)


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainkernel.compiler.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_link_is_written_through_and_a_device_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    write_atomically("/dev/null", b"x")
    assert not Path("/dev/null").is_file()


def test_impossible_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "absent" / "x", tmp_path / "file" / "x"):
        assert str(tmp_path) in str(error_of(CompileError, lambda path=path: check_destination(path)))  # type: ignore[misc]
    assert "cannot be created" in str(error_of(CompileError, lambda: make_folder(tmp_path / "file")))
    assert "cannot be written" in str(error_of(CompileError, lambda: write_atomically(tmp_path / "no" / "x", b"")))
    check_destination(tmp_path / "new")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "cannot be written" in str(error_of(CompileError, lambda: check_destination(tmp_path / "x")))
        assert "cannot be written" in str(error_of(CompileError, lambda: make_folder(tmp_path)))
    finally:
        tmp_path.chmod(0o700)


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()
