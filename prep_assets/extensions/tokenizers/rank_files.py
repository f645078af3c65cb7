"""Tokenizers published as ranks of byte strings: tiktoken's files and Mistral's Tekken."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.config.loading import yaml_values
from prep_assets.errors import ConfigError
from prep_assets.stores.files import loads
from prep_assets.text.ids import ALPHABET
from prep_assets.text.tokenizer_files import MOST_IDS, Encode, FileFormat, Spec, added_tokens, register_files

# Byte-pair encodings given as ranks of byte strings, converted to a ``tokenizer.json``: tiktoken's rank files (``NAME.tiktoken``), which lack the pattern
# and the special tokens, and Mistral's Tekken.
#
# tiktoken splits a text by a regular expression, takes a piece that is a token as it is, and else merges the two neighbours whose joined bytes have the
# lowest rank, the leftmost first. `tokenizers` does the same with ``ignore_merges`` and a list of merges, by rank of the merged token: every split of each
# token into two tokens.

_GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_END = "<|endoftext|>"
_FIM = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": {"pattern": _GPT2, "special_tokens": {_END: 50256}},
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": {"pattern": _GPT2, "special_tokens": {_END: 50256}},
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": {
        "pattern": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
        "special_tokens": {_END: 100257, **_FIM, "<|endofprompt|>": 100276},
    },
}
"""Pattern and special tokens of OpenAI's r50k_base, p50k_base and cl100k_base, by the sha256 of the rank file."""


def _convert_ranks(path: Path) -> Spec:
    config = _rank_file_config(path)
    special = {str(text): int(number) for text, number in config.get("special_tokens", {}).items()}
    names = {name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)}
    return from_ranks(_read_ranks(path), config["pattern"], special), names


def _rank_file_config(path: Path) -> Mapping[str, Any]:
    """The pattern and the special tokens of a rank file, from a JSON or YAML file of the same name or from `KNOWN`."""
    for suffix in (".json", ".yaml"):
        if path.with_suffix(suffix).is_file():
            config = yaml_values(path.with_suffix(suffix).read_text("utf-8"), path.with_suffix(suffix))
            if isinstance(config.get("pattern"), str):
                return config
    if known := KNOWN.get(hashlib.sha256(path.read_bytes()).hexdigest()):
        return {**known, "eos_token": _END}
    raise ConfigError(
        f"{path} holds ranks only. Write its pattern and special tokens into {path.with_suffix('.json').name}: "
        '{"pattern": "…", "special_tokens": {"<|endoftext|>": 100257}, "eos_token": "<|endoftext|>"}'
    )


def _read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    try:
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise ConfigError(f"{path}: a line is not the base64 form of a token and its rank: {error}") from error


def _tiktoken_encode(path: Path) -> Encode:
    import tiktoken

    encoding = tiktoken.Encoding(
        path.stem, pat_str=_rank_file_config(path)["pattern"], mergeable_ranks=_read_ranks(path), special_tokens={}
    )
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


def _convert_tekken(path: Path) -> Spec:
    spec = loads(path.read_bytes())
    config = spec["config"]
    reserved = int(config["default_num_special_tokens"])
    if reserved > MOST_IDS:  # before naming each of them
        raise ConfigError(f"{path}: default_num_special_tokens is {reserved:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    special_tokens = spec.get("special_tokens")
    if special_tokens is None:  # files of 2024 lack them; the library has them
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        special_tokens = Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    special = {f"<SPECIAL_{number}>": number for number in range(len(special_tokens), reserved)}
    special |= {token["token_str"]: int(token["rank"]) for token in special_tokens}
    size = int(config["default_vocab_size"]) - reserved
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) + reserved for token in spec["vocab"][:size]}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return from_ranks(ranks, config["pattern"], special), {name: text for name, text in names.items() if text in special}


def _mistral_encode(path: Path) -> Encode:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(path)
    return lambda texts: [tokenizer.encode(text, bos=False, eos=False) for text in texts]


_POSSESSIVE = re.compile(r"(\\p\{\w+\}|\\[a-zA-Z]|\[(?:[^\]\\]|\\.)*\])(\{\d*,?\d*\})\+")
"""``x{1,3}+``: possessive for tiktoken's engine; Oniguruma reads it as a repetition of ``x{1,3}``."""


def from_ranks(ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int]) -> dict[str, Any]:
    """Build a ``tokenizer.json`` from the ranks of byte-level BPE.

    Args:
        ranks: bytes of each token → its id; lower ids are merged first.
        pattern: the regular expression that splits words.
        special: texts of special tokens → ids.
    """
    token_texts, merges = {token: "".join(map(ALPHABET.__getitem__, token)) for token in sorted(ranks, key=ranks.__getitem__)}, []
    for token in token_texts:
        splits = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [(ranks[left], ranks[right], left, right) for left, right in splits if left in ranks and right in ranks]
        merges += [[token_texts[left], token_texts[right]] for *_, left, right in sorted(pairs)]
    split = {"type": "Split", "pattern": {"Regex": _POSSESSIVE.sub(r"(?>\1\2)", pattern)}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {**{text: ranks[token] for token, text in token_texts.items()}, **special}
    return {
        "added_tokens": added_tokens(special),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": merges},
    }


register_files(FileFormat("tekken*.json", "mistral-common", _convert_tekken, _mistral_encode))
register_files(FileFormat("*.tiktoken", "tiktoken", _convert_ranks, _tiktoken_encode))
