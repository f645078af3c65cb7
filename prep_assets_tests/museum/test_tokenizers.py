"""Exhibits of tokenizers that are not what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import Tokenizer

from prep_assets.errors import PrepAssetsError
from prep_assets.text import engines, suspects
from prep_assets.text.engines import RoutedEngine, choose_engine
from prep_assets.text.ids import Flat
from prep_assets.text.suspects import edge_set
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER
from prep_assets_tests.museum.gallery import ASSISTANT, CHAT, USER, Row, chats, said, tokenizer


@pytest.mark.parametrize("name", ["LlamaTokenizerFast", "LlamaTokenizer"])
def test_38_metaspace_over_bytes(tmp_path: Path, name: str) -> None:
    """A new loader put SentencePiece's spaces over a byte-level tokenizer: `helloworld`.

    Hit: transformers#45488, #44779, #46489, #46710, PR#48219, TensorRT-LLM PR#13924, verl#6080
    Stopped by: `tokenizer.json` is the reference; `tokenization_identity`.
    """
    folder = tokenizer(tmp_path / "tokenizer", tokenizer_class=name)
    right = chats(tmp_path, [CHAT], tokenizer=folder, tokenizer_loader="file")
    published = Tokenizer.from_file(str(folder / "tokenizer.json"))
    row = right.row()
    assert "What is 2 + 2?" in right.text(row.ids)
    assert row.ids.tolist() == published.encode(right.text(row.ids), add_special_tokens=False).ids
    spaced = np.array([text.startswith(" ") for text in right.texts(row)])
    bare = [published.token_to_id(text.strip()) if text.strip() else None for text in right.texts(row)]
    assert any(each is not None for each, space in zip(bare, spaced, strict=True) if space)

    def spaceless(rows: list[Row]) -> list[Row]:
        ids = [number if space and number is not None else old for number, space, old in zip(bare, spaced, rows[0].ids, strict=True)]
        return [Row(np.array(ids, rows[0].ids.dtype), rows[0].mask)]

    right.caught("tokenization_identity", spaceless)


def test_39_pre_tokenizer_replaced(tmp_path: Path) -> None:
    """The class named in `tokenizer_config.json` replaced the pre-tokenizer of `tokenizer.json`: numbers were split differently.

    Hit: transformers#45812, #45701, mellea#947 (all Granite models); 83 of 7,473 rows of GSM8K with SmolLM's tokenizer
    Stopped by: the build stops and names both.
    """

    def by_digits(described: dict[str, Any]) -> None:
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_]}

    numbers = [said(USER, "When was 2023 and 1999?"), said(ASSISTANT, "In 2023 and 1999.")]
    folder = tokenizer(tmp_path / "tokenizer", edit=by_digits, tokenizer_class="GPT2Tokenizer")
    with pytest.raises(PrepAssetsError, match="tokenizer_loader"):
        chats(tmp_path / "open", [numbers], tokenizer=folder)
    stand = chats(tmp_path / "file", [numbers], tokenizer=folder, tokenizer_loader="file")
    published = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert stand.row().ids.tolist() == published.encode(stand.text(stand.row().ids), add_special_tokens=False).ids


def like_tekken(folder: Path, pattern: str) -> Path:
    """A tokenizer of Tekken's size that begins with Tekken's tokens, with a pattern."""
    begins = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")

    def edit(described: dict[str, Any]) -> None:
        vocabulary = {text: number for number, text in enumerate(begins)}
        letters = [text for text in described["model"]["vocab"] if len(text) == 1]
        for text in [*letters, *(f"filler{number}" for number in range(131_072))][: 131_072 - len(begins)]:
            vocabulary.setdefault(text, len(vocabulary))
        described["model"] |= {"vocab": vocabulary, "merges": []}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        described["added_tokens"] = [{"id": number, "content": text, **plain} for number, text in enumerate(begins)]
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}
        described["post_processor"] = None

    return tokenizer(folder, edit=edit, bos_token="<s>", eos_token="</s>", pad_token="<unk>", additional_special_tokens=[])


def test_40_tekken_with_the_wrong_pattern(tmp_path: Path) -> None:
    """Mistral's Tekken vocabulary was converted with the default pattern, which splits `eBay`, `pH` and `NaOH`.

    Hit: the discussion of Mistral-Small-3.1 #84, transformers PR#42131, #42299, #42389, #45081, Tokenicer PR#61, llama.cpp#23252
    Stopped by: such files are errors.
    """
    gpt4 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+"
    tekken = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}]*[\\p{Ll}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}]+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+"
    with pytest.raises(PrepAssetsError, match="eBay"):
        load_vocabulary(str(like_tekken(tmp_path / "wrong", gpt4)), loader="file")
    assert load_vocabulary(str(like_tekken(tmp_path / "right", tekken)), loader="file").size == 131_072


def test_41_unicode_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast tokenizer had newer Unicode tables than the reference, so new emoji were cut differently.

    Hit: gigatoken#35, #37
    Stopped by: texts with a code point that differs go to the reference; `tokenization_identity`.
    """
    emoji = "\U0001fae8"
    assert emoji in "".join(edge_set()) and "e\u0301\u0323" in "".join(edge_set())

    class Newer(engines.GigatokenEngine):
        """Cuts one emoji otherwise."""

        def encode(self, texts: Any) -> Flat:
            flat = super().encode(texts)
            ids = flat.ids.copy()
            for number, text in enumerate(texts):
                if emoji in text:
                    ids[flat.offsets[number + 1] - 1] += 1
            return Flat(np.asarray(ids, np.uint32), flat.offsets)

    monkeypatch.setenv("PREP_ASSETS_CACHE", "")
    monkeypatch.setattr(suspects, "TRIED", ((0, 128), (0x1FA00, 0x1FB00)))
    monkeypatch.setattr(engines, "GigatokenEngine", Newer)
    chosen = choose_engine(load_vocabulary(TOKENIZER))
    assert chosen.verdict.endswith("documents with one of 1 code points go to tokenizers")
    texts = ["plain", f"new {emoji}", "old \U0001faa8"]
    found, expected = chosen.first.encode(texts), chosen.reference.encode(texts)
    assert found.ids.tolist() == expected.ids.tolist() and found.offsets.tolist() == expected.offsets.tolist()
    assert isinstance(chosen.first, RoutedEngine) and chosen.first.needs_reference(texts).tolist() == [False, True, False]


