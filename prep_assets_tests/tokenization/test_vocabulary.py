"""Ids, control tokens, the bytes behind ids, and what a tokenizer's identity is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from prep_assets.errors import ConfigError
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import BYTE_LEVEL, CONFIGS, TEXT, TEXT_WITH_CONTROL, Loaded, variant

Open = Callable[[str], Loaded]


def specification(loaded: Loaded) -> Any:
    return json.loads((loaded.directory / "tokenizer.json").read_text("utf-8"))


def test_ids_are_those_of_tokenizer_json(tokenizer: Loaded) -> None:
    spec = specification(tokenizer)
    ids = [*spec["model"]["vocab"].values(), *(token["id"] for token in spec["added_tokens"])]
    assert tokenizer.vocabulary.size == max(ids) + 1
    assert tokenizer.vocabulary.control == {token["content"]: token["id"] for token in spec["added_tokens"] if token["special"]}


@pytest.mark.parametrize(
    ("name", "size", "eos", "pad"),
    [("shipped", 4096, 0, 3), ("gpt2", 50257, 50256, 50256), ("smollm", 49154, 0, 49152), ("mistral_v3", 32768, 2, 2)],
)
def test_known_tokenizers(open_tokenizer: Open, name: str, size: int, eos: int, pad: int) -> None:
    vocabulary = open_tokenizer(name).vocabulary
    assert (vocabulary.size, vocabulary.eos_id, vocabulary.pad_id) == (size, eos, pad)


def test_the_shipped_control_tokens(shipped: Loaded) -> None:
    assert shipped.vocabulary.control == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<|pad|>": 3}


def test_ids_with_a_hole() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary("holes", Tokenizer(models.BPE(vocab={"a": 0, "b": 9}, merges=[])), {}, None)
    assert vocabulary.size == 10


def test_a_missing_end_of_text_token_is_named(shipped: Loaded) -> None:
    bare = replace(shipped.vocabulary, special={})
    with pytest.raises(ConfigError, match=r"has no eos_token; set it in its tokenizer_config\.json"):
        _ = bare.eos_id
    with pytest.raises(ConfigError, match="has no eos_token"):
        _ = bare.pad_id


# the bytes behind ids


@pytest.mark.parametrize("name", BYTE_LEVEL)
@settings(max_examples=examples(60), deadline=None)
@given(text=TEXT_WITH_CONTROL)
def test_byte_level_ids_are_bytes(open_tokenizer: Open, name: str, text: str) -> None:
    loaded = open_tokenizer(name)
    table = loaded.vocabulary.token_bytes
    assert table is not None
    known = {content for content in table if len(content) == 1}  # smollm has no token for some bytes
    expected = b"".join(byte for byte in (bytes([number]) for number in text.encode()) if byte in known)
    assert b"".join(table[token] for token in loaded.ordinary([text])[0]) == expected
    assert name == "smollm" or expected == text.encode()


@settings(max_examples=examples(60), deadline=None)
@given(TEXT_WITH_CONTROL)
def test_sentencepiece_ids_are_bytes(open_tokenizer: Open, text: str) -> None:
    """With the space in front, and byte fallback for what is not in the vocabulary; `▁` is the one character that is lost."""
    loaded = open_tokenizer("mistral_v3")
    table = loaded.vocabulary.token_bytes
    assert table is not None
    spaced = text.replace("▁", " ")
    expected = spaced if not spaced or spaced.startswith(" ") else f" {spaced}"
    assert b"".join(table[token] for token in loaded.ordinary([text])[0]) == expected.encode()


def test_every_single_byte_has_an_id(open_tokenizer: Open) -> None:
    for name in ("shipped", "gpt2", "mistral_v3"):
        table = open_tokenizer(name).vocabulary.token_bytes
        assert table is not None
        assert {bytes([byte]) for byte in range(256)} <= set(table)


def test_byte_fallback_tokens_are_single_bytes(open_tokenizer: Open) -> None:
    loaded = open_tokenizer("mistral_v3")
    vocab, table = specification(loaded)["model"]["vocab"], loaded.vocabulary.token_bytes
    assert table is not None
    assert [table[vocab[f"<0x{byte:02X}>"]] for byte in range(256)] == [bytes([byte]) for byte in range(256)]


def test_byte_lengths_and_control_tokens(tokenizer: Loaded) -> None:
    vocabulary = tokenizer.vocabulary
    table, lengths = vocabulary.token_bytes, vocabulary.byte_lengths
    assert table is not None
    assert lengths is not None
    assert lengths.tolist() == [len(content) for content in table]
    assert all(table[number] == text.encode() for text, number in vocabulary.control.items())


def test_ids_that_are_no_fixed_bytes_have_no_table(shipped: Loaded) -> None:
    from tokenizers import Tokenizer, models

    assert variant(shipped.vocabulary, normalizer={"type": "Lowercase"}).byte_lengths is None
    pieces = Vocabulary("pieces", Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")), {}, None)
    assert (pieces.token_bytes, pieces.byte_lengths) == (None, None)


@pytest.mark.parametrize(
    "normalizer", [{"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, {"type": "Sequence", "normalizers": []}]
)
def test_a_normalizer_that_leaves_most_text_alone_keeps_the_table(shipped: Loaded, normalizer: dict[str, Any]) -> None:
    changed = variant(shipped.vocabulary, normalizer=normalizer)
    assert changed.token_bytes == shipped.vocabulary.token_bytes
    composed = "NFC" in str(normalizer)
    assert changed.is_normal("caf\u00e9") and changed.is_normal("cafe\u0301") == (not composed)
    assert changed.normalized("cafe\u0301") == ("caf\u00e9" if composed else "cafe\u0301")


def test_prefix_space(tokenizer: Loaded) -> None:
    assert tokenizer.vocabulary.prefix_space == ("first" if tokenizer.name == "mistral_v3" else "never")


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_prefix_space_is_metaspaces_scheme(shipped: Loaded, scheme: str) -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    assert variant(shipped.vocabulary, pre_tokenizer=metaspace).prefix_space == scheme
    nested = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, metaspace]}
    assert variant(shipped.vocabulary, pre_tokenizer=nested).prefix_space == scheme


# decoding


@settings(max_examples=examples(60), deadline=None)
@given(TEXT)
def test_decoding_gives_the_text_back(open_tokenizer: Open, text: str) -> None:
    for name in ("shipped", "gpt2", "mistral_v3"):
        loaded = open_tokenizer(name)
        flat = loaded.engines.rest.encode([text])
        assert loaded.vocabulary.decode(flat.ids) == (text.replace("▁", " ") if name == "mistral_v3" else text)


def test_decoding_keeps_leading_spaces(tokenizer: Loaded) -> None:
    """Also of a piece from the middle of a text, where SentencePiece's own decoder drops the space."""
    texts = [" Hello", "  Hello", "Hello", " ", "   ", "\nHi", ""]
    lists = [tokenizer.engines.rest.encode([text]).ids.tolist() for text in texts]
    assert tokenizer.vocabulary.decode_batch(lists) == texts
    assert [tokenizer.vocabulary.decode(ids) for ids in lists] == texts


