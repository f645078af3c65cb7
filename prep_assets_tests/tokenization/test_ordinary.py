"""A control token that somebody typed is text, also for models that look words up in their vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.stores.tokens import open_tokens
from prep_assets.text.engines import choose_engine
from prep_assets.text.ids import ordinary
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.graph.workspaces import build, failing, jsonl, minimal, refusals, workspace_in

SPECIAL = ("<pad>", "</s>", "<unk>", "<s>")
LETTERS = (*"abcdefghijklmnopqrstuvwxyz.<>/", "the", "▁", "▁the", "▁a")
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def spec_of(model: dict[str, Any], pre_tokenizer: dict[str, Any], decoder: dict[str, Any] | None) -> dict[str, Any]:
    added = [{"id": number, "content": token, **ADDED} for number, token in enumerate(SPECIAL)]
    parts = {"truncation": None, "padding": None, "normalizer": None, "post_processor": None}
    return {"version": "1.0", **parts, "added_tokens": added, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
IDS = {word: number for number, word in enumerate((*SPECIAL, *LETTERS))}
UNIGRAM = spec_of(
    {
        "type": "Unigram",
        "unk_id": 2,
        "byte_fallback": False,
        "vocab": [[word, 0.0 if word in SPECIAL else -len(word) - 2.0] for word in IDS],
    },
    METASPACE,
    METASPACE,
)
WORDS = spec_of({"type": "WordLevel", "vocab": IDS, "unk_token": "<unk>"}, {"type": "WhitespaceSplit"}, None)


def vocabulary_of(spec: dict[str, Any]) -> Vocabulary:
    return Vocabulary("toy", Tokenizer.from_str(json.dumps(spec)), {"eos_token": "</s>", "pad_token": "<pad>"}, None)


@pytest.mark.parametrize("spec", [UNIGRAM, WORDS], ids=["Unigram", "WordLevel"])
@pytest.mark.parametrize("token", SPECIAL)
def test_a_typed_control_token_is_text(spec: dict[str, Any], token: str) -> None:
    """The library's own way to leave special tokens alone finds them in the vocabulary: the fault that this is about."""
    vocabulary = vocabulary_of(spec)
    vocabulary.backend.encode_special_tokens = True
    assert IDS[token] in vocabulary.backend.encode(f"the {token} a", add_special_tokens=False).ids
    ids = choose_engine(vocabulary).first.encode([f"the {token} a"]).ids.tolist()
    structural = set(vocabulary.control.values()) - {IDS["<unk>"]}
    assert structural.isdisjoint(ids)
    if spec is UNIGRAM:
        assert ids == [IDS["▁the"], IDS["▁"], *(IDS[char] for char in token), IDS["▁a"]]
        assert vocabulary.decode(ids) == f" the {token} a"


@pytest.mark.parametrize("spec", [UNIGRAM, WORDS], ids=["Unigram", "WordLevel"])
def test_other_text_keeps_its_ids(spec: dict[str, Any]) -> None:
    texts = ["the a the", "", "abc the. Ω a", "the" * 5]
    vocabulary = vocabulary_of(spec)
    expected = [each.ids for each in vocabulary.backend.encode_batch(texts, add_special_tokens=False)]
    found = choose_engine(vocabulary).first.encode(texts)
    assert [ids.tolist() for ids in np.split(found.ids, found.offsets[1:-1])] == expected
    assert vocabulary.unknown_id == IDS["<unk>"]


BYTES = {
    **UNIGRAM,
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, METASPACE]},
    "model": {
        **UNIGRAM["model"],
        "byte_fallback": True,
        "vocab": [*UNIGRAM["model"]["vocab"], *([f"<0x{byte:02X}>", -20.0] for byte in range(256)), *([char, -5.0] for char in "0A")],
    },
}


@pytest.mark.parametrize("text", ["a <0x0A> a", "<0x0A>", "<<0x00><0xA0>>", "<0x0a> Ω\n<0x0A", "é<0xFF"])
def test_a_typed_byte_is_text(text: str) -> None:
    """`<0x0A>` in a text became a line break, which every check passed: the library finds the piece for a byte in the vocabulary."""
    vocabulary = vocabulary_of(BYTES)
    ids = choose_engine(vocabulary).first.encode([text]).ids.tolist()
    assert vocabulary.decode(ids) == f" {text}"
    assert "<0x0A>" not in text or vocabulary.decode(vocabulary.backend.encode(text, add_special_tokens=False).ids) != f" {text}"


def test_what_needs_no_change_has_none() -> None:
    spec = spec_of({"type": "BPE", "vocab": IDS, "merges": [], "unk_token": None}, METASPACE, None)
    assert ordinary(spec) == spec and vocabulary_of(spec).unknown_id is None


def tokenizer_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(UNIGRAM))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
    return folder


def test_pretraining_ends_documents_where_they_end(tmp_path: Path) -> None:
    """A typed ``</s>`` ended the document in the stream, and what followed began another one. What has no piece refuses its document."""
    source = jsonl(tmp_path / "docs.jsonl", [{"text": "the </s> a <s> the"}, {"text": "the Ω a"}])
    domain = {"docs": {"files": [str(source)], "schema": "text"}}
    workspace = workspace_in(
        tmp_path / "work", minimal("pretrain", domain, tokenizer=str(tokenizer_in(tmp_path / "unigram")), test_fraction=0)
    )
    build(workspace, "pretrain_raw", "docs")
    published = build(workspace, "pretrain_tokens", "docs")
    ids = open_tokens(published.directory, "docs_train").record(0, "tokens").tolist()
    assert ids.count(IDS["</s>"]) == 1 and ids[-1] == IDS["</s>"] and IDS["<s>"] not in ids
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)] == [("docs.jsonl:1", "lossy_tokenizer")]
    assert failing(workspace, published) == []
