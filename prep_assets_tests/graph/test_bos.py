"""The begin-of-text token of pretraining documents, as the base model had it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import ConfigError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.documents import documents_begin_with
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.text.vocabulary import Ends, ends_of, load_vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, build, domain, failing, jsonl, minimal, resealed, workspace_in

TEXTS = ["One.", "Two <|im_start|> typed.", "Three, and some words more."]


def tokenizer(at: Path, *front: str) -> Path:
    """The shipped tokenizer, which writes some tokens in front of every text; `<|im_start|>` is its begin-of-text token."""
    made = Path(shutil.copytree(CONFIGS / "tokenizer", at))
    spec, config = (json.loads((made / name).read_text("utf-8")) for name in ("tokenizer.json", "tokenizer_config.json"))
    ids = {token["content"]: token["id"] for token in spec["added_tokens"]}
    pieces = [*({"SpecialToken": {"id": text, "type_id": 0}} for text in front), {"Sequence": {"id": "A", "type_id": 0}}]
    used = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in front}
    if front:
        spec["post_processor"] = {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": used}
    (made / "tokenizer.json").write_text(json.dumps(spec))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>"}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def built(at: Path, tokenizer: Path, **options: Any) -> tuple[Workspace, Published]:
    source = jsonl(at / "rows.jsonl", [{"text": text} for text in TEXTS])
    workspace = workspace_in(at / "ws", minimal("pretrain", {"docs": domain(source, "text")}, tokenizer=str(tokenizer), **options))
    build(workspace, "pretrain_raw", "docs")
    return workspace, build(workspace, "pretrain_tokens", "docs")


@pytest.mark.parametrize(
    ("front", "option", "expected"),
    [(("<|im_start|>",), "auto", True), ((), "auto", False), ((), True, True), (("<|im_start|>",), False, False)],
)
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_each_document_begins_as_the_reference_has_it(
    tmp_path: Path, front: tuple[str, ...], option: Any, expected: bool, engine: str
) -> None:
    """marin issue 5034: a faster engine lost the token. Without the option, no store of this package had it."""
    made = tokenizer(tmp_path / "tokenizer", *front)
    workspace, published = built(tmp_path, made, bos=option, engine=engine)
    vocabulary = load_vocabulary(str(made))
    store = open_tokens(published.directory, "docs_train")
    assert published.manifest.recipe["bos"] is expected
    assert documents_begin_with(vocabulary, str(option).lower()) == (vocabulary.bos_id if expected else None)
    vocabulary.backend.encode_special_tokens = True
    for number, text in enumerate(TEXTS):
        plain = vocabulary.backend.encode(text, add_special_tokens=False).ids
        assert store.record(number, "tokens").tolist() == [*[vocabulary.bos_id] * expected, *plain, vocabulary.eos_id]
    assert failing(workspace, published) == []


def test_a_lost_or_a_doubled_one_is_found(tmp_path: Path) -> None:
    made = tokenizer(tmp_path / "tokenizer", "<|im_start|>")
    workspace, published = built(tmp_path, made, output={"storage_format": "bin"})
    bos = load_vocabulary(str(made)).bos_id
    (file,) = (path.relative_to(published.directory) for path in published.directory.rglob("sequence.bin"))
    sound = np.fromfile(published.directory / file, np.int32)
    for place, token in ((0, sound[1]), (1, bos)):
        damaged = sound.copy()
        damaged[place] = token
        damaged.tofile(published.directory / file)
        published = resealed(published)
        assert "row_integrity" in failing(workspace, published)


def test_what_is_not_the_begin_of_text_token_alone_needs_a_decision(tmp_path: Path) -> None:
    made = tokenizer(tmp_path / "tokenizer", "<|pad|>", "<|im_start|>")
    with pytest.raises(ConfigError, match=r"writes \['<\|pad\|>', '<\|im_start\|>'\] in front of a text"):
        ends_of(load_vocabulary(str(made)), "auto")


def test_one_token_for_both_ends() -> None:
    ids, lengths = Ends(9, 9).around(np.array([1, 2, 3], np.uint32), np.array([2, 0, 1]))
    assert ids.tolist() == [9, 1, 2, 9, 9, 9, 9, 3, 9]
    assert lengths.tolist() == [4, 2, 3]


def test_real_tokenizers(real_data: Path) -> None:
    found = {name: ends_of(load_vocabulary(str(real_data / "tokenizers" / name)), "auto").bos for name in ("gpt2", "smollm", "mistral_v3")}
    assert found == {"gpt2": None, "smollm": None, "mistral_v3": 1}