def test_decoding_shows_control_tokens(tokenizer: Loaded) -> None:
    for text, number in tokenizer.vocabulary.control.items():
        assert tokenizer.vocabulary.decode([number]) == text
        assert tokenizer.vocabulary.decode([number, number]) == text * 2


def test_decoding_without_control_tokens() -> None:
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert Vocabulary("bare", backend, {}, None).decode_batch([[0, 1], [], [1]]) == ["ab", "", "b"]


# identity


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIGS / "tokenizer", tmp_path / "a folder with another name"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads(path.read_text("utf-8"))
    change(fields)
    path.write_text(json.dumps(fields), "utf-8")


def test_the_hash_is_of_the_content_not_of_the_place(shipped: Loaded, copied: Path) -> None:
    edit(copied / "tokenizer.json", lambda spec: None)  # other white space
    assert load_vocabulary(str(copied)).hash == shipped.vocabulary.hash
    assert load_vocabulary(copied.name, base=copied.parent).hash == shipped.vocabulary.hash


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer.json", lambda spec: spec["model"]["merges"].pop()),
        ("tokenizer.json", lambda spec: spec["pre_tokenizer"].update(add_prefix_space=True)),
        ("tokenizer.json", lambda spec: spec["added_tokens"][2].update(special=False)),
        ("tokenizer_config.json", lambda config: config.update(chat_template="{{ messages }}")),
        ("tokenizer_config.json", lambda config: config.update(eos_token="<|im_end|>")),
    ],
)
def test_the_hash_changes_with_the_content(shipped: Loaded, copied: Path, file: str, change: Callable[[dict[str, Any]], None]) -> None:
    edit(copied / file, change)
    assert load_vocabulary(str(copied)).hash != shipped.vocabulary.hash


def test_special_tokens_and_template_are_read(shipped: Loaded) -> None:
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|pad|>"}
    assert {name: shipped.vocabulary.special[name] for name in special} == special
    config = json.loads((CONFIGS / "tokenizer" / "tokenizer_config.json").read_text("utf-8"))
    assert shipped.vocabulary.chat_template == config["chat_template"]


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer\.json in .*, which holds nothing"):
        load_vocabulary(".", base=tmp_path)


def test_a_control_token_is_decoded_as_it_is_written() -> None:
    """A SentencePiece decoder makes a space of every ``▁``, also in DeepSeek's stop token, so that a trained text seemed to lack it."""
    from tokenizers import Tokenizer, decoders, models

    stop, letters = "<｜end▁of▁sentence｜>", ["<unk>", "▁", "a", "b", "▁a"]
    backend = Tokenizer(models.BPE({each: number for number, each in enumerate(letters)}, [("▁", "a")], unk_token="<unk>"))
    backend.add_special_tokens([stop, "<unk>"])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    found = Vocabulary("toy", backend, {"eos_token": stop}, None)
    end = found.control[stop]
    assert backend.decode([4, end], skip_special_tokens=False) == "a<｜end of sentence｜>"
    assert found.decode_batch([[4, 3, end, 4, end, end], [], [end], [3, 2]]) == [f" ab{stop} a{stop}{stop}", "", stop, "ba"]


def test_a_byte_level_entry_of_other_characters_has_no_bytes(shipped: Loaded) -> None:
    model = shipped.vocabulary.spec["model"]
    for other in ("中", " ", "a\uffff"):
        strange = variant(shipped.vocabulary, model={**model, "vocab": {**model["vocab"], other: len(model["vocab"]) + 99}})
        with pytest.raises(UnicodeEncodeError, match="alphabet"):
            _ = strange.token_bytes
