"""SkyRL's own loader on our rows: its windows of actions teach what the store says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets_tests.extensions.exports.conftest import Document, Stream, Table
from prep_assets_tests.extensions.exports.learned import lessons
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.peers.checkouts import bypass, checkout


@pytest.fixture(scope="module")
def skyrl() -> Any:
    """``skyrl.train.dataset.pretokenized`` of the checkout that PREP_ASSETS_SKYRL names; the packages around it import Ray and its models."""
    folder = checkout("PREP_ASSETS_SKYRL", "SkyRL") / "skyrl"
    reader("datasets")
    reader("loguru")
    for name in ("skyrl", "skyrl.train", "skyrl.train.dataset"):
        bypass(name, folder.joinpath(*name.split(".")[1:]))
    return importlib.import_module("skyrl.train.dataset.pretokenized")


def taught(rows: Any) -> list[tuple[tuple[int, ...], int]]:
    """Context and target of each prediction that counts, from the rows of its data set: of the last `num_actions` tokens, those with a mask."""
    found = []
    for row in rows:
        ids, actions = row["input_ids"], row["num_actions"]
        assert len(row["loss_mask"]) == actions < len(ids) and row["attention_mask"] == [1] * len(ids)
        found += [(tuple(ids[:at]), ids[at]) for at in range(len(ids) - actions, len(ids)) if row["loss_mask"][at - len(ids) + actions]]
    return found


def test_its_windows_teach_the_documents(skyrl: Any, table: Table, chats: Stream, tmp_path: Path) -> None:
    for name, folder, documents in (("of rows", table.folder, table.documents), ("of chats", chats.folder, chats.documents)):
        rows = skyrl.load_from_pretokenized(str(export(folder, "hf_arrow", tmp_path / name, layout="skyrl")))
        expected = [document for document in documents if any(document[1][1:])]
        assert len(rows) == len(expected)
        assert taught(rows) == [(tuple(context), target) for context, target in lessons(expected)]
        assert rows.sequence_lengths.tolist() == [len(tokens) for tokens, _ in expected]


def test_documents_that_it_cuts(skyrl: Any, table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "hf_arrow", tmp_path / "out", layout="skyrl")
    kept: list[Document] = [(tokens[:5], mask[:5]) for tokens, mask in table.documents if any(mask[1:5])]
    assert taught(skyrl.load_from_pretokenized(str(out), max_length=5)) == [(tuple(context), target) for context, target in lessons(kept)]


def test_pairs_are_none_of_its_rows(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SkyRL's SFT reads no preference pairs. Give it sft_packed or sft_tokens"):
        export(pairs[0], "hf_arrow", tmp_path / "out", layout="skyrl")
