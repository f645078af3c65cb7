"""Vocabularies in plain files as a ``tokenizer.json``.

vocab.txt                   WordPiece, as BERT is published: a token a line, its id the number of the line
vocab.json and merges.txt   byte-level BPE, as GPT-2 is published: ids, and the pairs that are merged in their order

Megatron's files have a prefix (``bert-large-uncased-vocab.txt``, ``gpt2-merges.txt``). How text is split stands in none of them: BERT's and GPT-2's
own ways are taken, and a folder whose ``tokenizer_config.json`` names another tokenizer's class is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import read_object, special_tokens
from prep_assets.tokenization.rank_files import special_tokens_of

VOCAB, MERGES = "vocab.txt", "merges.txt"
_BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
_GPT2 = {"eos_token": "<|endoftext|>"}
_CLASSES = {VOCAB: "BertTokenizer", MERGES: "GPT2Tokenizer"}


def kind_of(path: Path) -> str:
    """``vocab.txt`` or ``merges.txt``, whatever prefix a name has; empty for another file."""
    return next((kind for kind in _CLASSES if path.name.endswith(kind)), "")


def from_vocabulary(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A ``tokenizer.json``, and the names of its special tokens.

    Raises:
        ConfigError: a file beside it is missing, or says that text is split in another way.
    """
    settings = _settings(path)
    return _wordpiece(path, settings) if kind_of(path) == VOCAB else _bpe(path, settings)


def by_transformers(path: Path) -> Callable[[Sequence[str]], list[list[int]]]:
    """How transformers' own class reads the same files."""
    import transformers

    settings = _settings(path)
    if kind_of(path) == VOCAB:
        own = {name: settings[name] for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars") if name in settings}
        opened = transformers.BertTokenizer(vocab=str(path), **own)
    else:
        opened = transformers.GPT2Tokenizer(
            vocab=str(_vocabulary_of(path)), merges=str(path), add_prefix_space=settings.get("add_prefix_space", False)
        )
    backend = opened.backend_tokenizer
    backend.encode_special_tokens = True
    return lambda texts: [each.ids for each in backend.encode_batch(list(texts), add_special_tokens=False)]


def _settings(path: Path) -> Mapping[str, Any]:
    settings, own = read_object(path.parent / "tokenizer_config.json"), _CLASSES[kind_of(path)]
    named = settings.get("tokenizer_class") or own
    if named.removesuffix("Fast") != own:
        raise ConfigError(f"{path} belongs to a {named}, which may split text otherwise than {own}. Use its tokenizer.json")
    return settings


def _wordpiece(path: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    if not isinstance(settings.get("do_lower_case"), bool):
        raise ConfigError(
            f'{path} does not say whether text is lowercased. Write {{"do_lower_case": true}} (BertWordPieceLowerCase) or false '
            "(BertWordPieceCase) into tokenizer_config.json beside it"
        )
    vocab = {line: number for number, line in enumerate(path.read_text("utf-8").removesuffix("\n").split("\n"))}
    names = {**{name: text for name, text in _BERT.items() if text in vocab}, **special_tokens(path.parent)}
    chinese = settings.get("tokenize_chinese_chars", True)
    normalizer = {"clean_text": True, "handle_chinese_chars": chinese, "strip_accents": settings.get("strip_accents")}
    unknown = names.get("unk_token", _BERT["unk_token"])
    spec = {
        "normalizer": {"type": "BertNormalizer", **normalizer, "lowercase": settings["do_lower_case"]},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }
    return _complete(path, spec, names), names


def _bpe(path: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    place = _vocabulary_of(path)
    vocab = dict(read_object(place))
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#version")]
    merges = [line.split(" ") for line in lines]
    if wrong := next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2 or "".join(pair) not in vocab), None):
        raise ConfigError(f"{path}: {wrong[:60]!r} merges no two tokens into one of {place.name}. The two files do not belong together")
    names = {**{name: text for name, text in _GPT2.items() if text in vocab}, **special_tokens(path.parent)}
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}
    spec = {
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": bool(settings.get("add_prefix_space", False))},
        "decoder": {**byte_level, "add_prefix_space": False},
        "model": {"type": "BPE", **model, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges},
    }
    return _complete(path, spec, names), names


def _vocabulary_of(path: Path) -> Path:
    place = path.with_name(path.name.removesuffix(MERGES) + "vocab.json")
    if not place.is_file():
        raise ConfigError(f"{path} holds merges only, and there is no {place.name} beside it, which has the ids")
    return place


def _complete(path: Path, spec: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """With special tokens, which have the ids of the vocabulary, or of ``added_tokens.json``."""
    model = spec["model"]
    ids = {**read_object(path.parent / "added_tokens.json"), **model["vocab"]}
    missing = sorted({text for text in names.values() if text not in ids})
    if missing:
        raise ConfigError(
            f"{path}: tokenizer_config.json names {', '.join(missing)}, without an id in the vocabulary or in added_tokens.json"
        )
    special = {text: int(ids[text]) for text in names.values()}
    rest = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "added_tokens": special_tokens_of(special)}
    return {**spec, **rest, "model": {**model, "vocab": {**model["vocab"], **special}}}
