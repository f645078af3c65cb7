"""Write, audit, publish: what can be read after every way in which a build may end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import CheckFailed, StoreError
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.version_folders import Published

OLD, NEW = "a" * 64, "b" * 64
Publish = Callable[..., Published]
Contents = Callable[[Path], dict[str, bytes]]


def test_nothing_but_the_store_is_left(place: Place, publish: Publish) -> None:
    published = publish(refused=b"{}\n")
    entries = {path.relative_to(place.directory).as_posix() for path in place.directory.iterdir()}
    entries |= {path.relative_to(place.directory).as_posix() for path in (place.directory / "versions").iterdir()}
    beside = {f"versions/{published.directory.name}{suffix}" for suffix in ("", ".quarantine.jsonl", ".checks.json")}
    assert entries == {"current", "versions", "versions/.lock", *beside}


def test_shards_are_deleted_though_somebody_still_writes_one(place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that was begun a second time on another node, where it is ended a little later than the store is there."""
    shard = place.directory / "versions" / f".shards-{OLD[:20]}" / "work" / ".00003-second"
    shard.mkdir(parents=True)
    real = os.rmdir

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        with suppress(FileNotFoundError):
            (shard.parent / "late").write_bytes(b"")
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    published = publish()
    assert [path.name for path in (place.directory / "versions").iterdir() if path.is_dir()] == [published.directory.name]


def test_shards_of_a_store_that_is_there_are_deleted(place: Place, publish: Publish) -> None:
    """A build was killed after its store had its name and before its shards were deleted."""
    publish(OLD)
    (place.directory / "versions" / f".shards-{OLD[:20]}" / "work").mkdir(parents=True)
    assert publish(OLD).reused
    assert place.leftovers() == ()


def test_a_build_that_cannot_delete_its_shards_says_what_stopped_it_and_names_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = place.directory / "versions" / f".shards-{NEW[:20]}"

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(shards))

    def write(payload: Path, quarantine: Path) -> Draft:
        shards.mkdir()
        monkeypatch.setattr(Path, "rename", fails)
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(payload / "x"))

    with pytest.raises(StoreError, match=r"payload/x: input/output error.* could not be deleted: .*/\.shards-bbb"):
        place.propose(NEW, write, config_key=NEW, recipe={}, audit=lambda _: None)
    assert place.leftovers() == (shards.name,)


def test_current_is_a_relative_link_so_that_the_root_can_be_moved(place: Place, publish: Publish, contents: Contents) -> None:
    publish()
    before = contents(place.directory / "current")
    moved = place.root.rename(place.root.with_name("elsewhere"))
    assert contents(moved / "sft_tokens" / "gsm8k" / "current") == before


def test_what_lies_beside_a_version_that_is_gone_is_removed(place: Place, publish: Publish) -> None:
    """A kill in the middle of a build or a removal left quarantine files for ever."""
    versions = publish().directory.parent
    for name in (f"{NEW[:20]}.quarantine.jsonl", f"{NEW[:20]}.checks.json"):
        (versions / name).write_bytes(b"{}\n")
    publish()
    assert not [path for path in versions.iterdir() if path.name.startswith(NEW[:20])]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("moment", "failure", "told"),
    [("write", KeyboardInterrupt(), KeyboardInterrupt), ("write", OSError(), StoreError), ("audit", CheckFailed("no"), CheckFailed)],
)
def test_a_build_that_fails_leaves_what_was_there(
    place: Place, contents: Contents, publish: Publish, first: bool, moment: str, failure: BaseException, told: type[BaseException]
) -> None:
    if not first:
        publish(OLD, {"x": b"old"})
    before = contents(place.directory / "versions")

    def write(payload: Path, quarantine: Path) -> Draft:
        (payload / "x").write_bytes(b"half")
        quarantine.write_bytes(b"{}\n")
        if moment == "write":
            raise failure
        return Draft({}, {}, ())

    def audit(payload: Path) -> None:
        assert (payload / "x").read_bytes() == b"half"
        raise failure

    with pytest.raises(told):
        place.propose(NEW, write, config_key=NEW, recipe={}, audit=audit)
    assert contents(place.directory / "versions") == {".lock": b"", **before}
    if first:
        with pytest.raises(StoreError, match=r"(?s)sft_tokens\[gsm8k\]: no store in .*Build it with:\n  make it"):
            open_published(place.root, "sft_tokens", "gsm8k", remedy="make it")
    else:
        assert (open_published(place.root, "sft_tokens", "gsm8k").directory / "x").read_bytes() == b"old"


def test_two_builds_of_one_input_have_equal_manifests(tmp_path: Path, publish: Publish, contents: Contents) -> None:
    """Also elsewhere, and with files written in another order."""
    files = {"b/2": b"two", "a/1": b"one", "c": b""}
    first = publish(files=files, where=Place(tmp_path / "one", "rl_tokens"))
    second = publish(files=dict(reversed(files.items())), where=Place(tmp_path / "two" / "deeper", "rl_tokens"))
    assert contents(first.directory) == contents(second.directory)
    assert first.manifest.content_hash == second.manifest.content_hash


def test_without_links_a_pointer_file_does(place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: Any, **options: Any) -> None:
        raise OSError(errno.EPERM, "no symbolic links here")

    linked = publish(OLD, {"x": b"old"})
    monkeypatch.setattr(os, "symlink", no_links)
    published = publish(NEW, {"x": b"new"})
    assert (place.directory / "current").read_text() == f"versions/{published.directory.name}\n"
    assert not (place.directory / "current").is_symlink()
    assert place.current() == Published(published.directory, published.manifest)
    monkeypatch.undo()
    assert publish(OLD).reused
    assert place.current() == Published(linked.directory.resolve(), linked.manifest)
