"""Tokenizers published as a vocabulary in plain files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.text.tokenizer_files import Encode, FileFormat, Spec, added_tokens, read_object, register_files, special_tokens

# Vocabularies in plain files, converted to a ``tokenizer.json``.
#
# vocab.txt                   WordPiece, as published with BERT: one token per line, its id is the line number
# vocab.json and merges.txt   byte-level BPE, as published with GPT-2: ids, and the merges in order
#
# Megatron's files have a prefix (``bert-large-uncased-vocab.txt``, ``gpt2-merges.txt``). None of them says how text is split: it is split as for BERT and
# GPT-2, and a folder whose ``tokenizer_config.json`` names the class of another tokenizer is an error.

_BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
_GPT2_SPECIAL_TOKENS = {"eos_token": "<|endoftext|>"}


def _read_settings(path: Path, expected: str) -> Mapping[str, Any]:
    """Read ``tokenizer_config.json``.

    Raises:
        ConfigError: it names another tokenizer class than `expected`.
    """
    settings = read_object(path.parent / "tokenizer_config.json")
    tokenizer_class = settings.get("tokenizer_class") or expected
    if tokenizer_class.removesuffix("Fast") != expected:
        raise ConfigError(f"{path} belongs to a {tokenizer_class}, which may split text otherwise than {expected}. Use its tokenizer.json")
    return settings


def _convert_wordpiece(path: Path) -> Spec:
    settings = _read_settings(path, "BertTokenizer")
    if not isinstance(settings.get("do_lower_case"), bool):
        raise ConfigError(
            f'{path} does not say whether text is lowercased. Write {{"do_lower_case": true}} (BertWordPieceLowerCase) or false '
            "(BertWordPieceCase) into tokenizer_config.json beside it"
        )
    vocab = {line: number for number, line in enumerate(path.read_text("utf-8").removesuffix("\n").split("\n"))}
    names = {**{name: text for name, text in _BERT.items() if text in vocab}, **special_tokens(path.parent)}
    chinese, accents = settings.get("tokenize_chinese_chars", True), settings.get("strip_accents")
    normalizer = {"clean_text": True, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": settings["do_lower_case"]}
    model = {"unk_token": names.get("unk_token", _BERT["unk_token"]), "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    spec = {
        "normalizer": {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    }
    return _with_special_tokens(path, spec, {"type": "WordPiece", **model}, vocab, names), names


def _bert_encode(path: Path) -> Encode:
    from transformers import BertTokenizer

    settings = _read_settings(path, "BertTokenizer")
    options = {name: settings[name] for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars") if name in settings}
    return _backend_encode(BertTokenizer(vocab=str(path), **options))


def _convert_merges(path: Path) -> Spec:
    settings, vocab_path = _read_settings(path, "GPT2Tokenizer"), _vocab_path(path)
    vocab = dict(read_object(vocab_path))
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#version")]
    merges = [line.split(" ") for line in lines]
    if wrong := next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2 or "".join(pair) not in vocab), None):
        raise ConfigError(
            f"{path}: {wrong[:60]!r} merges no two tokens into one of {vocab_path.name}. The two files do not belong together"
        )
    names = {**{name: text for name, text in _GPT2_SPECIAL_TOKENS.items() if text in vocab}, **special_tokens(path.parent)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    prefix = {"add_prefix_space": bool(settings.get("add_prefix_space", False))}
    spec = {"pre_tokenizer": {**byte_level, **prefix}, "decoder": byte_level}
    return _with_special_tokens(path, spec, {"type": "BPE", "merges": merges}, vocab, names), names


def _gpt2_encode(path: Path) -> Encode:
    from transformers import GPT2Tokenizer

    prefix = _read_settings(path, "GPT2Tokenizer").get("add_prefix_space", False)
    return _backend_encode(GPT2Tokenizer(vocab=str(_vocab_path(path)), merges=str(path), add_prefix_space=prefix))


def _backend_encode(tokenizer: Any) -> Encode:
    """The encode function of a tokenizer of transformers, for ordinary text."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return lambda texts: [encoding.ids for encoding in backend.encode_batch(list(texts), add_special_tokens=False)]


def _vocab_path(path: Path) -> Path:
    vocab_path = path.with_name(path.name.removesuffix("merges.txt") + "vocab.json")
    if not vocab_path.is_file():
        raise ConfigError(f"{path} holds merges only, and there is no {vocab_path.name} beside it, which has the ids")
    return vocab_path


def _with_special_tokens(
    path: Path, spec: dict[str, Any], model: dict[str, Any], vocab: dict[str, int], names: Mapping[str, str]
) -> dict[str, Any]:
    """`spec` with the model and the special tokens, whose ids come from the vocabulary or from ``added_tokens.json``."""
    ids = {**read_object(path.parent / "added_tokens.json"), **vocab}
    missing = sorted({text for text in names.values() if text not in ids})
    if missing:
        raise ConfigError(
            f"{path}: tokenizer_config.json names {', '.join(missing)}, without an id in the vocabulary or in added_tokens.json"
        )
    special = {text: int(ids[text]) for text in names.values()}
    return {**spec, "added_tokens": added_tokens(special), "model": {**model, "vocab": {**vocab, **special}}}


register_files(FileFormat("*vocab.txt", "transformers", _convert_wordpiece, _bert_encode))
register_files(FileFormat("*merges.txt", "transformers", _convert_merges, _gpt2_encode))
