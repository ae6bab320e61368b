"""Output files are complete or not there, and are refused before the work begins."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from compile_support import error_of
from trainkernel.compiler.files import check_destination, make_folder, write_atomically, write_together
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


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300, "loop"])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for function in (check_destination, make_folder, lambda path: write_atomically(path, b"")):
        assert error_of(CompileError, lambda function=function: function(name))  # type: ignore[misc]
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"y")


def test_of_several_files_none_is_changed_unless_all_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    for other in (tmp_path / "no" / "b", Path("/dev/full")):
        error = error_of(CompileError, lambda o=other: write_together({tmp_path / "a": b"new", o: b"x"}))  # type: ignore[misc]
        assert str(other) in str(error) and "written before" not in str(error)
        assert (tmp_path / "a").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_what_was_written_before_a_failure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.replace

    def replace(source: str, target: Path) -> None:
        if target.name == "b":
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr("trainkernel.compiler.files.os.replace", replace)
    error = error_of(CompileError, lambda: write_together({tmp_path / "a": b"1", tmp_path / "b": b"2"}))
    assert f"{tmp_path}/b cannot be written: Input/output error; written before: {tmp_path}/a" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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
