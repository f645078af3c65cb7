"""Write, verify, publish: what can be read after every way in which a build may end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from prep_assets.errors import StoreError
from prep_assets.stores import h5
from prep_assets.stores import verification as written
from prep_assets.stores.h5 import FixedH5, GrowingH5
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.verification import BLOCK, WrittenFile, prove, recording, sums_of, write_text
from prep_assets.stores.version_folders import Published
from prep_assets_tests.effort import examples

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
        place.propose(NEW, write, config_key=NEW, recipe={})
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
@pytest.mark.parametrize(("failure", "told"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(), StoreError)])
def test_a_build_that_fails_leaves_what_was_there(
    place: Place, contents: Contents, publish: Publish, first: bool, failure: BaseException, told: type[BaseException]
) -> None:
    if not first:
        publish(OLD, {"x": b"old"})
    before = contents(place.directory / "versions")

    def write(payload: Path, quarantine: Path) -> Draft:
        (payload / "x").write_bytes(b"half")
        quarantine.write_bytes(b"{}\n")
        raise failure

    with pytest.raises(told):
        place.propose(NEW, write, config_key=NEW, recipe={})
    assert contents(place.directory / "versions") == {".lock": b"", **before}
    if first:
        with pytest.raises(StoreError, match=r"(?s)sft_tokens\[gsm8k\]: no store in .*Build it with:\n  make it"):
            open_published(place.root, "sft_tokens", "gsm8k", remedy="make it")
    else:
        assert (open_published(place.root, "sft_tokens", "gsm8k").directory / "x").read_bytes() == b"old"


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


# -- What is written is noted, and what the disk gives back is compared with it -----------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 60), st.binary(max_size=40)),
        st.tuples(st.just("truncate"), st.integers(0, 80), st.just(b"")),
    ),
    max_size=12,
)


@settings(max_examples=examples(40))
@given(STEPS, st.sampled_from([8, BLOCK]))
def test_any_order_of_writes_gives_the_bytes_of_a_plain_file_and_is_proven(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, block: int
) -> None:
    folder = tmp_path_factory.mktemp("w")
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(written, "BLOCK", block)
        changed.setattr(written, "_ZEROS", xxh3_64_intdigest(bytes(block)))
        with recording(folder) as expected_files, WrittenFile(folder / "ours") as ours, (folder.parent / "plain").open("w+b") as plain:
            for kind, at, data in steps:
                for file in (ours, plain):
                    if kind == "write":
                        file.seek(at)
                        file.write(data)
                    else:
                        file.truncate(at)
        assert (folder / "ours").read_bytes() == (folder.parent / "plain").read_bytes()
        assert prove(folder, expected_files)["ours"].sha256 == sha256((folder / "ours").read_bytes()).hexdigest()


def test_what_is_written_from_begin_to_end_is_hashed_meanwhile(tmp_path: Path) -> None:
    with recording(tmp_path) as expected_files:
        with WrittenFile(tmp_path / "x") as file:
            for _ in range(5):
                file.write(bytes(BLOCK - 1))
        assert expected_files[tmp_path / "x"].sha256 == sha256(bytes(5 * BLOCK - 5)).hexdigest()


def test_a_long_file_is_on_its_way_to_the_disk_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, *_: forgotten.append(os.fstat(handle).st_size))
    with WrittenFile(tmp_path / "x") as file:
        for _ in range(5):
            file.write(bytes(BLOCK))
    assert forgotten == [2 * BLOCK, 4 * BLOCK]


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 3 * BLOCK + 4])
def test_a_byte_that_the_disk_changes_stops_the_build(tmp_path: Path, at: int) -> None:
    with recording(tmp_path) as expected_files:
        with WrittenFile(tmp_path / "x") as file:
            file.write(np.random.default_rng(0).bytes(3 * BLOCK + 5))
        data = bytearray((tmp_path / "x").read_bytes())
        data[at] ^= 1
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(StoreError, match=r"/x: bytes [\d,]+ to [\d,]+ on disk are not what was written"):
            prove(tmp_path, expected_files)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"ab"), lambda path: path.write_bytes(b"abcd")])
def test_a_file_that_is_gone_or_has_another_size_stops_the_build(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    with recording(tmp_path) as expected_files:
        write_text(tmp_path / "x", "abc")
        harm(tmp_path / "x")
        with pytest.raises(StoreError, match=r"/x(:| was written and is not there)"):
            prove(tmp_path, expected_files)


def test_what_nobody_wrote_must_read_as_zeros(tmp_path: Path) -> None:
    with recording(tmp_path) as expected_files:
        with WrittenFile(tmp_path / "x") as file:
            file.seek(5000)
            file.write(b"end")
        with (tmp_path / "x").open("r+b") as other:
            other.write(b"x")
        with pytest.raises(StoreError, match=r"bytes 0 to 5,003"):
            prove(tmp_path, expected_files)


@pytest.mark.parametrize("rows", [0, 1, 7, 300])
def test_hdf5_files_are_those_of_the_library(tmp_path: Path, rows: int) -> None:
    tokens = np.arange(rows * 33, dtype=np.int32).reshape(rows, 33)
    with FixedH5(tmp_path / "ours", {"tokens": (tokens.shape, "int32"), "mask": (tokens.shape, "int8")}, libver="v108") as ours:
        ours.write("tokens", 0, tokens)
        ours.write("mask", 0, tokens)
    with h5py.File(tmp_path / "plain", "w", libver="v108") as plain:
        for name, dtype in (("tokens", "int32"), ("mask", "int8")):
            plain.create_dataset(name, tokens.shape, dtype, track_times=False)
        for name in ("tokens", "mask"):
            plain[name][:] = tokens.astype(plain[name].dtype)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "plain").read_bytes()


def test_growing_hdf5_files_are_those_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h5, "H5_CHUNK", 1024)
    monkeypatch.setattr(h5, "H5_PIECE", 3000)
    values = np.arange(5000, dtype=np.int32)
    ours = GrowingH5(tmp_path / "ours", {"tokens": "int32"})
    with h5py.File(tmp_path / "plain", "w", libver="v108") as plain:
        dataset = plain.create_dataset("tokens", shape=(0,), maxshape=(None,), dtype="int32", chunks=(1024,), track_times=False)
        for part in np.split(values, [10]):
            ours.append({"tokens": part}, np.array([len(part)]))
        for part in np.split(values, [3000]):
            dataset.resize(len(dataset) + len(part), axis=0)
            dataset[len(dataset) - len(part) :] = part
    ours.close()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("number", range(12))
def test_no_error_of_the_disk_is_lost_in_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """HDF5 swallowed the error of a chunk that it wrote late, the file had zeros, and the process crashed at its end."""
    calls, real = [0], os.pwrite

    def failing(handle: int, data: Any, at: int) -> int:
        calls[0] += Path(f"/proc/self/fd/{handle}").readlink().name == "x.h5"  # columns wait in other files
        if calls[0] == number + 1:
            raise OSError(errno.EIO, "Input/output error")
        return real(handle, data, at)

    monkeypatch.setattr(written.os, "pwrite", failing)
    with pytest.raises(OSError, match="Input/output error"):
        file = GrowingH5(tmp_path / "x.h5", {"tokens": "int32"})
        try:
            for _ in range(10):
                file.append({"tokens": np.arange(1_000_000, dtype=np.int32)}, np.array([1_000_000]))
        finally:
            file.close()


def test_a_disk_that_lies_is_found_out_in_hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it has written, and has not."""
    calls, real = [0], os.pwrite

    def lying(handle: int, data: Any, at: int) -> int:
        calls[0] += len(data) >= 4096
        return len(data) if calls[0] == 1 and len(data) >= 4096 else real(handle, data, at)

    monkeypatch.setattr(written.os, "pwrite", lying)
    with pytest.raises((OSError, StoreError), match=r"not what was written|were written"), recording(tmp_path) as expected_files:
        file = GrowingH5(tmp_path / "x.h5", {"tokens": "int32"})
        try:
            file.append({"tokens": np.arange(15_000, dtype=np.int32)}, np.array([15_000]))
        finally:
            file.close()
        prove(tmp_path, expected_files)


def test_sums_have_a_hash_for_each_block(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(2 * BLOCK + 1))
    sums = sums_of(tmp_path / "x")
    assert (sums.bytes, len(sums.blocks)) == (2 * BLOCK + 1, 3 * 16)
    assert sums.blocks[:16] == sums.blocks[16:32] != sums.blocks[32:]
