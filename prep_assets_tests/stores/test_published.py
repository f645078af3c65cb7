"""Write, audit, publish: what can be read after every way in which a build may end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from prep_assets.errors import CheckFailed, StoreError
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.version_folders import Published

OLD, NEW = "a" * 64, "b" * 64
Publish = Callable[..., Published]
Contents = Callable[[Path], dict[str, bytes]]


def test_a_published_store_is_what_was_written(place: Place, publish: Publish, contents: Contents) -> None:
    published = publish(files={"sub/x.bin": b"\x00\x01", "y.txt": b"y"})
    found = contents(place.directory / "current")
    assert {name: found[name] for name in found if name != "manifest.json"} == {"sub/x.bin": b"\x00\x01", "y.txt": b"y"}
    assert published.manifest.files == {
        "sub/x.bin": {"bytes": 2, "sha256": sha256(b"\x00\x01").hexdigest(), "blocks": xxh3_64_hexdigest(b"\x00\x01")},
        "y.txt": {"bytes": 1, "sha256": sha256(b"y").hexdigest(), "blocks": xxh3_64_hexdigest(b"y")},
    }
    assert published.directory == place.directory / "versions" / f"{OLD[:20]}-{published.manifest.content_hash[:12]}"
    assert not published.reused
    published.verify()


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


def test_the_same_key_is_reused_without_rewriting(publish: Publish) -> None:
    def identity(folder: Path) -> dict[str, tuple[int, int]]:
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}

    first = publish(refused=b"{}\n")
    before = identity(first.directory)
    again = publish(files={"x": b"never written"})
    assert again.reused
    assert identity(again.directory) == before
    assert again.manifest == first.manifest


def test_building_again_what_is_right_changes_nothing(place: Place, publish: Publish, contents: Contents) -> None:
    publish(files={"x": b"123"}, refused=b"{}\n")
    before = contents(place.directory)
    again = publish(files={"x": b"123"}, refused=b"{}\n", again=True, accept=False)
    assert not again.reused
    assert place.candidate() is None
    assert contents(place.directory) == before


def test_what_lies_beside_a_version_that_is_gone_is_removed(place: Place, publish: Publish) -> None:
    """A kill in the middle of a build or a removal left quarantine files for ever."""
    versions = publish().directory.parent
    for name in (f"{NEW[:20]}.quarantine.jsonl", f"{NEW[:20]}.checks.json"):
        (versions / name).write_bytes(b"{}\n")
    publish()
    assert not [path for path in versions.iterdir() if path.name.startswith(NEW[:20])]


def test_a_failing_audit_never_publishes(place: Place, publish: Publish, contents: Contents) -> None:
    old = publish(OLD, {"x": b"old"})
    before = contents(place.directory)

    def audit(payload: Path) -> None:
        assert (payload / "x").read_bytes() == b"new"
        raise CheckFailed("a row without a trained token")

    with pytest.raises(CheckFailed, match="a row without"):
        publish(NEW, {"x": b"new"}, refused=b"{}\n", audit=audit)
    assert contents(place.directory) == before
    assert place.current() == Published(old.directory.resolve(), old.manifest)


@pytest.mark.parametrize(("failure", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, StoreError)])
def test_an_interrupted_write_leaves_nothing(
    place: Place, publish: Publish, contents: Contents, failure: type[BaseException], told: type[BaseException]
) -> None:
    publish(OLD, {"x": b"old"})
    before = contents(place.directory)

    def write(payload: Path, quarantine: Path) -> Draft:
        (payload / "x").write_bytes(b"half")
        raise failure

    with pytest.raises(told):
        place.propose(NEW, write, config_key=NEW, recipe={}, audit=lambda payload: None)
    assert contents(place.directory) == before


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


@pytest.mark.parametrize("partition", ["", "gsm8k"])
def test_a_partition_is_a_folder_of_its_own(tmp_path: Path, publish: Publish, partition: str) -> None:
    where = Place(tmp_path, "sft_packed", partition)
    publish(where=where)
    assert where.directory == (tmp_path / "sft_packed" / partition if partition else tmp_path / "sft_packed")
    assert open_published(tmp_path, "sft_packed", partition).manifest.partition == partition
    assert where.label == ("sft_packed[gsm8k]" if partition else "sft_packed")