def test_42_flag_that_eats_white_space(tmp_path: Path) -> None:
    """An added token with `rstrip` swallowed the template's following line break.

    Hit: transformers#32136, #30590, unsloth#1501 (Phi-3)
    Stopped by: the build stops and names the token and its flag.
    """

    def greedy(described: dict[str, Any]) -> None:
        for token in described["added_tokens"]:
            if token["content"] == "<|im_start|>":
                token["lstrip"] = token["rstrip"] = True

    with pytest.raises(PrepAssetsError, match="strip"):
        chats(tmp_path, [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", edit=greedy))


def test_43_library_changes_ids(tmp_path: Path) -> None:
    """A new version of the tokenizer library gave other ids to added white space.

    Hit: TransformerLens#404
    Stopped by: the library's version is part of the build key.
    """
    assert tokenizers.__version__ in json.dumps(chats(tmp_path, [CHAT]).published.manifest.recipe)


def test_44_overflow_in_training(tmp_path: Path) -> None:
    """Training a tokenizer on large corpora of code overflowed a 32-bit count.

    Hit: tokenizers#2058
    Stopped by: out of scope; the file's content is part of the build key.
    """

    def without_last_merge(described: dict[str, Any]) -> None:
        described["model"]["merges"].pop()

    before = chats(tmp_path / "before", [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer"))
    after = chats(tmp_path / "after", [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", edit=without_last_merge))
    assert before.published.manifest.build_key != after.published.manifest.build_key
