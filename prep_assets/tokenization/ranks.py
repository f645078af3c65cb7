"""Byte-pair encodings given as ranks of byte strings: tiktoken's rank files and Mistral's Tekken, as a ``tokenizer.json``.

tiktoken splits a text by a regular expression, takes a piece that is a token as it is, and else merges the two neighbours whose joined bytes have
the lowest rank, the leftmost first. `tokenizers` does the same with a list of merges in the order of the ranks of what they make, each token
with every split into two tokens, and with ``ignore_merges``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from prep_assets.tokenization.byte_level import ALPHABET

_POSSESSIVE = re.compile(r"(\\p\{\w+\}|\\[a-zA-Z]|\[(?:[^\]\\]|\\.)*\])(\{\d*,?\d*\})\+")
"""``x{1,3}+``: possessive for tiktoken's engine; Oniguruma reads it as a repetition of the whole."""


def from_ranks(ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int]) -> dict[str, Any]:
    """A ``tokenizer.json``.

    Args:
        ranks: bytes of each token → its id; a lower one is merged first.
        pattern: the regular expression that splits words.
        special: texts of special tokens → ids.
    """
    vocabulary = {written(token): number for token, number in sorted(ranks.items(), key=lambda item: item[1])}
    split = {"type": "Split", "pattern": {"Regex": _POSSESSIVE.sub(r"(?>\1\2)", pattern)}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special_tokens_of(special),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            **bpe,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {**vocabulary, **special},
            "merges": [[written(left), written(right)] for left, right in _merges(ranks)],
        },
    }


def special_tokens_of(special: Mapping[str, int]) -> list[dict[str, Any]]:
    """``added_tokens`` of a ``tokenizer.json``: special tokens, found as they are written, in the order of their ids."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": number, "content": text, **flags} for text, number in sorted(special.items(), key=lambda item: item[1])]


def written(token: bytes) -> str:
    """Bytes in GPT-2's printable alphabet."""
    return "".join(map(ALPHABET.__getitem__, token))


def _merges(ranks: Mapping[bytes, int]) -> Iterable[tuple[bytes, bytes]]:
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        splits = ((token[:at], token[at:]) for at in range(1, len(token)))
        yield from sorted(
            (pair for pair in splits if pair[0] in ranks and pair[1] in ranks), key=lambda pair: (ranks[pair[0]], ranks[pair[1]])
        )
