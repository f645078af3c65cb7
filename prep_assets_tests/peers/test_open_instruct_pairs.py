"""open-instruct's own transformations and collators on our pairs. `PREP_ASSETS_OPEN_INSTRUCT` names a checkout."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import Document, labels_of, some, write_lines
from prep_assets_tests.extensions.exports.conftest import pairs as pairs  # a fixture
from prep_assets_tests.extensions.exports.readers import reader, stand_in
from prep_assets_tests.extensions.exports.test_read_verl import tokenizer
from prep_assets_tests.extensions.exports.test_rl_rows import pair_rows
from prep_assets_tests.peers.checkouts import bypass, checkout

PAD = 0


@pytest.fixture(scope="module")
def theirs() -> Any:
    """``open_instruct.dataset_transformation``, with what it imports of clusters stood in for."""
    bypass("open_instruct", checkout("PREP_ASSETS_OPEN_INSTRUCT", "open-instruct") / "open_instruct")
    reader("datasets")
    stand_in("open_instruct.launch_utils", "open_instruct.logger_utils", "open_instruct.utils")
    return importlib.import_module("open_instruct.dataset_transformation")


def test_messages_for_reward_models_and_dpo(theirs: Any, tmp_path: Path) -> None:
    """The reward model finds the prompt in the chosen chat, DPO trains the last answer of both."""
    rows, words = pair_rows(130), tokenizer()
    out = export(write_lines(tmp_path / "l", "preferences", rows), "open_instruct", tmp_path / "out")
    dataset = theirs.DatasetConfig(str(out / "train.parquet"), "train", "main").dataset
    assert len(dataset) == len(rows)
    for place in some(len(rows)):
        row, whole = rows[place], dataset[place]
        texts = {side: words.apply_chat_template(row["prompt"] + row[side], tokenize=False) for side in ("chosen", "rejected")}
        judged = theirs.preference_tokenize_v1(dict(whole), words)
        assert words.decode(judged["input_ids_prompt"]) == words.apply_chat_template(
            row["prompt"], tokenize=False, add_generation_prompt=True
        )
        trained = theirs.preference_tulu_tokenize_and_truncate_v1_2(dict(whole), words, 512)
        assert theirs.preference_tulu_filter_v1(trained, words)
        for side, text in texts.items():
            assert words.decode(judged[f"{side}_input_ids"]) == words.decode(trained[f"{side}_input_ids"]) == text
            answer = words.decode([token for token in trained[f"{side}_labels"] if token != -100])
            assert answer == row[side][0]["content"] + "<|im_end|>\n"


def test_its_collator_reads_our_tokens(theirs: Any, pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, *sides = pairs
    found = reader("datasets").load_from_disk(str(export(folder, "hf_arrow", tmp_path / "out", layout="open_instruct")))
    places = some(len(sides[0]))
    batch = theirs.SimplePreferenceCollator(PAD)([found[place] for place in places])
    for side, documents in zip(("chosen", "rejected"), sides, strict=True):
        for place, ids in zip(places, batch[f"{side}_input_ids"].tolist(), strict=True):
            tokens = documents[place][0]
            assert ids == tokens + [PAD] * (len(ids) - len(tokens))
            assert found[place][f"{side}_labels"] == labels_of(documents[place])
