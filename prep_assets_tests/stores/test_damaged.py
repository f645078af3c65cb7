"""A store in which damage was found: nothing reads it any more, whatever it compares, until another one is published."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest

from prep_assets.errors import StoreError
from prep_assets.stores.bucket import bucket_of, local_root
from prep_assets.stores.guards import Verify
from prep_assets.stores.manifest import Result
from prep_assets.stores.open import open_store
from prep_assets.stores.published import Place, open_published
from prep_assets.stores.version_folders import Published
from prep_assets_tests.harness.workloads import FORMATS, publish

OLD, NEW = "a" * 64, "b" * 64
FOUND = {"file_hashes": Result(False, "scrub: bytes 0 to 9 of train.bin are not what they were")}
SAID = r"is damaged, so nothing reads it: scrub: bytes 0 to 9 of train\.bin are not what they were\. Build"


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    bucket = f"memory://bucket/{sha256(str(tmp_path).encode()).hexdigest()}"
    yield Place(tmp_path / "stores" if request.param == "disk" else local_root(bucket), "t", "part")


def made(place: Place, key: str = OLD, *, accept: bool = True) -> Published:
    return publish(place, key, FORMATS["tokens bin"], accept=accept)


def test_no_way_leads_to_it(place: Place) -> None:
    old = made(place)
    reader = open_store(place.directory, verify="off")
    before, sent, folder = reader.fetch(0, 9, "sequence").tolist(), pickle.dumps(reader), old.directory
    assert place.set_aside(old, FOUND)
    for verify in get_args(Verify):
        for path in (place.directory, place.root / "t"):
            with pytest.raises(StoreError, match=SAID):
                open_store(path, verify=verify)
    with pytest.raises(StoreError, match=SAID + r" it again:\n  build it"):
        open_published(place.root, "t", "part", remedy="build it")
    if bucket_of(place.directory) is None:
        for again in (lambda: open_store(folder, verify="off"), lambda: open_store(folder / "train"), lambda: pickle.loads(sent)):
            with pytest.raises(StoreError, match=SAID + r" it again:\n  prep-assets build t --partition part"):
                again()
        assert not (place.directory / "current").exists()
    assert reader.fetch(0, 9, "sequence").tolist() == before  # what is open stays open


def test_killed_between_the_two_pointers_it_is_not_read_either(tmp_path: Path) -> None:
    place = Place(tmp_path, "t", "part")
    old = made(place)
    place.set_aside(old, FOUND)
    (place.directory / "current").symlink_to(f"versions/{old.version}")
    assert (place.pointers.current, place.pointers.damaged) == ("", old.version)
    with pytest.raises(StoreError, match=SAID):
        open_store(place.directory, verify="off")


def test_killed_before_the_pointer_is_removed_the_new_store_is_read(tmp_path: Path) -> None:
    place = Place(tmp_path, "t", "part")
    old = made(place)
    place.set_aside(old, FOUND)
    new = made(place, NEW)
    (place.directory / "damaged").symlink_to(f"versions/{old.version}")
    assert (place.pointers.current, place.pointers.damaged, place.unused()) == (new.version, "", (old.version,))
    assert open_store(place.directory).fetch(0, 9, "sequence").tolist() == open_store(new.directory).fetch(0, 9, "sequence").tolist()
    made(place, NEW)
    assert not (place.directory / "damaged").is_symlink()
