"""What is read of a store is compared with its manifest: lazily, wholly, or not."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness.workloads import FORMATS, OLD, publish

from prep_assets import load
from prep_assets.errors import StoreError
from prep_assets.stores import files as folders
from prep_assets.stores.files import locked
from prep_assets.stores.guards import compared
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.shards import StorageFormat
from prep_assets.stores.table import TOKENS, open_stream
from prep_assets.stores.verification import whole_folder
from prep_assets.stores.version_folders import Published
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.stored import packed_rows

STORAGE: list[StorageFormat] = ["bin", "h5"]
COUNT = 600_000
REMEDY = r"Build it again:\n  prep-assets build asset --partition part --force"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "asset", "part")


def tokens(place: Place, storage: StorageFormat, shard: int = COUNT) -> Published:
    """A stream of 2.4 MB, in three blocks and a bit."""

    def write(payload: Path, quarantine: Path) -> Draft:
        with TableWriter(payload, "train", TOKENS, {"tokens": "int32"}, storage=storage, max_tokens_per_shard=shard) as out:
            out.append({"tokens": np.arange(COUNT, dtype=np.int32)}, np.full(6, COUNT // 6), [0] * 6, range(6))
        return Draft({"read": 1, "kept": 1}, {}, ())

    published = place.propose(OLD, write, config_key=OLD, recipe={})
    place.accept(published, {})
    return published


def flip(published: Published, byte: int) -> None:
    """Change one byte of the largest file."""
    name = max(published.manifest.files, key=lambda name: int(published.manifest.files[name]["bytes"]))
    with (published.directory / name).open("r+b") as file:
        file.seek(byte)
        old = file.read(1)
        file.seek(byte)
        file.write(bytes([old[0] ^ 1]))


@pytest.mark.parametrize("storage", STORAGE)
def test_a_flipped_byte_is_seen_when_its_block_is_read_and_not_before(place: Place, storage: StorageFormat) -> None:
    flip(tokens(place, storage), 2_000_000)
    store = load(place.directory)
    assert store.fetch(0, 1000, "sequence")[-1] == 999
    with pytest.raises(StoreError, match=r"bytes 1,048,576 to 2,097,152 are not what the manifest says.*" + REMEDY):
        store.fetch(499_000, 499_900, "sequence")
    with pytest.raises(StoreError, match="are not what the manifest says"):
        pickle.loads(pickle.dumps(store)).fetch(499_000, 499_900, "sequence")


@pytest.mark.parametrize("storage", STORAGE)
def test_full_sees_it_at_once_and_off_never(place: Place, storage: StorageFormat) -> None:
    flip(tokens(place, storage), 2_000_000)
    with pytest.raises(StoreError, match=r"(?s)content altered in bytes 1,048,576 to 2,097,152.*" + REMEDY):
        load(place.directory, verify="full")
    assert len(load(place.directory, verify="off").fetch(0, COUNT, "sequence")) == COUNT


@pytest.mark.parametrize(
    ("storage", "shard", "byte", "damaged"), [("bin", COUNT, 2_000_000, 499), ("h5", COUNT, 2_000_000, 499), ("bin", 400_000, 9, 0)]
)
def test_windows_are_compared_in_all_arrays_at_once(place: Place, storage: StorageFormat, shard: int, byte: int, damaged: int) -> None:
    """And again in a process that a data set is sent to."""
    from prep_assets.training import DatasetFactory

    flip(tokens(place, storage, shard), byte)
    windows = DatasetFactory.load("seq", place.directory, 1000)
    sound = 598 - damaged
    for each in (windows, pickle.loads(pickle.dumps(windows))):
        for _ in range(2):
            assert each[sound]["input_ids"].tolist() == list(range(sound * 1000, (sound + 1) * 1000))
            with pytest.raises(StoreError, match=r"bytes [\d,]+ to [\d,]+ are not what the manifest says"):
                each[damaged]
    assert len(DatasetFactory.load("seq", place.directory, 1000, verify="off")[damaged]["input_ids"]) == 1000


@pytest.mark.parametrize("shard", [COUNT, COUNT // 2])
def test_what_is_read_without_guards_is_compared_before(place: Place, shard: int) -> None:
    published = tokens(place, "bin", shard)
    plain = compared(open_stream(published.directory, "train").columns["tokens"].values)
    assert all(type(part) is np.ndarray for part in getattr(plain, "parts", [plain]))
    assert np.array_equal(plain[0:COUNT], np.arange(COUNT))
    flip(published, 700_000)
    with pytest.raises(StoreError, match="are not what the manifest says"):
        compared(open_stream(published.directory, "train").columns["tokens"].values)


def test_a_window_is_compared_between_stretches_that_were(place: Place) -> None:
    from prep_assets.extensions.training.items import GuardedArrays

    flip(tokens(place, "bin"), 2_000_000)
    compared = GuardedArrays([load(place.directory).array("sequence")])
    compared.check(0, 10)
    compared.check(COUNT - 10, COUNT)
    with pytest.raises(StoreError, match="are not what the manifest says"):
        compared.check(5, COUNT - 5)


def test_another_word_is_refused(place: Place) -> None:
    tokens(place, "bin")
    with pytest.raises(StoreError.__base__, match="verify 'lazyy' is not one of lazy, full, off; did you mean 'lazy'"):
        load(place.directory, verify="lazyy")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("lines", lambda at: list(open_stream(at, "rows"))),
        ("packed h5", lambda at: packed_rows(open_stream(at, "table"))[:]),
        ("packed bin", lambda at: packed_rows(open_stream(at, "table"))[:]),
    ],
)
def test_every_byte_of_every_file_is_guarded(place: Place, name: str, read: Callable[[Path], object]) -> None:
    """Also those of indexes, of metadata, and of HDF5's own."""
    published = publish(place, OLD, FORMATS[name])
    read(published.directory)
    unread = ("position_ids.bin", "loss_mask.bin", "images/")
    for file in sorted(published.manifest.files):
        path = published.directory / file
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1} if whole and not any(each in file for each in unread) else ():
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreError):
                read(published.directory)
            path.write_bytes(whole)


