"""Which version of a published store is read, and that no other ever is."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prep_assets.errors import StoreError
from prep_assets.stores.open import Store, open_store
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.tokens import record_writer
from prep_assets.stores.version_folders import Published


def propose(root: Path, partition: str, key: str, tokens: list[int]) -> Published:
    def write(payload: Path, quarantine: Path) -> Draft:
        with record_writer("bin", payload, "train", {"tokens": "int32"}, max_tokens_per_shard=100) as writer:
            writer.append({"tokens": np.array(tokens, "int32")}, np.array([len(tokens)]), [0], [0])
        return Draft({}, {}, ())

    return Place(root, "t", partition).propose(key * 20, write, config_key=key, recipe={}, audit=lambda payload: None)


def publish(root: Path, partition: str, key: str, tokens: list[int]) -> Published:
    proposed = propose(root, partition, key, tokens)
    Place(root, "t", partition).accept(proposed, {})
    return proposed


def tokens(store: Store) -> list[int]:
    return store.fetch(0, len(store), "sequence").tolist()


def pointer_file(store: Path) -> None:
    version = next(path for path in (store / "versions").iterdir() if path.is_dir())
    (store / "candidate").unlink()
    (store / "candidate").write_text(f"versions/{version.name}\n")


@pytest.mark.parametrize("change", [lambda store: None, lambda store: (store / "candidate").unlink(), pointer_file])
def test_a_store_that_was_never_accepted_is_not_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    rejected = propose(tmp_path, "", "a", [1, 2, 3])
    change(tmp_path / "t")
    for path in (tmp_path / "t", tmp_path):
        with pytest.raises(StoreError, match=r"no published store in .*t: it has no `current`"):
            open_store(path)
    assert tokens(open_store(rejected.directory)) == [1, 2, 3]


def test_a_killed_first_build_is_no_store(tmp_path: Path) -> None:
    work = tmp_path / "t" / "versions" / ".writing-a" / "payload"
    work.mkdir(parents=True)
    (work / "a.jsonl").write_text('{"sequence": [1]}\n')
    with pytest.raises(StoreError, match="no published store"):
        open_store(tmp_path / "t")


@pytest.mark.parametrize("as_file", [False, True])
def test_a_current_that_leads_nowhere(tmp_path: Path, as_file: bool) -> None:
    gone = publish(tmp_path, "", "a", [1])
    propose(tmp_path, "", "b", [2])
    if as_file:
        (tmp_path / "t" / "current").unlink()
        (tmp_path / "t" / "current").write_text(f"versions/{gone.directory.name}\n")
    shutil.rmtree(gone.directory)
    with pytest.raises(StoreError, match=r"no published store in .*points to .*a-\w+, which is not there"):
        open_store(tmp_path / "t")


@pytest.mark.parametrize("pointer", [lambda path: path.symlink_to("current"), lambda path: path.write_bytes(b"\xff\xfe")])
def test_a_pointer_that_cannot_be_followed(tmp_path: Path, pointer: Callable[[Path], None]) -> None:
    publish(tmp_path, "", "a", [1])
    (tmp_path / "t" / "current").unlink()
    pointer(tmp_path / "t" / "current")
    with pytest.raises(StoreError, match=r"no published store in .*`current` (leads nowhere|points to)"):
        open_store(tmp_path / "t")
    with pytest.raises(StoreError, match=r"holds no path|no store in"):
        open_published(tmp_path, "t")


def test_a_partition_that_is_not_published_is_named(tmp_path: Path) -> None:
    publish(tmp_path, "good", "a", [1])
    propose(tmp_path, "rejected", "b", [2])
    with pytest.raises(StoreError, match=r"no published store in .*t/rejected: "):
        open_store(tmp_path / "t")


def test_all_versions_together_are_no_store(tmp_path: Path) -> None:
    publish(tmp_path, "", "a", [1])
    propose(tmp_path, "", "b", [2])
    with pytest.raises(StoreError, match="holds every version"):
        open_store(tmp_path / "t" / "versions")
    assert tokens(open_store(tmp_path / "t")) == [1]


def test_plain_folders_are_read_as_ever(tmp_path: Path) -> None:
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "a.jsonl").write_text('{"sequence": [1, 2]}\n')
    assert tokens(open_store(tmp_path)) == [1, 2]


@pytest.mark.parametrize("opened", ["t", "t/one", "t/one/current", "t/one/current/train", "link"])
def test_what_was_opened_is_what_is_opened_again(tmp_path: Path, opened: str) -> None:
    publish(tmp_path, "one", "a", [1, 2])
    publish(tmp_path, "two", "a", [3])
    (tmp_path / "link").symlink_to("t/one/current")
    store = open_store(tmp_path / opened)
    expected = [1, 2, 3] if opened == "t" else [1, 2]
    sent = pickle.dumps(store)
    publish(tmp_path, "one", "b", [9, 9, 9])
    publish(tmp_path, "three", "a", [7])
    assert tokens(store) == tokens(pickle.loads(sent)) == tokens(pickle.loads(pickle.dumps(pickle.loads(sent)))) == expected
    assert tokens(open_store(tmp_path / "t")) == [9, 9, 9, 7, 3]


def edited(manifest: Path) -> None:
    manifest.write_text(manifest.read_text().replace('"partition": ""', '"partition": "x"'))


@pytest.mark.parametrize("damage", [edited, lambda manifest: manifest.write_text(""), lambda manifest: manifest.unlink()])
@pytest.mark.parametrize("opened", ["t", "."])
def test_nothing_is_read_under_a_manifest_that_cannot_be_read(tmp_path: Path, damage: Callable[[Path], None], opened: str) -> None:
    published = publish(tmp_path, "", "a", [1])
    open_store(tmp_path / opened)
    damage(published.directory / "manifest.json")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(tmp_path / opened)


def test_nor_a_part_of_its_store(tmp_path: Path) -> None:
    published = publish(tmp_path, "", "a", [1])
    edited(published.directory / "manifest.json")
    for part in ("current", "current/train"):
        with pytest.raises(StoreError, match="edited or cut short"):
            open_store(tmp_path / "t" / part)


def test_a_link_keeps_the_name_that_says_its_format(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text('{"sequence": [4, 5]}\n')
    (tmp_path / "a.jsonl").symlink_to("blob")
    assert tokens(pickle.loads(pickle.dumps(open_store(tmp_path / "a.jsonl")))) == [4, 5]
