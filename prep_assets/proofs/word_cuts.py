"""Where a tokenizer lets a text be cut, so that the ids of the whole are those of its parts, one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SPLITS = {
    # cl100k and what Llama 3, Qwen and others made of it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # DeepSeek V3 and R1
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Split patterns none of whose alternatives takes a space after anything but white space, and that look at nothing beyond a following space."""
_FINER = {r"\p{N}{1,3}", r"\p{N}", r"[一-龥぀-ゟ゠-ヿ]+"}
"""Patterns beside them that only split further."""
_MERGED = re.compile("[!-~]▁")
UNSPACED = re.compile(
    rb"(?:\xe3\x81[\x81-\xbf]|\xe3\x82[\x80-\x96\xa1-\xbf]|\xe3\x83[\x80-\xba]|\xe4[\xb8-\xbf][\x80-\xbf]|[\xe5-\xe8][\x80-\xbf]{2}|\xe9[\x80-\xbd][\x80-\xbf])"
    rb"(?=\n|\xe3\x80[\x81\x82]|\xef\xbc[\x81\x8c\x9a\x9b\x9f])"
)
"""In UTF-8: a Chinese character (U+4E00 to U+9F7F) or kana before one of 、。！，：；？ or a line break."""
_WORD_END = re.compile("[0-9A-Za-z][!-/:-@[-`{-~\n]")


def cuts_before_spaces(spec: Mapping[str, Any]) -> bool:
    """Whether a tokenizer's ids of a text are those of its parts, where it is cut before spaces that follow a visible ASCII character.

    True only for what is known to do so: byte-level BPE with a known pattern of pre-tokens, and SentencePiece's BPE where no entry of the
    vocabulary has a space after such a character, so that nothing ever merges across.
    """
    model = spec["model"]
    if model["type"] != "BPE" or model.get("dropout") or any(_reaches_over(token) for token in spec["added_tokens"]):
        return False
    if any(part["type"] != "NFC" for part in _parts(spec.get("normalizer"))):
        return False
    steps = _parts(spec.get("pre_tokenizer"))
    if [step["type"] for step in steps] == ["Metaspace"]:
        split, entries = steps[0].get("split", True), model["vocab"]
        return (
            steps[0]["replacement"] == "▁" in entries
            and not model.get("ignore_merges")
            and (split or not any(map(_MERGED.search, entries)))
        )
    return any(map(_ends_words, steps)) and all(_ends_words(step) or _splits_further(step) for step in steps)


def whole_tokens(spec: Mapping[str, Any]) -> tuple[bytes, ...] | None:
    """The added tokens that ordinary text may hold and that reach over the end of a word, where texts may be cut at all others: where a sign or a line
    break follows an ASCII letter or digit. `None` where they may not. It is asked about tokenizers that `cuts_before_spaces` admits.

    None of the patterns takes a sign or a line break after a letter or digit, and none looks back.
    """
    in_text = [token for token in spec["added_tokens"] if not token["special"]]
    if any(step["type"] == "Metaspace" for step in _parts(spec.get("pre_tokenizer"))) or any(token["single_word"] for token in in_text):
        return None
    return tuple(token["content"].encode() for token in in_text if _WORD_END.search(token["content"]))


def cuts_unspaced(spec: Mapping[str, Any]) -> bool:
    """Whether ids are also those of the parts where a text is cut at `UNSPACED`. It is asked about tokenizers that `cuts_before_spaces` admits.

    None of the patterns takes such a sign after a letter, and none looks back.
    """
    return whole_tokens(spec) is not None and not any(UNSPACED.search(token["content"].encode()) for token in spec["added_tokens"])


def _ends_words(step: Mapping[str, Any]) -> bool:
    """Whether a pre-tokenizer begins a new pre-token at each such space, without looking further."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex")) and not step.get("add_prefix_space")
    return _isolated(step) in _SPLITS


def _splits_further(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Digits" or (step["type"] == "ByteLevel" and not step.get("add_prefix_space")) or _isolated(step) in _FINER


def _isolated(step: Mapping[str, Any]) -> str | None:
    """The pattern of a pre-tokenizer whose matches stand alone."""
    plain = step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]
    return step["pattern"].get("Regex") if plain else None


def _reaches_over(token: Mapping[str, Any]) -> bool:
    """Whether an added token, found in text, would take a space that follows it, or holds one."""
    return bool(token["rstrip"]) or re.search("[!-~] ", token["content"]) is not None


def _parts(component: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if component is None:
        return []
    nested = component.get("pretokenizers") or component.get("normalizers")
    return list(nested) if nested else [component]
