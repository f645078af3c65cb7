"""Write, audit, publish: what can be read after every way in which a build may end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from prep_assets.errors import CheckFailed, StoreError
from prep_assets.stores.checked import Result
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.published import Draft, Place, Published, open_published

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


def test_current_is_a_relative_link_so_that_the_root_can_be_moved(place: Place, publish: Publish, contents: Contents) -> None:
    publish()
    before = contents(place.directory / "current")
    moved = place.root.rename(place.root.with_name("elsewhere"))
    assert contents(moved / "sft_tokens" / "gsm8k" / "current") == before


def test_a_new_key_moves_current_and_leaves_the_old_version(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"})
    assert (place.directory / "current" / "x").read_bytes() == b"new"
    assert (old.directory / "x").read_bytes() == b"old"
    old.verify()
    assert place.current() == Published(new.directory.resolve(), new.manifest)


def test_the_same_key_is_reused_without_rewriting(publish: Publish) -> None:
    def identity(folder: Path) -> dict[str, tuple[int, int]]:
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}

    first = publish(refused=b"{}\n")
    before = identity(first.directory)
    again = publish(files={"x": b"never written"})
    assert again.reused
    assert identity(again.directory) == before
    assert again.manifest == first.manifest


def test_going_back_to_an_earlier_key_points_to_it_again(place: Place, publish: Publish) -> None:
    publish(OLD, {"x": b"old"})
    publish(NEW, {"x": b"new"})
    assert publish(OLD).reused
    assert (place.directory / "current" / "x").read_bytes() == b"old"


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "add", "manifest", "no manifest", "quarantine"])
def test_a_damaged_payload_is_rebuilt(publish: Publish, contents: Contents, damage: str) -> None:
    published = publish(files={"x.bin": b"12345"}, refused=b"{}\n")
    sound, path = contents(published.directory), published.directory / "x.bin"
    match damage:
        case "flip":
            path.write_bytes(b"12344")
        case "truncate":
            path.write_bytes(b"1234")
        case "remove":
            path.unlink()
        case "add":
            (published.directory / "foreign").write_bytes(b"")
        case "manifest":
            (published.directory / "manifest.json").write_text('{"files": []}')
        case "no manifest":
            (published.directory / "manifest.json").unlink()
        case "quarantine":
            assert published.quarantine is not None
            published.quarantine.write_bytes(b"{ }\n")
    rebuilt = publish(files={"x.bin": b"12345"}, refused=b"{}\n")
    assert not rebuilt.reused
    assert contents(rebuilt.directory) == sound
    rebuilt.verify()


def test_a_damaged_current_store_is_replaced_only_when_its_successor_is_accepted(place: Place, publish: Publish) -> None:
    """The repair used to go live before its checks, and a kill between two renames left `current` pointing nowhere."""
    damaged = publish(files={"x.bin": b"12345"})
    (damaged.directory / "x.bin").write_bytes(b"1234")
    rebuilt = publish(files={"x.bin": b"12345"}, accept=False)
    assert (place.directory / "current" / "x.bin").read_bytes() == b"1234"
    assert place.candidate() == Published(rebuilt.directory.resolve(), rebuilt.manifest)
    place.accept(rebuilt, {})
    assert (place.directory / "current" / "x.bin").read_bytes() == b"12345"
    assert publish(files={"x.bin": b"never"}).directory.resolve() == rebuilt.directory.resolve()
    assert place.remove_unused() == (damaged.version,)
    assert publish(files={"x.bin": b"never"}).reused


def test_a_store_that_is_sound_and_wrong_can_be_built_again(place: Place, publish: Publish) -> None:
    """A failed write that published zeros was reused for ever."""
    publish(files={"x": b"000"})
    assert publish(files={"x": b"123"}).reused
    again = publish(files={"x": b"123"}, again=True)
    assert not again.reused
    assert (place.directory / "current" / "x").read_bytes() == b"123"
    assert publish(files={"x": b"123"}).directory.resolve() == again.directory.resolve()


def test_building_again_what_is_right_changes_nothing(place: Place, publish: Publish, contents: Contents) -> None:
    publish(files={"x": b"123"}, refused=b"{}\n")
    before = contents(place.directory)
    again = publish(files={"x": b"123"}, refused=b"{}\n", again=True, accept=False)
    assert not again.reused
    assert place.candidate() is None
    assert contents(place.directory) == before


def test_a_draft_moves_nothing_but_the_draft(place: Place, publish: Publish) -> None:
    current, candidate = publish(OLD, {"x": b"old"}), publish("c" * 64, accept=False)
    draft = publish(NEW, {"x": b"new"}, draft=True, accept=False)
    assert place.draft() == Published(draft.directory.resolve(), draft.manifest)
    assert place.current() == Published(current.directory.resolve(), current.manifest)
    assert place.candidate() == Published(candidate.directory.resolve(), candidate.manifest)
    assert place.unused() == ()


def test_a_draft_does_not_say_of_a_store_that_the_configuration_asks_for_it(publish: Publish) -> None:
    """The options of a run may give the very store that an older configuration asked for; it stays out of date."""
    old = publish(OLD, config_key=OLD)
    publish(OLD, config_key=NEW, draft=True, accept=False)
    assert Manifest.read(old.directory).config_key == OLD


def test_a_store_that_fails_a_check_is_not_accepted(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"}, accept=False)
    with pytest.raises(StoreError, match=r"is not published: it fails mask_alignment"):
        place.accept(new, {"file_hashes": Result(True, ""), "mask_alignment": Result(False, "3 rows")})
    assert place.current() == Published(old.directory.resolve(), old.manifest)


def test_what_checks_said_is_remembered_of_the_content_that_they_looked_at(place: Place, publish: Publish) -> None:
    published = publish(accept=False)
    assert published.results is None
    place.record(published, {"file_hashes": Result(True, "3 files")})
    place.record(published, {"row_integrity": Result(False, "row 7")})
    assert published.results == {"file_hashes": Result(True, "3 files"), "row_integrity": Result(False, "row 7")}
    assert publish(files={"x": b"other"}, again=True, accept=False).results is None


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


def test_a_candidate_is_not_current_before_it_is_accepted(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"}, accept=False)
    assert place.current() == Published(old.directory.resolve(), old.manifest)
    assert place.candidate() == Published(new.directory.resolve(), new.manifest)
    again = publish(NEW, {"x": b"never written"}, accept=False)
    assert again == Published(new.directory, new.manifest, reused=True)
    place.accept(again, {})
    assert place.current() == Published(new.directory.resolve(), new.manifest)
    assert place.candidate() is None


def test_a_candidate_is_forgotten_when_what_is_current_is_asked_for_again(place: Place, publish: Publish) -> None:
    old = publish(OLD)
    publish(NEW, accept=False)
    assert publish(OLD, accept=False).reused
    assert place.candidate() is None
    assert place.current() == Published(old.directory.resolve(), old.manifest)


def test_accepting_one_store_leaves_the_candidate_of_another_build(place: Place, publish: Publish) -> None:
    first = publish(OLD, accept=False)
    second = publish(NEW, accept=False)
    place.accept(first, {})
    assert place.current() == Published(first.directory.resolve(), first.manifest)
    assert place.candidate() == Published(second.directory.resolve(), second.manifest)


def test_a_failing_first_build_leaves_no_store(place: Place, publish: Publish) -> None:
    def audit(payload: Path) -> None:
        raise CheckFailed("no")

    with pytest.raises(CheckFailed):
        publish(audit=audit)
    assert place.current() is None
    with pytest.raises(StoreError, match=r"(?s)sft_tokens\[gsm8k\]: no store in .*Build it with:\n  make it"):
        open_published(place.root, "sft_tokens", "gsm8k", remedy="make it")


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


def test_content_hash_is_of_the_payload_alone(tmp_path: Path, publish: Publish) -> None:
    one = publish(OLD, {"x": b"1"}).manifest.content_hash
    assert publish(NEW, {"x": b"1"}).manifest.content_hash == one
    assert publish("c" * 64, {"x": b"2"}).manifest.content_hash != one
    assert publish("d" * 64, {"y": b"1"}).manifest.content_hash != one


def test_a_sound_store_that_other_options_ask_for_keeps_its_payload(publish: Publish) -> None:
    """The build key decides the bytes; which configuration asks for them is only noted."""
    first = publish(OLD, config_key=OLD)
    payload = first.directory / "notes.txt"
    inode = payload.stat().st_ino

    def never(payload: Path) -> None:
        raise AssertionError("the payload is written again")

    again = publish(OLD, config_key=NEW, audit=never)
    assert again.reused
    assert again.manifest == Manifest.read(first.directory)
    assert (again.manifest.config_key, first.manifest.config_key) == (NEW, OLD)
    assert payload.stat().st_ino == inode
    again.verify()


def test_build_keys_with_one_prefix_are_not_confused(publish: Publish) -> None:
    """The folder's name is the first 20 characters of the key; the manifest has all of them."""
    publish("a" * 20 + "1" * 44, {"x": b"1"})
    second = publish("a" * 20 + "2" * 44, {"x": b"2"})
    assert not second.reused
    assert (second.directory / "x").read_bytes() == b"2"