def test_a_store_of_the_first_format_is_read(place: Place) -> None:
    """Its files have no hashes of blocks."""
    published = tokens(place, "bin")
    fields = {name: {key: entry[key] for key in ("bytes", "sha256")} for name, entry in published.manifest.files.items()}
    manifest = published.manifest
    Manifest(manifest.asset, manifest.partition, OLD, OLD, {}, manifest.counts, {}, fields, format=1).write(published.directory)
    assert len(load(place.directory).fetch(0, COUNT, "sequence")) == COUNT


def test_a_version_that_goes_while_it_is_opened_is_looked_for_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune gave readers a FileNotFoundError."""
    import shutil

    from prep_assets.extensions.training import opening

    tokens(place, "bin")
    real, left = opening.payload_folders, [2]

    def found(path: Path) -> list[Path]:
        folders = real(path)
        if left[0]:
            left[0] -= 1
            gone = folders[0].with_name("gone")
            shutil.copytree(folders[0], gone)
            shutil.rmtree(gone)
            return [gone]
        return folders

    monkeypatch.setattr(opening, "payload_folders", found)
    assert len(load(place.directory)) == COUNT


# -- Folders that are there whole or not at all -------------------------------------------------------------------------------------------

BUSY = StoreError("busy")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def nothing() -> None: ...


def test_folders_above_are_made_and_nothing_else_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a" / "b", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
        assert names(tmp_path / "a") == [".b.writing", ".b.writing/x"]
    assert names(tmp_path) == ["a", "a/b", "a/b/x"]


def test_two_never_write_at_once_and_the_first_is_whole(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
        with pytest.raises(StoreError, match="busy"), whole_folder(tmp_path / "a", nothing, busy=BUSY):
            raise AssertionError("both write")
    assert names(tmp_path) == ["a", "a/x"]


def test_what_is_there_gives_way_only_where_it_may_and_only_to_a_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_text("")
    with pytest.raises(StoreError, match="not empty"), whole_folder(tmp_path / "a", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
    with pytest.raises(KeyError), whole_folder(tmp_path / "a", nothing, busy=BUSY, replace=True) as work:
        (work / "x").write_text("")
        raise KeyError
    assert names(tmp_path) == ["a", "a/old"]
    with whole_folder(tmp_path / "a", nothing, busy=BUSY, replace=True) as work:
        (work / "x").write_text("")
    assert names(tmp_path) == ["a", "a/x"]


def test_the_check_is_asked_before_and_after(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    with whole_folder(tmp_path / "a", lambda: seen.append(names(tmp_path)), busy=BUSY) as work:
        (work / "x").write_text("")
    assert seen == [[".a.writing"], [".a.writing", ".a.writing/x"]]


def test_a_place_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write to .*file"), whole_folder(tmp_path / "file" / "a", nothing, busy=BUSY):
        raise AssertionError("a folder below a file")


# -- The lock that lets in one process at a time, and what whoever waits for it says ------------------------------------------------------


def test_whoever_waits_for_long_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(folders, "SILENT", 0.0)
    said, entered = threading.Event(), list[str]()
    monkeypatch.setattr(folders._LOG, "warning", lambda *words: (logging.getLogger("test").warning(*words), said.set()))

    def second() -> None:
        with locked(tmp_path / "versions" / ".lock"):
            entered.append("second")

    with locked(tmp_path / "versions" / ".lock"):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert said.wait(30)
        assert entered == []
    waiting.join(30)
    assert entered == ["second"]
    assert caplog.messages == [f"{tmp_path / 'versions'}: another process is at work there; waiting until it ends"]
