"""Byte-pair encodings given as ranks of byte strings, as a ``tokenizer.json``: tiktoken's rank files (``NAME.tiktoken``), with the pattern and the special
tokens that such a file leaves out, and Mistral's Tekken.

tiktoken splits a text by a regular expression, takes a piece that is a token as it is, and else merges the two neighbours whose joined bytes have
the lowest rank, the leftmost first. `tokenizers` does the same with a list of merges in the order of the ranks of what they make, each token
with every split into two tokens, and with ``ignore_merges``.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.tokenization.byte_level import ALPHABET

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
"""What OpenAI's r50k_base, p50k_base and cl100k_base leave out, by the sha256 of the rank file."""


def from_rank_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A ``tokenizer.json``, and the names of its special tokens.

    Raises:
        ConfigError: a line is damaged, or nothing says how text is split.
    """
    config = _beside(path)
    special = {str(text): int(number) for text, number in config.get("special_tokens", {}).items()}
    names = {name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)}
    return from_ranks(_ranks(path), config["pattern"], special), names


def _beside(path: Path) -> Mapping[str, Any]:
    """What a rank file does not say: the pattern and the special tokens, in a JSON or YAML file of its name."""
    for suffix in (".json", ".yaml"):
        if path.with_suffix(suffix).is_file():
            import yaml

            config = yaml.safe_load(path.with_suffix(suffix).read_text("utf-8"))
            if isinstance(config, Mapping) and isinstance(config.get("pattern"), str):
                return config
    if known := KNOWN.get(hashlib.sha256(path.read_bytes()).hexdigest()):
        return {**known, "eos_token": _END}
    raise ConfigError(
        f"{path} holds ranks only. Write its pattern and special tokens into {path.with_suffix('.json').name}: "
        '{"pattern": "…", "special_tokens": {"<|endoftext|>": 100257}, "eos_token": "<|endoftext|>"}'
    )


def _ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    try:
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise ConfigError(f"{path}: a line is not the base64 form of a token and its rank: {error}") from error


def by_tiktoken(path: Path) -> Callable[[Sequence[str]], list[list[int]]]:
    """How tiktoken reads the same file."""
    import tiktoken

    encoding = tiktoken.Encoding(path.stem, pat_str=_beside(path)["pattern"], mergeable_ranks=_ranks(path), special_tokens={})
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


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