def test_the_quarantine_is_beside_the_store(publish: Publish) -> None:
    published = publish(refused=b'{"id": "a"}\n')
    assert published.quarantine == published.directory.parent / f"{published.directory.name}.quarantine.jsonl"
    assert published.quarantine is not None
    assert published.quarantine.read_bytes() == b'{"id": "a"}\n'
    assert published.manifest.quarantine == sha256(b'{"id": "a"}\n').hexdigest()
    assert "quarantine" not in " ".join(published.manifest.files)
    published.quarantine.unlink()
    with pytest.raises(StoreError, match=r"quarantine.jsonl: missing or altered"):
        published.verify()


def test_nothing_refused_is_no_quarantine(publish: Publish) -> None:
    published = publish()
    assert (published.quarantine, published.manifest.quarantine) == (None, "")


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


def test_a_store_that_was_pruned_is_not_accepted(place: Place, publish: Publish) -> None:
    old = publish("c" * 64)
    first = publish(OLD, accept=False)
    publish(NEW, accept=False)
    place.remove_unused()
    with pytest.raises(StoreError, match=r"sft_tokens\[gsm8k\]: .*aaaa-\w+ cannot be published.*Materialize the asset again"):
        place.accept(first, {})
    found = place.current()
    assert found is not None
    assert found.directory == old.directory.resolve()
    assert (place.directory / "candidate").resolve().name.startswith(NEW[:20])
